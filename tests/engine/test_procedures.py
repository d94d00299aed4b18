"""Procedures: a sequence of calls that worked in two runs is proposed without its values, and becomes a skill if accepted."""

from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.skills.learned import HomeLearnedSkills
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.core.learning.model import CandidateKind, CandidateStatus
from palyra.core.learning.states import CandidateAction
from palyra.engine.api.candidates import CandidateDecision
from palyra.engine.setup import EngineSettings
from tests.support.asking import says
from tests.support.engines import OWNER, Workshop
from tests.support.lessons import AT_ONCE, candidates, everything, rested, say

pytestmark = pytest.mark.anyio


def working(secret: str) -> Script:
    turns = (
        Turn(calls=(PreparedCall("mark.read", {"text": secret}),)),
        Turn(calls=(PreparedCall("mark.keep", {"text": f"{secret} two"}),)),
        says("Done."),
    )
    return Script(turns=turns, when=secret)


def workshop_at(folder: Path) -> Workshop:
    scripts = [working("alpha"), working("beta"), working("gamma")]
    workshop = Workshop(folder, ScriptedProvider(scripts), EngineSettings(learning=AT_ONCE))
    workshop.skills = FolderSkills(folder, folder / "none")
    workshop.learned_skills = HomeLearnedSkills(folder)
    return workshop


async def test_a_repeated_sequence_is_proposed_and_becomes_a_skill(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path)
    async with workshop.open() as engine:
        await say(engine, "Please do it with alpha")
        await rested(engine)
        (once,) = await everything(engine)
        assert (once.kind, once.status) == (CandidateKind.PROCEDURE, CandidateStatus.SUPPRESSED)
        await say(engine, "Please do it with beta", session_key="t")
        await rested(engine)
        (twice,) = await candidates(engine)
        assert (twice.id, twice.status, len(twice.evidence)) == (once.id, CandidateStatus.PENDING_REVIEW, 2)
        assert "alpha" not in twice.content + str(twice.details)
        shown = await engine.candidates.show(OWNER, twice.id)
        assert any("SKILL.md" in line for line in shown.diff)
        assert {excerpt.text for excerpt in shown.excerpts} == {"mark.read", "mark.keep"}
        assert workshop.skills.offered(()) == ()
        accept = CandidateDecision(action=CandidateAction.ACCEPT)
        accepted = await engine.candidates.decide(OWNER, twice.id, accept, OWNER)
        name = accepted.applied_to.removeprefix("skill:")
        assert [card.name for card in workshop.skills.offered(())] == [name]
        undo = CandidateDecision(action=CandidateAction.UNDO)
        undone = await engine.candidates.decide(OWNER, twice.id, undo, OWNER)
        assert (undone.status, undone.applied_to) == ("undone", "")
        assert workshop.skills.cards(()) == ()
        await say(engine, "Please do it with gamma", session_key="u")
        await rested(engine)
        assert [each.status for each in await everything(engine)] == [CandidateStatus.UNDONE]
