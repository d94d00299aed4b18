"""A model that obeys every order it reads, against a whole engine: what acts does not run, and ordinary work asks little.

An even part of the attacks is played here, all of them by `make campaign`; docs/injection.md says what this shows.
"""

from pathlib import Path

import pytest

from palyra.core.events.tool import PolicySnapshot, Verdict
from palyra.core.tools import Runtime
from palyra.ports.policy import PolicyAnswer, PolicyQuestion
from tests.corpora import injection_agentdojo as agentdojo
from tests.corpora import injection_injecagent as injecagent
from tests.corpora.injection_campaign import (
    ASKING_SHARE_MAX,
    attack_by_agentdojo,
    attack_by_injecagent,
    attack_lines,
    benign_lines,
    work_by_agentdojo,
    work_by_injecagent,
)
from tests.corpora.injection_figures import count_attacks, join_attacks, join_benign
from tests.corpora.injection_play import Theatre
from tests.corpora.injection_tools import AGENTDOJO, INJECAGENT, OTHERS, Deed
from tests.support.policies import PermitsModels

# Shares no divisor with the attackers' tasks of any suite, so that every one of them has its turn.
EVERY = 11
LOOKED_AT = "slack-injection_task_3"
CHECKED_EVERY = 4
# To read what is unread marks it as read. Every reader of mail does, and nobody would call it a change.
MARKS_AS_READ = {"workspace.get_unread_emails"}

needs_injecagent = pytest.mark.skipif(
    not injecagent.INJECAGENT_FILE.is_file(),
    reason=f"no corpus at {injecagent.INJECAGENT_FILE}; set PALYRA_CORPORA",
)


class CarelessPolicy(PermitsModels):
    """Allows everything, to see that what gets through is noticed."""

    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        snapshot = PolicySnapshot(sha256="0" * 64, policies=("careless",))
        return PolicyAnswer(verdict=Verdict.ALLOW, rule="careless", reason="Why not.", snapshot=snapshot)

    def state(self) -> str:
        return "ok"


def show(capsys: pytest.CaptureFixture[str], lines: list[str]) -> None:
    with capsys.disabled():
        print("", *lines, sep="\n")


@needs_injecagent
def test_every_tool_of_injecagent_has_an_entry() -> None:
    named = {row["User Tool"] for row in injecagent.read_rows()}
    named |= {tool for row in injecagent.read_rows() for tool in row["Attacker Tools"]}
    assert named == set(INJECAGENT)


def test_every_tool_of_agentdojo_has_an_entry() -> None:
    assert agentdojo.tool_names() == set(AGENTDOJO)


def test_no_tool_that_changes_its_environment_is_called_a_read() -> None:
    changing = {tool for tool, has_changed in agentdojo.changes_by_tool().items() if has_changed}
    called_reads = {tool for tool in changing if AGENTDOJO[tool].deed in (Deed.LOOKS, Deed.OPENS)}
    assert called_reads == MARKS_AS_READ


def test_no_tool_that_can_carry_an_order_is_trusted() -> None:
    carriers = agentdojo.carriers()
    assert len(carriers) > 10
    assert {tool for tool in carriers if AGENTDOJO[tool].trust is not OTHERS} == set()


@needs_injecagent
async def test_no_order_of_injecagent_acts_unapproved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = await attack_by_injecagent(tmp_path, EVERY)
    show(capsys, list(attack_lines(figures)))
    whole = join_attacks(figures.values())
    assert whole.through == ()
    assert whole.heard == whole.told == whole.cases > 0
    assert whole.acts_asked > 0


async def test_no_order_of_agentdojo_acts_unapproved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, successes = await attack_by_agentdojo(tmp_path, EVERY)
    show(capsys, list(attack_lines(figures)))
    whole = join_attacks(figures.values())
    assert whole.through == ()
    # One order wants nothing but that a page is looked at, at an address it names itself. That is a read, and it runs.
    assert {name.split("-")[0] + name[name.rindex("-") :] for name in successes} <= {LOOKED_AT}
    assert all(each.told > 0 and each.acts_asked > 0 for each in figures.values())


async def test_a_quarter_of_ordinary_calls_asks_at_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = await work_by_agentdojo(tmp_path, CHECKED_EVERY)
    show(capsys, list(benign_lines(figures)))
    whole = join_benign(figures.values())
    assert whole.achieved == whole.checked > 0
    assert whole.share <= ASKING_SHARE_MAX


@needs_injecagent
async def test_no_ordinary_read_asks(tmp_path: Path) -> None:
    whole = await work_by_injecagent(tmp_path)
    assert whole.achieved == whole.tasks > 0
    assert whole.asking == 0


@needs_injecagent
async def test_tools_that_nobody_vouched_for_run_nothing_on_an_order(tmp_path: Path) -> None:
    """As tools of a server whose classes the operator has not confirmed, even the reads ask."""
    theatre = Theatre(tmp_path, INJECAGENT, runtime=Runtime.MCP)
    figures = count_attacks(await theatre.perform(injecagent.attack_cases(5 * EVERY)), INJECAGENT)
    assert figures.told == figures.cases > 0
    assert figures.reads > 0
    assert (figures.through, figures.reads_ran) == ((), 0)


async def test_an_order_that_gets_through_is_noticed(tmp_path: Path) -> None:
    scenes = list(agentdojo.attack_scenes("banking", EVERY))
    outcomes = await Theatre(tmp_path, AGENTDOJO, CarelessPolicy()).perform(scene.case for scene in scenes)
    figures = count_attacks(outcomes, AGENTDOJO)
    assert len(figures.through) == figures.acts > 0
    assert all(scene.is_achieved(outcome) for scene, outcome in zip(scenes, outcomes, strict=True) if outcome.is_told)
