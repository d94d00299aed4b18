"""Whose yes counts: what acts outside the sandbox, where others work too, is an operator's to allow."""

from dataclasses import replace
from pathlib import Path

import pytest

from palyra.core.channels.identity import AccountLink
from palyra.core.errors import Unauthorized
from palyra.core.events.tool import ApprovalKind, Decision, Touches
from palyra.core.ids import Principal
from palyra.core.run.questions import TOUCHED_MAX
from palyra.engine.api.approvals import acts_outside
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, AskedCall
from tests.engine.test_drafts import question, shop
from tests.support.asking import ask, finished
from tests.support.engines import ALICE, OWNER, Workshop

pytestmark = pytest.mark.anyio

HOOK = "mkdir -p .git/hooks && printf 'touch pwned\\n' > .git/hooks/pre-commit"
USERS_YES = ApprovalAnswer(decision=Decision.ALLOW, role_max="user")
OPERATORS_YES = ApprovalAnswer(decision=Decision.ALLOW, role_max="operator")


async def answered_by_user(workshop: Workshop) -> bool:
    """Tells whether a user's yes to the one question of a run counts."""
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        try:
            await engine.approvals.answer(OWNER, card.id, USERS_YES)
        except Unauthorized as refused:
            assert refused.code == "operator_needed"
            await engine.approvals.answer(OWNER, card.id, OPERATORS_YES)
            await finished(engine, record)
            return False
        await finished(engine, record)
        return True


@pytest.mark.parametrize("holders", [(), (OWNER,), (OWNER, OWNER)])
async def test_where_one_person_works_a_user_allows_a_hook(tmp_path: Path, holders: tuple[Principal, ...]) -> None:
    workshop = shop(tmp_path, HOOK)
    workshop.token_holders = holders
    assert await answered_by_user(workshop)
    assert (workshop.workspace / ".git/hooks/pre-commit").exists()


async def test_where_another_has_a_token_a_hook_waits_for_an_operator(tmp_path: Path) -> None:
    """A user's hook would run with the next commit of everybody who works in that folder."""
    workshop = shop(tmp_path, HOOK)
    workshop.token_holders = (OWNER, ALICE)
    assert not await answered_by_user(workshop)
    assert (workshop.workspace / ".git/hooks/pre-commit").exists()


async def test_where_another_has_a_token_a_direct_command_waits_for_an_operator(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo hi > there", direct=True)
    workshop.token_holders = (OWNER, ALICE)
    assert not await answered_by_user(workshop)


async def test_a_user_may_always_say_no_and_allow_what_stays_inside(tmp_path: Path) -> None:
    workshop = shop(tmp_path, "echo hi > there", network=True)
    workshop.token_holders = (OWNER, ALICE)
    assert await answered_by_user(workshop)
    hook = shop(tmp_path / "hook", HOOK)
    hook.token_holders = (OWNER, ALICE)
    async with hook.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DENY, role_max="user"))
        await finished(engine, record)
    assert not (hook.workspace / ".git").exists()


def card(*arguments: object, **fields: object) -> ApprovalRecord:
    calls = tuple(
        AskedCall(call_id=f"c{n}", digest="d", arguments=each, touches=Touches(), preview=None)  # type: ignore[arg-type]
        for n, each in enumerate(arguments)
    )
    members = {
        "id": "a", "kind": ApprovalKind.TOOL.value, "run_id": None, "session_id": "s", "call_id": None,
        "tool": "shell.run", "arguments": None, "status": "pending", "rule": "", "policies": (), "risk": "low",
        "taint": (), "digest": "d", "preview": None, "options": (), "created_at_ms": 0, "expires_at_ms": None,
        "decided_by": None, "calls": calls,
    }  # fmt: skip
    return ApprovalRecord(**{**members, **fields})  # type: ignore[arg-type]


def test_a_question_of_which_something_is_unknown_counts_as_one_about_the_outside() -> None:
    assert not acts_outside(card({"command": "ls", "network": True}))
    assert acts_outside(card({"command": "ls", "direct": True}))
    assert acts_outside(card({"command": "ls"}, {"command": "ls", "direct": True}))
    assert acts_outside(card(None))
    assert acts_outside(card("not parsed"))
    assert acts_outside(card({"direct": True}, kind=ApprovalKind.UNCERTAIN.value))
    assert not acts_outside(card(tool="fs.write", touches=Touches(paths=("a.md",))))
    assert acts_outside(card(tool="fs.write", touches=Touches(paths=("a.md", ".envrc"))))
    assert acts_outside(card(tool="x", policies=("tainted_run_next", "run_outside")))
    assert acts_outside(card(tool="x", touches=Touches(paths=("a",) * TOUCHED_MAX)))


def link(principal: Principal, role: str, **changes: object) -> AccountLink:
    members = {
        "id": "l", "channel": "c", "sender_id": "s", "principal": principal, "role": role, "display": "", "made_by": OWNER,
        "created_at_ms": 0, "expires_at_ms": 2**53,
    }  # fmt: skip
    return AccountLink(**{**members, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("links", "is_shared"),
    [
        ((), False),
        ((link(OWNER, "user"),), False),
        ((link(ALICE, "viewer"),), False),
        ((link(ALICE, "user", expires_at_ms=1),), False),
        ((link(OWNER, "user"), link(ALICE, "user")), True),
    ],
)
async def test_a_linked_account_of_another_reaches_the_workspace_too(
    tmp_path: Path, links: tuple[AccountLink, ...], is_shared: bool
) -> None:

    class Linked:
        async def links(self, channel: str | None, after: str, limit: int) -> tuple[AccountLink, ...]:
            return links if not after else ()

    async with shop(tmp_path, HOOK).open() as engine:
        pairing = replace(engine.approvals.pairing, views=Linked())  # type: ignore[arg-type]
        assert await replace(engine.approvals, pairing=pairing)._is_shared(OWNER) is is_shared
