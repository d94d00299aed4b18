"""Lift: what a run was given is counted with its outcome, what does not help is to go, and the report adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.events import Draft, Event
from palyra.core.events.model import MemoryRecalled, RecalledItem
from palyra.core.events.run import EndReason, MessageUser, RunDone, RunFailed
from palyra.core.ids import Principal, RunId
from palyra.core.learning.lift import ItemLift, is_correction, report_of, tally, uses_of, why_retire
from palyra.core.learning.model import CandidateStatus, UsedKind, UseOutcome
from palyra.core.learning.observed_run import ObservedRun, observe
from palyra.core.trust import Trust
from tests.support.learning import RUN, SESSION, START_MS, candidate_of, reflection_of, use_of

ALICE = Principal("user:alice")
NAMED = ObservedRun(run_id=RUN, session_id=SESSION, owner=ALICE)
WEEK_MS = 7 * 86_400_000


def event(seq: int, data: object, trust: Trust = Trust.OPERATOR, run_id: RunId = RUN) -> Event:
    draft = Draft(data=data, actor=ALICE, trust=trust, at_ms=START_MS + seq, run_id=run_id)  # type: ignore[arg-type]
    return Event(
        seq=seq,
        position=seq,
        stream=SESSION,
        run_id=run_id,
        type=draft.data.TYPE,
        at_ms=draft.at_ms,
        actor=ALICE,
        trust=trust,
        data=draft.data,
        hash="",
        salt=None,
        digest="",
    )


RECALLED = MemoryRecalled(turn=1, items=(RecalledItem(memory_id="m1", score_bps=9_000, trust=Trust.LOCAL),))
DONE = RunDone(reason=EndReason.FINAL_ANSWER, message="")
FAILED = RunFailed(reason=EndReason.PROVIDER_ERROR, message="")


def seen(*data: object) -> ObservedRun:
    return observe(NAMED, [event(seq, each) for seq, each in enumerate(data, 1)])


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((MessageUser(text="go"), RECALLED, DONE), UseOutcome.HELPED),
        ((MessageUser(text="go"), RECALLED, FAILED), UseOutcome.FAILED),
        ((MessageUser(text="go"), RECALLED, MessageUser(text="No, that is wrong."), DONE), UseOutcome.CORRECTED),
    ],
)
def test_a_recalled_item_counts_with_what_came_of_the_run(events: tuple[object, ...], outcome: UseOutcome) -> None:
    (use,) = uses_of(seen(*events))
    assert (use.kind, use.item_id, use.run_id, use.outcome) == (UsedKind.MEMORY, "m1", RUN, outcome)


def test_a_recalled_item_of_low_trust_lowers_the_trust_of_what_is_found() -> None:
    outside = RecalledItem(memory_id="m2", score_bps=1, trust=Trust.EXTERNAL)
    assert seen(MessageUser(text="go"), MemoryRecalled(turn=1, items=(outside,)), DONE).trust is Trust.EXTERNAL
    assert seen(MessageUser(text="go"), RECALLED, DONE).trust is Trust.LOCAL


@pytest.mark.parametrize("text", ["No, in French.", "that's wrong", "I said March", "Actually, it is 5.", "Nope."])
def test_corrections_are_recognised(text: str) -> None:
    assert is_correction(text)


@pytest.mark.parametrize("text", ["Thanks!", "Now write the next one.", "Nothing else.", "Note that it works.", ""])
def test_other_messages_are_no_corrections(text: str) -> None:
    assert not is_correction(text)


@pytest.mark.parametrize(
    ("uses", "helped", "corrected", "is_retired"),
    [(4, 0, 0, False), (5, 0, 0, True), (5, 1, 0, False), (6, 3, 3, True), (7, 4, 3, False), (20, 18, 2, False)],
)
def test_what_never_helps_or_precedes_corrections_is_to_go(
    uses: int, helped: int, corrected: int, is_retired: bool
) -> None:
    lift = ItemLift(target="memory:m", uses_count=uses, helped_count=helped, corrected_count=corrected)
    assert bool(why_retire(lift)) is is_retired


@given(st.lists(st.sampled_from(UseOutcome), max_size=30))
def test_counts_add_up(outcomes: list[UseOutcome]) -> None:
    lifts = tally([use_of(ALICE, number, outcome=outcome) for number, outcome in enumerate(outcomes)])
    for lift in lifts.values():
        assert lift.uses_count == lift.helped_count + lift.corrected_count + lift.failed_count == len(outcomes)


def test_the_report_tells_junk_uses_and_weeks() -> None:
    now_ms = START_MS + 1_000
    found = [
        candidate_of("a b c", ALICE, status=CandidateStatus.ACCEPTED, applied_to="memory:item"),
        candidate_of("d e f", ALICE, status=CandidateStatus.ACCEPTED, applied_to="memory:other"),
        candidate_of("g h i", ALICE, status=CandidateStatus.REJECTED),
        candidate_of("j k l", ALICE),
    ]
    uses = [use_of(ALICE, 1), use_of(ALICE, 2, outcome=UseOutcome.FAILED)]
    reflections = [
        reflection_of(ALICE, 1, found_count=3, junk_count=1),
        reflection_of(ALICE, 2, at_ms=now_ms - 9 * WEEK_MS),
    ]
    report = report_of(found, uses, reflections, now_ms)
    assert report.counts["accepted"] == 2
    assert (report.junk_bps, report.kept_junk_bps, report.use_bps, report.helped_bps) == (2_000, 3_333, 5_000, 5_000)
    assert len(report.weeks) == 8
    assert (report.weeks[-1].found_count, report.weeks[-1].uses_count, report.weeks[0].uses_count) == (3, 2, 0)
    empty = report_of([], [], [], now_ms)
    assert (empty.junk_bps, empty.use_bps, empty.items) == (None, None, ())
