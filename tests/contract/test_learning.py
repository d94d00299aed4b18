"""What every store promises of learning: the same find twice is one, one decision wins, tables are bounded (L11)."""

import pytest
from msgspec.structs import replace

from palyra.core.errors import Conflict
from palyra.core.ids import RunId, StreamId
from palyra.core.learning.identity import content_hash
from palyra.core.learning.model import CandidateKind, CandidateStatus, UsedKind, UseOutcome
from palyra.core.writes import DecideCandidate, DropCandidates, PutCandidate, RecordReflection, RecordUse, Write
from palyra.ports.journal import Append, Erasure
from palyra.ports.learning import CandidateFilter
from tests.contract.conftest import Store
from tests.support.journals import ALICE, BOB, Ids, session_created
from tests.support.learning import SESSION, START_MS, candidate_of, reflection_of, use_of

pytestmark = pytest.mark.anyio

FACT = candidate_of("The branch is called stable.", ALICE)


async def test_a_candidate_comes_back_as_it_was_stored_and_twice_is_once(store: Store) -> None:
    opened = await store.open()
    await opened.journal.commit([], [PutCandidate(FACT)])
    await opened.journal.commit([], [PutCandidate(replace(FACT, content="another", confidence_bps=1))])
    opened = await store.reopen()
    assert await opened.learning.candidate(FACT.id, ALICE) == FACT
    assert await opened.learning.candidate(FACT.id, BOB) is None
    assert await opened.learning.candidate(FACT.id, None) == FACT


async def test_of_two_decisions_on_the_same_revision_one_wins(store: Store) -> None:
    opened = await store.open()
    await opened.journal.commit([], [PutCandidate(FACT)])
    accepted = replace(FACT, status=CandidateStatus.ACCEPTED, revision=2)
    rejected = replace(FACT, status=CandidateStatus.REJECTED, revision=2)
    await opened.journal.commit([], [DecideCandidate(accepted)])
    with pytest.raises(Conflict, match="lease_lost"):
        await opened.journal.commit([], [DecideCandidate(rejected)])
    assert await opened.learning.candidate(FACT.id, ALICE) == accepted


async def test_lists_are_by_owner_status_and_kind_and_leave_suppressed_ones_out(store: Store) -> None:
    opened = await store.open()
    hidden = candidate_of("Perhaps so.", ALICE, status=CandidateStatus.SUPPRESSED)
    wish = candidate_of("Short answers.", ALICE, kind=CandidateKind.PREFERENCE)
    of_bob = candidate_of("Bob's own.", BOB)
    await opened.journal.commit([], [PutCandidate(each) for each in (FACT, hidden, wish, of_bob)])
    views = opened.learning
    assert {each.id for each in await views.list_candidates(ALICE, CandidateFilter())} == {FACT.id, wish.id}
    only_hidden = await views.list_candidates(ALICE, CandidateFilter(status=CandidateStatus.SUPPRESSED))
    assert only_hidden == (hidden,)
    assert await views.list_candidates(ALICE, CandidateFilter(kind=CandidateKind.PREFERENCE)) == (wish,)
    assert len(await views.list_candidates(None, CandidateFilter())) == 3
    first, second = await views.list_candidates(ALICE, CandidateFilter())
    assert await views.list_candidates(ALICE, CandidateFilter(limit=1)) == (first,)
    assert await views.list_candidates(ALICE, CandidateFilter(after=first.id)) == (second,)
    counts = await views.count_candidates(ALICE)
    assert counts == {CandidateStatus.PENDING_REVIEW: 2, CandidateStatus.SUPPRESSED: 1}


async def test_the_same_words_are_found_whatever_their_case_and_whoever_else_said_them(store: Store) -> None:
    opened = await store.open()
    of_bob = candidate_of(FACT.content, BOB)
    await opened.journal.commit([], [PutCandidate(FACT), PutCandidate(of_bob)])
    same = content_hash("  the branch is CALLED stable")
    assert await opened.learning.same_content(ALICE, CandidateKind.FACT, same) == (FACT,)
    assert await opened.learning.same_content(ALICE, CandidateKind.DECISION, same) == ()


async def test_a_document_has_its_accepted_candidates_alone(store: Store) -> None:
    opened = await store.open()
    inside = candidate_of("In.", ALICE, details={"document": "/w"}, status=CandidateStatus.ACCEPTED)
    waiting = candidate_of("Waits.", ALICE, details={"document": "/w"})
    await opened.journal.commit([], [PutCandidate(inside), PutCandidate(waiting), PutCandidate(FACT)])
    assert await opened.learning.candidates_in("/w", CandidateKind.FACT) == (inside,)
    assert await opened.learning.candidates_in("", CandidateKind.FACT) == ()


async def test_the_oldest_settled_candidates_are_dropped_and_open_ones_stay(store: Store) -> None:
    opened = await store.open()
    kept = [
        candidate_of(f"pending {number}", ALICE, updated_at_ms=START_MS + number, status=status)
        for number, status in enumerate((CandidateStatus.PENDING_REVIEW, CandidateStatus.ACCEPTED))
    ]
    settled = [
        candidate_of(f"old {number}", ALICE, updated_at_ms=START_MS + 10 + number, status=CandidateStatus.REJECTED)
        for number in range(4)
    ]
    of_bob = candidate_of("Bob's", BOB, status=CandidateStatus.REJECTED)
    await opened.journal.commit([], [PutCandidate(each) for each in (*kept, *settled, of_bob)])
    await opened.journal.commit([], [DropCandidates(ALICE, 3)])
    left = {each.id for each in await opened.learning.list_candidates(ALICE, CandidateFilter())}
    assert left == {kept[0].id, kept[1].id, settled[3].id}
    await opened.journal.commit([], [DropCandidates(ALICE, 0)])
    assert len(await opened.learning.list_candidates(ALICE, CandidateFilter())) == 2
    assert len(await opened.learning.list_candidates(BOB, CandidateFilter())) == 1


async def test_a_run_counts_an_item_once_and_uses_are_bounded(store: Store) -> None:
    opened = await store.open()
    first = use_of(ALICE, 1)
    corrected = replace(first, outcome=UseOutcome.CORRECTED)
    skill = use_of(ALICE, 1, kind=UsedKind.SKILL)
    await opened.journal.commit([], [RecordUse(each, 10) for each in (first, corrected, skill)])
    assert set(await opened.learning.uses(ALICE, 0, 10)) == {corrected, skill}
    await opened.journal.commit([], [RecordUse(use_of(ALICE, number), 3) for number in range(2, 8)])
    assert [use.run_id for use in await opened.learning.uses(ALICE, 0, 10)] == [f"{number:026}" for number in (7, 6, 5)]
    assert await opened.learning.uses(BOB, 0, 10) == ()
    assert len(await opened.learning.uses(ALICE, START_MS + 7, 10)) == 1


async def test_a_run_is_reflected_on_once_and_the_session_knows_when_a_model_was_asked(store: Store) -> None:
    opened = await store.open()
    asked, by_rules = reflection_of(ALICE, 1), reflection_of(ALICE, 2, by="rules")
    await opened.journal.commit([], [RecordReflection(each, 10) for each in (asked, asked, by_rules)])
    assert await opened.learning.last_reflection(SESSION, asked.run_id) == (asked, asked.at_ms)
    assert await opened.learning.last_reflection(SESSION, RunId("x")) == (None, asked.at_ms)
    assert await opened.learning.reflections(ALICE, 0, 10) == (by_rules, asked)
    await opened.journal.commit([], [RecordReflection(reflection_of(ALICE, number), 2) for number in range(3, 6)])
    assert len(await opened.learning.reflections(ALICE, 0, 10)) == 2
    assert await opened.learning.reflections(BOB, 0, 10) == ()


async def test_erasing_a_session_erases_what_was_learned_from_it(store: Store) -> None:
    opened = await store.open()
    session_id = Ids().session()
    drafts = (session_created(),)
    of_session = replace(FACT, session_id=session_id)
    other = candidate_of("From elsewhere.", ALICE)
    use = use_of(ALICE, 1, session_id=session_id)
    writes: list[Write] = [PutCandidate(of_session), PutCandidate(other), RecordUse(use, 9)]
    await opened.journal.commit([Append(StreamId(session_id), 0, drafts)], writes)
    erasure = Erasure(stream=session_id, seqs=None, reason="deleted", actor=ALICE, at_ms=START_MS)
    await opened.journal.erase([erasure])
    assert await opened.learning.candidate(of_session.id, None) is None
    assert await opened.learning.candidate(other.id, None) == other
    assert await opened.learning.uses(ALICE, 0, 10) == ()
