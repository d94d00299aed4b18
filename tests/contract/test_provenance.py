"""What every store promises of provenance: a session's taint and tainted files, found again, rebuilt, and erased with it."""

import pytest
from msgspec.structs import replace

from palyra.core.drafts.judge import TAINTED_BYTES_MAX
from palyra.core.errors import Conflict
from palyra.core.events import Draft
from palyra.core.events.draft import DraftJudged
from palyra.core.events.session import Parent, SessionBranched, SessionReset, SourceTrusted, TaintSource
from palyra.core.events.tool import FileBytes, Outcome, ToolFinished, ToolJudged, Verdict
from palyra.core.file_sets import pack_files
from palyra.core.ids import CallId, EffectId, SessionId
from palyra.core.taint import UNNAMED, decode_taint, labels
from palyra.core.trust import Trust
from palyra.ports.journal import Append, Erasure
from tests.contract.conftest import Opened, Store
from tests.support.journals import ALICE, START_MS, Ids, draft, session_created

pytestmark = pytest.mark.anyio

NOTES = FileBytes(root="/w", path="notes.md", sha256="ab" * 32, taint=("http:a",))


def met(source: str, *written: FileBytes) -> Draft:
    finished = ToolFinished(
        call_id=CallId("c1"),
        effect_id=EffectId("e1"),
        outcome=Outcome.OK,
        error=None,
        attestation=None,
        source=source,
        tool="http.fetch",
        written=written,
    )
    return replace(draft(finished), trust=Trust.EXTERNAL)


def erasure(session: SessionId, seqs: tuple[int, ...] | None) -> Erasure:
    return Erasure(stream=session, seqs=seqs, reason="delete", actor=ALICE, at_ms=START_MS)


async def taint_in(opened: Opened, session: SessionId) -> tuple[str, ...]:
    row = await opened.provenance.taint(session)
    return labels(decode_taint(row.sources)) if row is not None else ()


async def begin(opened: Opened, session: SessionId, *drafts: Draft) -> None:
    await opened.journal.commit([Append(session, 0, (session_created(), *drafts))])


async def test_taint_of_a_session_is_found_after_reopening(store: Store, ids: Ids) -> None:
    opened, session, other = await store.open(), ids.session(), ids.session()
    await begin(opened, session, met("http:a"), met("http:b"), draft(SourceTrusted(source="http:a")))
    await begin(opened, other)
    opened = await store.reopen()
    assert await taint_in(opened, session) == ("http:b",)
    assert await opened.provenance.taint(other) is None
    await opened.journal.commit([Append(session, 4, (draft(SessionReset()), met("http:c")))])
    assert await taint_in(opened, session) == ("http:c",)


async def test_branch_begins_with_the_taint_it_is_given(store: Store, ids: Ids) -> None:
    opened, session, branch = await store.open(), ids.session(), ids.session()
    await begin(opened, session, met("http:a"))
    parent = Parent(session_id=session, seq=2, hash=(await opened.journal.read(session, 1, 1))[0].hash)
    inherited = (TaintSource(source="http:a", since_seq=2),)
    opening = SessionBranched(owner=ALICE, agent="main", parent=parent, taint=inherited)
    await opened.journal.commit([Append(branch, 0, (draft(opening),))])
    assert await taint_in(opened, branch) == ("http:a",)


async def test_tainted_bytes_are_found_at_their_place_alone(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    other = replace(NOTES, path="b/other.md")
    clean = replace(NOTES, path="clean.md", taint=())
    await begin(opened, session, met("http:a", NOTES, other, clean), met("http:a", NOTES))
    opened = await store.reopen()
    row = await opened.provenance.tainted_file("/w/notes.md", NOTES.sha256)
    assert row is not None
    assert (row.session_id, row.sources, row.seq) == (session, '["http:a"]', 2)
    assert await opened.provenance.tainted_file("/w/b/other.md", NOTES.sha256) is not None
    assert await opened.provenance.tainted_file("/w/clean.md", NOTES.sha256) is None
    assert await opened.provenance.tainted_file("/w/notes.md", "cd" * 32) is None


async def test_verdict_tells_of_bytes_before_they_are_written(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    verdict = ToolJudged(
        call_id=CallId("c1"), verdict=Verdict.ALLOW, rule="r", reason="", taint=("http:a",), writes=(NOTES,)
    )
    assert await opened.provenance.tainted_file("/w/notes.md", NOTES.sha256) is None
    await begin(opened, session, draft(verdict))
    assert await opened.provenance.tainted_file("/w/notes.md", NOTES.sha256) is not None
    await opened.journal.close()
    again = await store.open()
    assert await again.provenance.tainted_file("/w/notes.md", NOTES.sha256) is not None


async def test_workspace_is_tainted_by_any_file_below_it(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    assert not await opened.provenance.taints_workspace("/w")
    await begin(opened, session, met("http:a", replace(NOTES, path="a/b/c.md")))
    tainted = [root for root in ("/", "/w", "/w/", "/w/a", "/w/a/b") if await opened.provenance.taints_workspace(root)]
    assert tainted == ["/", "/w", "/w/", "/w/a", "/w/a/b"]
    clean = [root for root in ("/v", "/w/a/b/c", "/w2", "/w/b") if await opened.provenance.taints_workspace(root)]
    assert clean == []


async def test_tainted_paths_are_found_whatever_lies_there_and_folders_by_what_is_below(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    deep = replace(NOTES, path="a/b/c.md")
    clean = replace(NOTES, path="clean.md", taint=())
    await begin(opened, session, met("http:a", NOTES, replace(NOTES, sha256="cd" * 32), deep, clean))
    opened = await store.reopen()

    async def found(*paths: str) -> list[str]:
        return [row.path for row in await opened.provenance.tainted_paths(paths)]

    assert await found() == []
    assert await found("/w/notes.md", "/w/clean.md", "/w/a", "/w/note", "/w/notes.md.bak") == ["/w/notes.md"]
    assert await found("/w/a/", "/w/a/b/", "/w/b/", "/w/a/b/c.md/", "/w/clean.md") == ["/w/a/b/c.md", "/w/a/b/c.md"]
    many = tuple(f"/w/{number}" for number in range(2000))
    assert await found(*many, "/w/notes.md", *(f"{path}/" for path in many)) == ["/w/notes.md"]
    await opened.journal.erase([erasure(session, None)])
    assert await found("/w/notes.md", "/w/a/") == []


async def test_erasing_some_events_lowers_no_taint(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    await begin(opened, session, met("http:a"), met("http:b"))
    await opened.journal.erase([erasure(session, (2,))])
    assert await taint_in(opened, session) == (UNNAMED, "http:b")


async def test_erased_session_leaves_no_names_and_takes_no_more(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    await begin(opened, session, met("http:a", NOTES))
    await opened.journal.erase([erasure(session, None)])
    assert await taint_in(opened, session) == (UNNAMED,)
    assert await opened.provenance.tainted_file("/w/notes.md", NOTES.sha256) is None
    with pytest.raises(Conflict, match="session_erased"):
        await opened.journal.commit([Append(session, 2, (draft(SourceTrusted(source="http:a")),))])


def judged_set(*files: FileBytes, verdict: Verdict = Verdict.ALLOW) -> Draft:
    sets = pack_files(files, TAINTED_BYTES_MAX)
    return draft(DraftJudged(call_id=CallId("c1"), digest="d", verdict=verdict, rule="r", reason="", write_sets=sets))


MANY = tuple(replace(NOTES, path=f"build/{number % 50}/{number}.o", sha256=f"{number:064x}") for number in range(3000))


async def test_a_judged_draft_taints_a_journal_that_had_no_tainted_file(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    assert await opened.provenance.tainted_file("/w/notes.md", NOTES.sha256) is None
    judged = DraftJudged(
        call_id=CallId("c1"), digest="d", verdict=Verdict.ALLOW, rule="r", reason="", taint=NOTES.taint, writes=(NOTES,)
    )
    await begin(opened, session, draft(judged))
    assert await opened.provenance.tainted_file("/w/notes.md", NOTES.sha256) is not None
    assert await opened.provenance.taints_workspace("/w")


async def test_a_set_of_files_taints_exactly_its_bytes_paths_and_folders(store: Store, ids: Ids) -> None:
    opened, session = await store.open(), ids.session()
    assert not await opened.provenance.taints_workspace("/w")
    await begin(opened, session, judged_set(*MANY))
    for _ in range(2):
        row = await opened.provenance.tainted_file(f"/w/{MANY[7].path}", MANY[7].sha256)
        assert row is not None
        assert (row.session_id, row.root, row.path, row.sources) == (session, "/w", "/w/build/7/7.o", '["http:a"]')
        assert [row.path for row in await opened.provenance.tainted_paths(("/w/build/7/7.o", "/w/src/x", "/v/"))] == [
            "/w/build/7/7.o"
        ]
        assert [row.path for row in await opened.provenance.tainted_paths(("/w/", "/w/build/7/"))] == [
            "/w",
            "/w/build/7/",
        ]
        tainted = [root for root in ("/", "/w", "/w/build/3") if await opened.provenance.taints_workspace(root)]
        assert tainted == ["/", "/w", "/w/build/3"]
        clean = [
            root for root in ("/v", "/w/src", "/w2", "/w/build/3/3.o") if await opened.provenance.taints_workspace(root)
        ]
        assert clean == []
        opened = await store.reopen()


async def test_a_clean_write_below_a_set_is_clean(store: Store, ids: Ids) -> None:
    """Also what an undo puts back: other bytes than those of the set."""
    opened, session = await store.open(), ids.session()
    await begin(opened, session, judged_set(*MANY))
    assert await opened.provenance.tainted_file("/w/build/7/7.o", "cd" * 32) is None
    assert await opened.provenance.tainted_file("/w/README.md", "cd" * 32) is None


async def test_a_denied_set_taints_nothing_and_an_erased_one_is_gone(store: Store, ids: Ids) -> None:
    opened, session, other = await store.open(), ids.session(), ids.session()
    await begin(opened, session, judged_set(*MANY, verdict=Verdict.DENY))
    assert await opened.provenance.tainted_file("/w/build/7/7.o", MANY[7].sha256) is None
    await begin(opened, other, judged_set(*MANY[:1000]), judged_set(*MANY[1000:]))
    assert await opened.provenance.tainted_file("/w/build/7/7.o", MANY[7].sha256) is not None
    assert await opened.provenance.tainted_file(f"/w/{MANY[2000].path}", MANY[2000].sha256) is not None
    await opened.journal.erase([erasure(other, None)])
    assert await opened.provenance.tainted_file("/w/build/7/7.o", MANY[7].sha256) is None
    assert not await opened.provenance.taints_workspace("/w")
