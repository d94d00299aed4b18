"""An answer counts only if what holds now does not deny the call: policies, agent, skills; for calls and for drafts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import PolicyFolder
from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.agents import AgentSpec
from palyra.core.errors import Conflict, Unavailable
from palyra.core.events import Event
from palyra.core.events.session import SourceTrusted
from palyra.core.events.tool import (
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Outcome,
    Scope,
    ToolFinished,
)
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery
from palyra.engine.engine import Engine
from tests.engine.test_resume import lose_a_send
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

DONE = says("Done.")
SENDS = calls("mark.send", text="a")
FORBIDS = '@id("{name}") forbid (principal, action == Action::"call", resource) when {{ context.{what} }};'
FORBIDS_SENDING = FORBIDS.format(name="no_mail", what='capabilities.contains("message_send")')
FORBIDS_ENVRC = FORBIDS.format(name="no_envrc", what='paths.contains(".envrc")')
YES = ApprovalAnswer(decision=Decision.ALLOW)


class Operator:
    """Writes policies as an operator does, into the folder that the daemon reads."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "policies"
        self.folder.mkdir(exist_ok=True)
        self._now_s = 0.0
        self._read: PolicyFolder | None = None

    def policy(self) -> CedarPolicy:
        self._read = PolicyFolder(self.folder, look_every_s=0.0, monotonic_s=lambda: self._now_s)
        return CedarPolicy(self._read)

    def writes(self, text: str) -> None:
        (self.folder / "forbid.cedar").write_text(text)
        for _ in range(3):
            self._now_s += 1.0
            if self._read is not None:
                self._read.current()


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def workshop_of(root: Path, operator: Operator, *turns: Turn) -> Workshop:
    workshop = Workshop(root, [Script(turns=(*turns, DONE))])
    workshop.policy = operator.policy()
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    return workshop


async def question(engine: Engine) -> ApprovalRecord:
    async def found() -> Sequence[ApprovalRecord]:
        return await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))

    await until(found, "a question")
    return (await found())[0]


def resolved(events: Sequence[Event]) -> ApprovalResolved:
    (found,) = [event.data for event in events if isinstance(event.data, ApprovalResolved)]
    return found


def denied(events: Sequence[Event]) -> ToolFinished:
    (found,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert found.outcome is Outcome.DENIED
    return found


async def test_a_call_that_is_forbidden_while_its_question_waits_does_not_run(
    tmp_path: Path, operator: Operator
) -> None:
    workshop = workshop_of(tmp_path, operator, SENDS)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        operator.writes(FORBIDS_SENDING)
        told = await engine.approvals.answer(OWNER, card.id, YES)
        events = await finished(engine, record)
    assert workshop.executed() == []
    assert (told.status, told.decided_reason, told.decided_rule) == ("denied", "superseded_by_policy", "forbid/no_mail")
    answer = resolved(events)
    assert (answer.status, answer.reason) == (ApprovalStatus.DENIED, "superseded_by_policy")
    assert answer.rule == "forbid/no_mail"
    outcome = denied(events)
    assert outcome.error is not None
    assert (outcome.error.code, "no_mail" in outcome.error.message) == ("superseded_by_policy", True)
    assert events[-1].data.TYPE == "run.done"  # The run went on, and the model answered.


@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.TIMEBOXED])
async def test_no_grant_comes_of_an_answer_that_does_not_count(
    tmp_path: Path, operator: Operator, scope: Scope
) -> None:
    async with workshop_of(tmp_path, operator, SENDS).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        operator.writes(FORBIDS_SENDING)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=scope))
        events = await finished(engine, record)
        assert await engine.approvals.grants(OWNER, "", 10) == ()
    assert not [event for event in events if isinstance(event.data, SourceTrusted)]


async def test_the_same_holds_over_a_restart(tmp_path: Path, operator: Operator) -> None:
    workshop = workshop_of(tmp_path, operator, SENDS)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await question(engine)
    operator.writes(FORBIDS_SENDING)
    workshop.policy = operator.policy()
    async with workshop.open() as engine:
        await engine.approvals.answer(OWNER, (await question(engine)).id, YES)
        events = await finished(engine, record)
    assert workshop.executed() == []
    assert resolved(events).reason == "superseded_by_policy"


async def test_an_agent_that_lost_the_tool_does_not_run_it(tmp_path: Path, operator: Operator) -> None:
    workshop = workshop_of(tmp_path, operator, SENDS)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await question(engine)
    workshop.agents = {"main": AgentSpec(name="main", workspace=(str(workshop.workspace),), tools=("fs.read",))}
    async with workshop.open() as engine:
        await engine.approvals.answer(OWNER, (await question(engine)).id, YES)
        events = await finished(engine, record)
    assert workshop.executed() == []
    assert resolved(events).rule == "tool_not_allowed"


async def test_one_forbidden_call_of_several_ends_the_card(tmp_path: Path, operator: Operator) -> None:
    writes = tuple(PreparedCall("fs.write", {"path": f".git/hooks/{n}", "content": "x"}) for n in range(3))
    workshop = workshop_of(tmp_path, operator, Turn(calls=writes))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert card.count == 3
        operator.writes(FORBIDS_ENVRC.replace(".envrc", ".git/hooks/2"))
        await engine.approvals.answer(OWNER, card.id, YES)
        events = await finished(engine, record)
    assert resolved(events).reason == "superseded_by_policy"
    assert not (workshop.workspace / ".git").exists()


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_draft_that_is_forbidden_while_it_waits_is_not_applied(
    tmp_path: Path, operator: Operator, restarts: bool
) -> None:
    workshop = workshop_of(tmp_path, operator, calls("shell.run", command="echo x > .envrc; echo y > free"))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        operator.writes(FORBIDS_ENVRC)
        if not restarts:
            await engine.approvals.answer(OWNER, card.id, YES)
            await finished(engine, record)
    workshop.policy = operator.policy()
    async with workshop.open() as engine:
        if restarts:
            await engine.approvals.answer(OWNER, (await question(engine)).id, YES)
        events = await finished(engine, record)
    assert resolved(events).rule == "forbid/no_envrc"
    assert denied(events).error is not None
    assert list(workshop.workspace.iterdir()) == []


async def test_what_a_person_leaves_out_of_a_draft_is_not_judged_again(tmp_path: Path, operator: Operator) -> None:
    workshop = workshop_of(tmp_path, operator, calls("shell.run", command="echo x > .envrc; echo y > free"))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        operator.writes(FORBIDS_ENVRC)
        answer = ApprovalAnswer(decision=Decision.ALLOW, without=(".envrc",))
        await engine.approvals.answer(OWNER, card.id, answer)
        await finished(engine, record)
    assert [each.name for each in workshop.workspace.iterdir()] == ["free"]


async def test_a_call_that_still_asks_or_is_free_by_now_runs(tmp_path: Path, operator: Operator) -> None:
    for number, text in enumerate(("", FORBIDS_SENDING.replace("forbid", "permit"))):
        workshop = workshop_of(tmp_path / str(number), Operator(tmp_path), SENDS)
        async with workshop.open() as engine:
            record = await engine.runs.start(OWNER, ask())
            card = await question(engine)
            operator.writes(text)
            await engine.approvals.answer(OWNER, card.id, YES)
            await finished(engine, record)
        assert len(workshop.executed()) == 1
        (operator.folder / "forbid.cedar").unlink()


async def test_a_tool_that_is_away_leaves_its_question_open(tmp_path: Path, operator: Operator) -> None:
    workshop = workshop_of(tmp_path, operator, SENDS)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await question(engine)
    tools, workshop.tools = workshop.tools, []
    async with workshop.open() as engine:
        card = await question(engine)
        with pytest.raises(Unavailable, match="tool_away"):
            await engine.approvals.answer(OWNER, card.id, YES)
    workshop.tools = tools
    async with workshop.open() as engine:
        await engine.approvals.answer(OWNER, card.id, YES)
        await finished(engine, record)
    assert len(workshop.executed()) == 1


async def test_an_uncertain_call_that_is_forbidden_by_now_is_not_repeated(tmp_path: Path, operator: Operator) -> None:
    workshop = workshop_of(tmp_path, operator, SENDS, calls("mark.send", text="other"))
    record = await lose_a_send(workshop)
    async with workshop.open() as engine:
        await wait_for(engine, record.id, "tool.uncertain")
        listed = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        card = next(each for each in listed if each.kind == "uncertain")
        operator.writes(FORBIDS_SENDING)
        with pytest.raises(Conflict, match="superseded_by_policy"):
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.RETRY))
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.GIVE_UP))
    assert len(workshop.executed()) == 1
