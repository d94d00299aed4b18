"""An answer chooses what its question offers: anything else is refused, and the question stays open."""

from pathlib import Path

import msgspec
import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.cli.acp.question import shown_call
from palyra.core.errors import Conflict, Invalid
from palyra.core.events.tool import ApprovalStatus, Decision, Outcome, Scope
from palyra.engine.api.requests import ApprovalAnswer
from tests.engine.test_drafts import outcomes, question, shop
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio

YES = ApprovalAnswer(decision=Decision.ALLOW)


@pytest.mark.parametrize(
    "answer",
    [
        ApprovalAnswer(decision=Decision.ALLOW, option=1),
        ApprovalAnswer(decision=Decision.ALLOW, option=-1),
        ApprovalAnswer(decision=Decision.ALLOW, option=63, scope=Scope.TIMEBOXED),
        ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION),
        ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.TIMEBOXED, ttl_s=3600),
    ],
)
async def test_a_yes_to_changes_for_longer_than_was_offered_is_refused(tmp_path: Path, answer: ApprovalAnswer) -> None:
    """A number of no option ended the session's loop; a scope was answered with “allowed”, and no grant was made."""
    workshop = shop(tmp_path, "echo x > .envrc")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        with pytest.raises(Invalid, match=r"option_unknown|scope_not_offered"):
            await engine.approvals.answer(OWNER, card.id, answer)
        assert (await engine.approvals.get(OWNER, card.id)).status == ApprovalStatus.PENDING.value
        await engine.approvals.answer(OWNER, card.id, YES)
        assert outcomes(await finished(engine, record))[0].outcome is Outcome.OK


async def test_no_path_is_left_out_of_a_call(tmp_path: Path) -> None:
    """Who allowed a call but for one path was told that it is allowed, and all of it was done."""
    async with shop(tmp_path, "echo x > there", network=True).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        with pytest.raises(Invalid, match="no path can be left out"):
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, without=("there",)))
        assert (await engine.approvals.get(OWNER, card.id)).status == ApprovalStatus.PENDING.value
        await engine.runs.cancel(OWNER, record.id)


async def test_what_a_program_read_its_person_has_not(tmp_path: Path) -> None:
    """A program reads every page with its person's token, and then a yes of the person counted unread."""
    long = '(for n in $(seq 900); do echo "# a comment that says nothing at all $n"; done; echo evil) > .envrc'
    async with shop(tmp_path, long).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert card.is_cut
        await engine.approvals.full(OWNER, card.id, 0, client="client:ci")
        with pytest.raises(Conflict, match="not_shown"):
            await engine.approvals.answer(OWNER, card.id, YES)
        await engine.approvals.full(OWNER, card.id, 0)
        await engine.approvals.answer(OWNER, card.id, YES)
        assert outcomes(await finished(engine, record))[0].outcome is Outcome.OK


@pytest.mark.parametrize("count", [1, 2])
async def test_a_call_whose_preview_is_cut_is_read_before_it_is_allowed(tmp_path: Path, count: int) -> None:
    """Only cards of changes were known as cut: the end of a hook that fs.write writes was allowed unread."""
    hook = "# a comment that says nothing at all\n" * 600 + "touch pwned\n"
    short = calls("fs.write", path=".githooks/commit-msg", content="exit 0\n")
    long = calls("fs.write", path=".githooks/pre-commit", content=hook)
    asked = Turn(calls=(*short.calls, *long.calls)[2 - count :])
    workshop = Workshop(tmp_path, [Script(turns=(asked, says("Done.")))])
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        card = await question(engine)
        assert (card.count, card.is_cut) == (count, True)
        with pytest.raises(Conflict, match="not_shown"):
            await engine.approvals.answer(OWNER, card.id, YES)
        page = await engine.approvals.full(OWNER, card.id, 0)
        assert "touch pwned" in page.text
        assert "touch pwned" in str(shown_call({**msgspec.to_builtins(card), "preview": page.text})["content"])
        await engine.approvals.answer(OWNER, card.id, YES)
        assert {each.outcome for each in outcomes(await finished(engine, record))} == {Outcome.OK}
