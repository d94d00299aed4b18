"""States and thresholds of candidates: every action has a row or is refused, and taint never applies itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.errors import Conflict
from palyra.core.ids import CandidateId, Principal, RunId, SessionId, StreamId
from palyra.core.learning.identity import candidate_id_of, content_hash, normalise
from palyra.core.learning.model import CandidateEvidence, CandidateKind, CandidateOrigin, CandidateStatus
from palyra.core.learning.schedule import is_sampled
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.learning.states import TRANSITIONS, CandidateAction, next_status
from palyra.core.learning.thresholds import auto_bps, bounded_bps, first_status, is_tainted
from palyra.core.trust import Trust

ID = CandidateId("C" * 26)
ALICE = Principal("user:alice")
SETTINGS = LearningRuntimeConfig()
REACH = [CandidateStatus.SUPPRESSED, CandidateStatus.PENDING_REVIEW, CandidateStatus.ACCEPTED]

kinds = st.sampled_from(CandidateKind)
confidences = st.integers(0, 10_000)
settings = st.builds(
    LearningRuntimeConfig, review_bps=confidences, auto_write_threshold_bps=confidences, auto_apply_bps=confidences
)


@pytest.mark.parametrize("action", CandidateAction)
@pytest.mark.parametrize("status", CandidateStatus)
def test_an_action_follows_its_row_or_is_refused(status: CandidateStatus, action: CandidateAction) -> None:
    wanted = TRANSITIONS.get((status, action))
    if wanted is None:
        with pytest.raises(Conflict, match="candidate_state"):
            next_status(ID, status, action)
    else:
        assert next_status(ID, status, action) is wanted


def test_only_pending_review_leads_to_accepted_and_only_accepted_to_undone() -> None:
    steps = {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after}
    assert {before for before, after in steps if after is CandidateStatus.ACCEPTED} == {CandidateStatus.PENDING_REVIEW}
    assert {before for (before, _), after in TRANSITIONS.items() if after is CandidateStatus.UNDONE} == {
        CandidateStatus.ACCEPTED
    }


@given(st.lists(st.sampled_from(CandidateAction), max_size=20), st.sampled_from(REACH))
def test_what_was_applied_can_be_undone_after_any_history(
    actions: list[CandidateAction], status: CandidateStatus
) -> None:
    for action in actions:
        status = TRANSITIONS.get((status, action), status)
        if status is CandidateStatus.ACCEPTED:
            assert next_status(ID, status, CandidateAction.UNDO) is CandidateStatus.UNDONE


@pytest.mark.parametrize(
    ("kind", "confidence_bps", "status"),
    [
        (CandidateKind.FACT, 7_499, "suppressed"),
        (CandidateKind.FACT, 7_500, "pending_review"),
        (CandidateKind.FACT, 8_999, "pending_review"),
        (CandidateKind.FACT, 9_000, "accepted"),
        (CandidateKind.DECISION, 9_000, "accepted"),
        (CandidateKind.PREFERENCE, 9_499, "pending_review"),
        (CandidateKind.PREFERENCE, 9_500, "accepted"),
        (CandidateKind.PROCEDURE, 9_499, "pending_review"),
        (CandidateKind.PROCEDURE, 9_500, "accepted"),
        (CandidateKind.COMPACTION, 10_000, "pending_review"),
        (CandidateKind.RETIREMENT, 10_000, "pending_review"),
        (CandidateKind.RETIREMENT, 0, "suppressed"),
    ],
)
def test_the_defaults_are_those_of_the_design(kind: CandidateKind, confidence_bps: int, status: str) -> None:
    assert first_status(kind, confidence_bps, False, SETTINGS).value == status


@given(kinds, confidences, settings)
def test_what_is_tainted_never_applies_itself(
    kind: CandidateKind, confidence_bps: int, config: LearningRuntimeConfig
) -> None:
    assert first_status(kind, confidence_bps, True, config) is not CandidateStatus.ACCEPTED


@given(kinds, confidences, confidences, st.booleans(), settings)
def test_a_lower_confidence_never_leads_further(
    kind: CandidateKind, one: int, other: int, is_from_outside: bool, config: LearningRuntimeConfig
) -> None:
    low, high = sorted((one, other))
    reached = [REACH.index(first_status(kind, bps, is_from_outside, config)) for bps in (low, high)]
    assert reached[0] <= reached[1]


@given(kinds, confidences, settings)
def test_nothing_below_the_review_threshold_is_shown_or_applied(
    kind: CandidateKind, confidence_bps: int, config: LearningRuntimeConfig
) -> None:
    status = first_status(kind, confidence_bps, False, config)
    assert (status is CandidateStatus.SUPPRESSED) is (confidence_bps < config.review_bps)
    wanted = auto_bps(kind, config)
    if status is CandidateStatus.ACCEPTED:
        assert wanted is not None
        assert confidence_bps >= wanted


@given(st.sampled_from(Trust), st.lists(st.text(max_size=5), max_size=3))
def test_taint_is_a_source_or_a_trust_below_local(trust: Trust, taint: list[str]) -> None:
    assert is_tainted(trust, tuple(taint)) is (bool(taint) or trust is Trust.EXTERNAL)


@given(st.integers())
def test_confidence_stays_in_its_bounds(given_bps: int) -> None:
    assert 0 <= bounded_bps(given_bps) <= 10_000


@given(st.text(max_size=80))
def test_the_same_words_have_the_same_hash(text: str) -> None:
    assert content_hash(f"  {text.upper().lower()} .") == content_hash(f"{text.upper().lower()}")
    assert normalise(normalise(text)) == normalise(text)


def test_an_id_depends_on_owner_kind_words_evidence_and_origin_alone() -> None:
    session = SessionId(StreamId("S" * 26))

    def named(
        owner: Principal = ALICE, kind: CandidateKind = CandidateKind.FACT, text: str = "The key is A.", seq: int = 3
    ) -> CandidateId:
        evidence = (CandidateEvidence(session_id=session, seqs=(seq, 1)),)
        return candidate_id_of(owner, kind, text, evidence, CandidateOrigin.REFLECTION)

    base = named()
    turned = (CandidateEvidence(session_id=session, seqs=(1, 3)),)
    assert candidate_id_of(ALICE, CandidateKind.FACT, " the  key is a", turned, CandidateOrigin.REFLECTION) == base
    others = {
        named(owner=Principal("user:bob")),
        named(kind=CandidateKind.DECISION),
        named(text="The key is B."),
        named(seq=4),
        candidate_id_of(ALICE, CandidateKind.FACT, "The key is A.", turned, CandidateOrigin.COMPACTION),
    }
    assert len(others | {base}) == 6


@given(st.text(max_size=26), st.floats(0, 1), st.floats(0, 1))
def test_a_run_that_is_sampled_at_a_share_is_sampled_at_every_larger_one(run_id: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert is_sampled(RunId(run_id), small) <= is_sampled(RunId(run_id), large)
    assert is_sampled(RunId(run_id), 1.0)
    assert not is_sampled(RunId(run_id), 0.0)


def test_about_the_share_of_runs_is_sampled() -> None:
    drawn = sum(is_sampled(RunId(f"{number:026}"), 0.25) for number in range(4_000))
    assert 900 < drawn < 1_100
