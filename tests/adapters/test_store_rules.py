"""Rules that every store of the journal shares, without a database: preparing, erasing, checkpoints."""

import pytest
from msgspec.structs import replace

from palyra.adapters.store.checkpoint_drafts import draft_checkpoints, read_checkpoint
from palyra.adapters.store.commit_preparation import COMMIT_EVENTS_MAX, prepare_commit
from palyra.adapters.store.erasure_rules import (
    RANGES_MAX,
    REASON_LENGTH_MAX,
    TapeFacts,
    draft_erasure,
    require_erasable,
)
from palyra.core.checkpoint import FIRST_PREVIOUS, HEADS_MAX, checkpoint_hash
from palyra.core.errors import Corrupt, Invalid, PalyraError
from palyra.core.events.codec import encode_data, encode_erased
from palyra.core.events.system import AdminActed, CheckpointSigned, Erased, Head
from palyra.core.ids import AT_MS_MAX, StreamId, derive_node_id, system_stream
from palyra.ports.journal import Append, Erasure
from tests.support.journals import ALICE, START_MS, FixedSigner, Ids, draft, message_user

IDS = Ids()
SESSION, BRANCH, RUN = IDS.session(), IDS.session(), IDS.run()
SYSTEM = system_stream(derive_node_id(FixedSigner().public_key))
IDLE = TapeFacts(head_seq=9, unfinished_run=None, branches=())
BRANCHED = TapeFacts(head_seq=9, unfinished_run=None, branches=((BRANCH, 4),))


def erasure(seqs: tuple[int, ...] | None = None, stream: StreamId = SESSION, reason: str = "asked") -> Erasure:
    return Erasure(stream=stream, seqs=seqs, reason=reason, actor=ALICE, at_ms=START_MS)


def refusal(wanted: Erasure, tape: TapeFacts, whole: frozenset[StreamId] = frozenset()) -> str | None:
    try:
        require_erasable(wanted, tape, whole)
    except PalyraError as refused:
        return refused.code
    return None


def test_a_system_tape_is_never_erased() -> None:
    assert refusal(erasure(stream=SYSTEM), IDLE) == "system_tape"


def test_an_erasure_needs_a_reason_of_bounded_length() -> None:
    for reason in ("", "x" * (REASON_LENGTH_MAX + 1)):
        assert refusal(erasure(reason=reason), IDLE) == "reason_invalid"
    assert refusal(erasure(reason="x" * REASON_LENGTH_MAX), IDLE) is None


def test_only_what_is_there_is_erased() -> None:
    assert refusal(erasure(), TapeFacts(head_seq=0, unfinished_run=None, branches=())) == "session_unknown"
    for seqs in ((0,), (3, 10)):
        assert refusal(erasure(seqs), IDLE) == "seq_unknown"
    assert refusal(erasure((1, 9)), IDLE) is None


def test_a_session_with_an_unfinished_run_is_not_erased() -> None:
    assert refusal(erasure((1,)), TapeFacts(head_seq=9, unfinished_run=RUN, branches=())) == "run_active"


def test_a_session_that_was_used_meanwhile_is_not_erased_as_idle() -> None:
    used = replace(IDLE, used_at_ms=START_MS)
    assert refusal(replace(erasure(), idle_before_ms=START_MS), used) == "session_used"
    assert refusal(replace(erasure(), idle_before_ms=START_MS + 1), used) is None
    assert refusal(erasure(), used) is None


def test_what_a_branch_shares_goes_only_with_the_branch() -> None:
    assert refusal(erasure(), BRANCHED) == "has_branches"
    assert refusal(erasure((4,)), BRANCHED) == "has_branches"
    assert refusal(erasure((5,)), BRANCHED) is None
    assert refusal(erasure(()), BRANCHED) is None
    assert refusal(erasure(), BRANCHED, frozenset({BRANCH})) is None


def test_an_erasure_is_recorded_in_as_many_events_as_its_ranges_need() -> None:
    drafts = draft_erasure(erasure(), range(1, 2 * RANGES_MAX + 2, 2))
    records = [each.data for each in drafts if isinstance(each.data, Erased)]
    assert [len(record.ranges) for record in records] == [RANGES_MAX, 1]
    assert draft_erasure(erasure(), ()) == []


def test_checkpoints_are_split_and_chained() -> None:
    heads = [Head(stream=StreamId(f"{number:026}"), seq=1, hash="00" * 32) for number in range(HEADS_MAX + 1)]
    drafts = draft_checkpoints(FixedSigner(), None, 7, heads, START_MS)
    first, second = (each.data for each in drafts)
    assert isinstance(first, CheckpointSigned)
    assert isinstance(second, CheckpointSigned)
    assert (first.previous, second.previous) == (FIRST_PREVIOUS, checkpoint_hash(first))
    assert (*first.heads, *second.heads) == tuple(heads)
    assert {first.position, second.position} == {7}
    (third,) = draft_checkpoints(FixedSigner(), second, 9, heads[:1], START_MS)
    assert isinstance(third.data, CheckpointSigned)
    assert third.data.previous == checkpoint_hash(second)


def test_a_checkpoint_that_is_none_is_corrupt() -> None:
    (made,) = draft_checkpoints(FixedSigner(), None, 1, [Head(stream=SYSTEM, seq=1, hash="00" * 32)], START_MS)
    assert read_checkpoint(SYSTEM, encode_data(made.data)) == made.data
    with pytest.raises(Corrupt, match="checkpoint_unreadable"):
        read_checkpoint(SYSTEM, encode_erased("asked"))


def test_a_commit_is_bounded_in_events_time_and_place() -> None:
    many = (message_user("x"),) * (COMMIT_EVENTS_MAX // 2 + 1)
    with pytest.raises(Invalid, match="commit_too_large"):
        prepare_commit([Append(SESSION, 1, many), Append(BRANCH, 1, many)], (), None)
    late = draft(message_user("x").data, at_ms=AT_MS_MAX + 1)
    with pytest.raises(Invalid, match="time_out_of_range"):
        prepare_commit([Append(SESSION, 1, (late,))], (), None)
    with pytest.raises(Invalid, match="event_misplaced"):
        prepare_commit([Append(SESSION, 1, (draft(AdminActed(action="x")),))], (), None)
