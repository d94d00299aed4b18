"""What every store promises about erasing: what may go, what stays, and that it is on record."""

import pytest
from msgspec.structs import replace

from palyra.core.errors import PalyraError
from palyra.core.events import Draft, ErasedData, Event
from palyra.core.events.session import SessionLabelled
from palyra.core.events.system import Erased, SeqRange
from palyra.core.ids import ArtifactId, SessionId, StreamId, derive_node_id, system_stream
from palyra.core.trust import Trust
from palyra.core.writes import LinkArtifact
from palyra.ports.journal import Append, Erasure, Journal
from tests.contract.conftest import Opened, Store
from tests.support.journals import (
    ALICE,
    START_MS,
    FixedSigner,
    Ids,
    message_user,
    run_accepted,
    run_cycle,
    run_started,
    session_branched,
    session_created,
)

pytestmark = pytest.mark.anyio

SYSTEM = system_stream(derive_node_id(FixedSigner().public_key))


def erasure(stream: StreamId, *seqs: int, reason: str = "asked") -> Erasure:
    return Erasure(stream=stream, seqs=seqs or None, reason=reason, actor=ALICE, at_ms=START_MS)


async def new_session(journal: Journal, ids: Ids, key: str | None = None) -> tuple[SessionId, tuple[Event, ...]]:
    session = ids.session()
    drafts = (session_created(key=key, label="private"), *run_cycle(ids.run()))
    return session, await journal.commit([Append(session, 0, drafts)])


async def refusal(journal: Journal, *erasures: Erasure) -> str:
    before = await journal.read_all(0, 1_000)
    with pytest.raises(PalyraError) as caught:
        await journal.erase(erasures)
    assert await journal.read_all(0, 1_000) == before
    return caught.value.code


async def test_erased_events_keep_their_place_and_lose_their_text(journal: Journal, ids: Ids) -> None:
    session, before = await new_session(journal, ids)
    await journal.erase([erasure(session, 3, 12)])
    after = await journal.read(session, 0, 100)
    assert [event.seq for event in after if isinstance(event.data, ErasedData)] == [3, 12]
    for old, new in zip(before, after, strict=True):
        assert (new.type, new.hash, new.digest, new.position) == (old.type, old.hash, old.digest, old.position)
        assert new == old or (new.data, new.salt) == (ErasedData(erased="asked"), None)


async def test_an_erasure_is_recorded_on_the_system_tape(journal: Journal, ids: Ids) -> None:
    session, _ = await new_session(journal, ids)
    (event,) = await journal.erase([erasure(session, 3, 4, 5, 9)])
    assert event.stream == SYSTEM
    ranges = (SeqRange(first=3, last=5), SeqRange(first=9, last=9))
    assert event.data == Erased(stream=session, ranges=ranges, reason="asked")
    assert await journal.read(SYSTEM, 0, 10) == (event,)


async def test_what_was_erased_before_is_passed_over(journal: Journal, ids: Ids) -> None:
    session, _ = await new_session(journal, ids)
    await journal.erase([erasure(session, 3)])
    (event,) = await journal.erase([erasure(session, 2, 3, 4, reason="again")])
    assert isinstance(event.data, Erased)
    assert event.data.ranges == (SeqRange(first=2, last=2), SeqRange(first=4, last=4))
    assert (await journal.read(session, 2, 1))[0].data == ErasedData(erased="asked")
    assert await journal.erase([erasure(session, 2, 3, 4)]) == ()


async def test_rows_are_folded_again_without_the_erased_text(opened: Opened, ids: Ids) -> None:
    session, _ = await new_session(opened.journal, ids, key="k")
    run = (await opened.runs.runs(session, "", 10))[0]
    await opened.journal.erase([erasure(session)])
    row = await opened.sessions.session(session, None)
    assert row is not None
    assert (row.owner, row.key, row.label, row.is_erased) == ("", None, None, True)
    assert await opened.sessions.session(session, ALICE) is None
    assert await opened.sessions.session_by_key("k", ALICE) is None
    after = await opened.runs.run(run.id, None)
    assert after is not None
    assert (after.state, after.input_tokens) == (run.state, 0)
    assert await opened.runs.usage(run.id) == ()


async def test_a_key_that_was_erased_is_free_again(opened: Opened, ids: Ids) -> None:
    session, _ = await new_session(opened.journal, ids, key="k")
    await opened.journal.erase([erasure(session)])
    other, _ = await new_session(opened.journal, ids, key="k")
    found = await opened.sessions.session_by_key("k", ALICE)
    assert found is not None
    assert found.id == other


async def test_a_tape_goes_on_after_an_erasure(store: Store, ids: Ids) -> None:
    journal = (await store.open()).journal
    session, events = await new_session(journal, ids)
    await journal.erase([erasure(session, 3)])
    await journal.commit([Append(session, len(events), (message_user("on"), *run_cycle(ids.run())))])
    journal = (await store.reopen()).journal
    assert len(await journal.read(session, 0, 100)) == len(events) + 14


async def test_nothing_is_erased_while_a_run_has_not_ended(journal: Journal, ids: Ids) -> None:
    session, run = ids.session(), ids.run()
    await journal.commit([Append(session, 0, (session_created(), run_accepted(run), run_started(run)))])
    assert await refusal(journal, erasure(session)) == "run_active"
    assert await refusal(journal, erasure(session, 1)) == "run_active"


async def test_a_parent_is_erased_whole_only_with_its_branches(journal: Journal, ids: Ids) -> None:
    parent, events = await new_session(journal, ids)
    branch = ids.session()
    await journal.commit([Append(branch, 0, (session_branched(events[5]), message_user("branched")))])
    assert await refusal(journal, erasure(parent)) == "has_branches"
    assert await refusal(journal, erasure(parent), erasure(branch, 1)) == "has_branches"
    assert len(await journal.erase([erasure(parent), erasure(branch)])) == 2
    assert all(isinstance(event.data, ErasedData) for event in await journal.read(branch, 0, 10))


async def test_a_branch_of_a_branch_belongs_to_the_family_too(journal: Journal, ids: Ids) -> None:
    parent, events = await new_session(journal, ids)
    branch, leaf = ids.session(), ids.session()
    (first,) = await journal.commit([Append(branch, 0, (session_branched(events[5]),))])
    await journal.commit([Append(leaf, 0, (session_branched(first),))])
    assert await refusal(journal, erasure(parent), erasure(branch)) == "has_branches"
    assert len(await journal.erase([erasure(parent), erasure(branch), erasure(leaf)])) == 3


async def test_only_what_a_branch_does_not_share_is_erased_without_it(journal: Journal, ids: Ids) -> None:
    parent, events = await new_session(journal, ids)
    await journal.commit([Append(ids.session(), 0, (session_branched(events[5]),))])
    assert await refusal(journal, erasure(parent, 6)) == "has_branches"
    assert await refusal(journal, erasure(parent, 3, 9)) == "has_branches"
    assert len(await journal.erase([erasure(parent, 7, 8)])) == 1


async def test_a_branch_is_erased_without_its_parent(journal: Journal, ids: Ids) -> None:
    parent, events = await new_session(journal, ids)
    branch = ids.session()
    await journal.commit([Append(branch, 0, (session_branched(events[5]),))])
    await journal.erase([erasure(branch)])
    assert not any(isinstance(event.data, ErasedData) for event in await journal.read(parent, 0, 100))
    await journal.erase([erasure(parent)])


async def test_what_cannot_be_erased_is_refused(journal: Journal, ids: Ids) -> None:
    session, _ = await new_session(journal, ids)
    await journal.checkpoint()
    assert await refusal(journal, erasure(SYSTEM)) == "system_tape"
    assert await refusal(journal, erasure(ids.session())) == "session_unknown"
    assert await refusal(journal, erasure(session, 15)) == "seq_unknown"
    assert await refusal(journal, erasure(session, 0)) == "seq_unknown"
    assert await refusal(journal, erasure(session, 2), erasure(session, 99)) == "seq_unknown"
    assert await refusal(journal, erasure(session, reason="")) == "reason_invalid"


async def test_erasing_nothing_changes_nothing(journal: Journal, ids: Ids) -> None:
    assert await journal.erase([]) == ()
    assert await journal.read_all(0, 10) == ()


async def test_a_checkpoint_after_an_erasure_signs_its_record(journal: Journal, ids: Ids) -> None:
    session, _ = await new_session(journal, ids)
    await journal.checkpoint()
    await journal.erase([erasure(session)])
    assert len(await journal.checkpoint()) == 1


async def test_a_body_that_only_an_erased_event_named_loses_its_link(opened: Opened, ids: Ids) -> None:
    journal, session = opened.journal, ids.session()
    gone, kept = ArtifactId("a" * 64), ArtifactId("b" * 64)
    texts = [f"see {gone} and {kept}", f"see {kept}"]
    links = [LinkArtifact(artifact, session, 5, "text/plain", START_MS) for artifact in (gone, kept)]
    await journal.commit([Append(session, 0, (session_created(), *(message_user(text) for text in texts)))], links)
    await journal.erase([erasure(session, 2)])
    assert await opened.state.artifacts_of(session) == (kept,)


async def test_an_idle_session_that_was_used_meanwhile_stays_whole(journal: Journal, ids: Ids) -> None:
    idle, before = await new_session(journal, ids)
    used, _ = await new_session(journal, ids)
    last_ms = before[-1].at_ms
    label = Draft(data=SessionLabelled(label="new"), actor=ALICE, trust=Trust.OPERATOR, at_ms=last_ms + 10)
    await journal.commit([Append(used, len(before), (label,))])
    both = [replace(erasure(stream), idle_before_ms=last_ms + 5) for stream in (idle, used)]
    assert await refusal(journal, *both) == "session_used"
    await journal.erase(both[:1])
    assert all(isinstance(event.data, ErasedData) for event in await journal.read(idle, 0, 100))
