"""Lift in an engine: an opened skill is counted with what came of its run, and one that misleads is proposed to go."""

from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.adapters.tools.skill_open import SkillOpen
from palyra.core.learning.model import CandidateKind, CandidateStatus, UseOutcome
from palyra.core.learning.states import CandidateAction
from palyra.core.skills import SkillStatus
from palyra.engine.api.candidates import CandidateDecision
from palyra.engine.setup import EngineSettings
from tests.support.asking import calls, says
from tests.support.engines import OWNER, Workshop
from tests.support.lessons import AT_ONCE, candidates, rested, say

pytestmark = pytest.mark.anyio

SKILL = "---\nname: greeter\ndescription: Greets people. Use it to greet.\n---\nSay hello.\n"


def workshop_at(folder: Path) -> Workshop:
    file = folder / "skills" / "greeter" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(SKILL)
    scripts = [
        Script(turns=(calls("skill.open", name="greeter"), says("Hello.")), when="greet"),
        Script(turns=(says("Yes."),)),
    ]
    workshop = Workshop(folder, ScriptedProvider(scripts), EngineSettings(learning=AT_ONCE))
    workshop.skills = FolderSkills(folder, folder / "none")
    workshop.tools.append(SkillOpen(workshop.skills))
    return workshop


async def test_a_skill_that_is_corrected_again_and_again_is_proposed_to_go(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path)
    async with workshop.open() as engine:
        await say(engine, "Please greet the guests")
        await rested(engine)
        (use,) = await engine.candidates.views.uses(OWNER, 0, 9)
        assert (use.item_id, use.outcome) == ("greeter", UseOutcome.HELPED)
        await say(engine, "No, that is wrong.")
        await rested(engine)
        (use,) = await engine.candidates.views.uses(OWNER, 0, 9)
        assert use.outcome is UseOutcome.CORRECTED
        for _ in range(2):
            await say(engine, "Please greet the guests")
            await rested(engine)
            await say(engine, "No, that is wrong.")
            await rested(engine)
        (found,) = await candidates(engine)
        assert (found.kind, found.status) == (CandidateKind.RETIREMENT, CandidateStatus.PENDING_REVIEW)
        assert found.details["target"] == "skill:greeter"
        assert "3 of 3 runs" in found.details["why"]
        accept, undo = (CandidateDecision(action=each) for each in (CandidateAction.ACCEPT, CandidateAction.UNDO))
        accepted = await engine.candidates.decide(OWNER, found.id, accept, OWNER)
        assert accepted.applied_to == "skill:greeter"
        assert [card.status for card in workshop.skills.cards(())] == [SkillStatus.DISABLED]
        await engine.candidates.decide(OWNER, found.id, undo, OWNER)
        assert [card.status for card in workshop.skills.cards(())] == [SkillStatus.ACTIVE]
        report = await engine.candidates.report(OWNER)
    assert [(each.target, each.uses_count, each.corrected_count) for each in report.items] == [("skill:greeter", 3, 3)]
