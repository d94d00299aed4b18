"""The index of words in the SQLite file: what is erased leaves no word, a rebuild gives the same, old journals get one."""

import random
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.store.sqlite.archive import Archive
from palyra.adapters.store.sqlite.connection import JournalSettings, open_writing
from palyra.adapters.store.sqlite.migrations import known_migrations, migrate
from palyra.adapters.store.sqlite.refold import rebuild_projections
from palyra.core.checkpoint import key_id
from palyra.core.ids import ArtifactId
from palyra.core.search import INDEXED_TYPES
from palyra.core.trust import Trust
from palyra.core.verification import verify
from palyra.core.writes import LinkArtifact
from palyra.ports.journal import Append, Erasure
from palyra.ports.search import SearchQuery
from tests.support.journals import ALICE, BOB, START_MS, FixedSigner, Ids, message_user, run_cycle, session_created
from tests.support.sqlite import change_from_outside, files_holding, journal_at

pytestmark = pytest.mark.anyio

CHECK = "INSERT INTO search (search, rank) VALUES ('integrity-check', 1)"  # Fails where index and text differ.


def terms_of(path: Path) -> list[tuple[object, ...]]:
    """Every word of the index with where it stands."""
    connection = apsw.Connection(str(path))
    connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab('main', 'search', 'instance')")
    terms = connection.execute("SELECT term, doc, col, offset FROM temp.words ORDER BY 1, 2, 4").fetchall()
    connection.close()
    return terms


def rebuild(path: Path) -> int:
    connection = open_writing(JournalSettings(path=path))
    try:
        return rebuild_projections(connection)
    finally:
        connection.close()


def found_by_verify(path: Path) -> list[str]:
    public_key = FixedSigner().public_key
    with Archive(path) as archive:
        archive.require_structure()
        evidence = archive.evidence(KeyDirectory(path.parent))
        report = verify(replace(evidence, public_key={key_id(public_key): public_key}.get, node_ids=None))
    return [str(finding) for finding in report.findings]


def test_what_is_indexed_is_what_the_view_reads() -> None:
    connection = apsw.Connection(":memory:")
    migrate(connection, Path("memory"), known_migrations())
    view = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'search_texts'").get
    assert f"type IN ({', '.join(repr(name) for name in sorted(INDEXED_TYPES, reverse=True))})" in str(view)


async def test_words_of_erased_texts_are_in_no_file_of_the_journal(tmp_path: Path) -> None:
    """Each word stands in one message alone; half of the messages are erased, one by one, while others are written."""
    chance, ids, path = random.Random(5), Ids(), tmp_path / "journal.db"
    words = ["".join(chance.choice("bcdfghjklmnpqrstvwxz") for _ in range(16)) for _ in range(240)]
    async with journal_at(path) as journal:
        session = ids.session()
        await journal.commit([Append(session, 0, (session_created(),))])
        for number, word in enumerate(words):
            filler = " ".join(chance.choice(words)[:5] for _ in range(chance.choice((2, 30, 600))))
            await journal.commit([Append(session, 1 + number, (message_user(f"{filler} {word}"),))])
        assert files_holding(tmp_path, words[1][4:]) != []
        for number in range(1, len(words), 2):
            await journal.erase(
                [Erasure(stream=session, seqs=(2 + number,), reason="asked", actor=ALICE, at_ms=START_MS)]
            )
            await journal.commit([Append(session, 241 + number // 2, (message_user("later words " * number),))])
        for word in words[1::2]:
            assert files_holding(tmp_path, word[5:]) == []  # The index cuts off what a word shares with the one before.
        assert files_holding(tmp_path, words[2][5:]) != []
    assert {str(term) for term, *_ in terms_of(path)} & set(words) == set(words[::2])
    change_from_outside(path, CHECK)


async def test_not_even_the_beginning_of_an_erased_word_stays(tmp_path: Path) -> None:
    """FTS5 finds its pages by beginnings of words: words that begin alike, on many pages, would leave theirs behind."""
    chance, ids, path = random.Random(7), Ids(), tmp_path / "journal.db"
    async with journal_at(path) as journal:
        session = ids.session()
        await journal.commit([Append(session, 0, (session_created(),))])
        for number in range(120):
            kept = " ".join("".join(chance.choice("abcdefghijklmn") for _ in range(8)) for _ in range(60))
            gone = " ".join(f"mypassphraseis{chance.randrange(10**6)}" for _ in range(60))
            await journal.commit([Append(session, 1 + 2 * number, (message_user(kept), message_user(gone)))])
        seqs = tuple(range(3, 242, 2))
        assert files_holding(tmp_path, "mypassphraseis") != []
        await journal.erase([Erasure(stream=session, seqs=seqs[:60], reason="a", actor=ALICE, at_ms=START_MS)])
        await journal.erase([Erasure(stream=session, seqs=seqs[60:], reason="b", actor=ALICE, at_ms=START_MS)])
        assert files_holding(tmp_path, "mypassphraseis") == []
    change_from_outside(path, CHECK)
    assert not any(str(term).startswith("mypass") for term, *_ in terms_of(path))


async def test_a_rebuild_gives_the_same_index(tmp_path: Path) -> None:
    ids, path = Ids(), tmp_path / "journal.db"
    async with journal_at(path) as journal:
        gone = ids.session()
        await journal.commit([Append(gone, 0, (session_created(), message_user("not for long")))])
        for number in range(20):
            session = ids.session()
            said = (session_created(), message_user(f"said {number}"), *run_cycle(ids.run(), "x", f"told {number}"))
            await journal.commit([Append(session, 0, said)])
        await journal.erase([Erasure(stream=gone, seqs=None, reason="asked", actor=ALICE, at_ms=START_MS)])
    before = terms_of(path)
    assert rebuild(path) == 0
    assert terms_of(path) == before


async def test_a_rebuild_mends_an_index_that_lacks_words_or_has_others(tmp_path: Path) -> None:
    ids, path = Ids(), tmp_path / "journal.db"
    async with journal_at(path) as journal:
        session = ids.session()
        await journal.commit([Append(session, 0, (session_created(), message_user("kept"), message_user("lost")))])
    before = terms_of(path)
    change_from_outside(path, "DELETE FROM search WHERE rowid = 3")
    change_from_outside(path, "INSERT INTO search (rowid, text) VALUES (900, 'stray')")
    assert found_by_verify(path) == [
        f"session {session} seq 3: the index lacks its text",
        "session search seq 0: the index has words of a text that is not there",
    ]
    assert rebuild(path) == 2
    assert found_by_verify(path) == []
    assert terms_of(path) == before
    change_from_outside(path, CHECK)


async def test_a_journal_of_the_schema_before_gets_its_index_and_its_links_stay_doubtful(tmp_path: Path) -> None:
    path, ids = tmp_path / "journal.db", Ids()
    connection = apsw.Connection(str(path))
    migrate(connection, path, known_migrations()[:2])
    connection.execute(
        "INSERT INTO tapes VALUES (1, ?);"
        "INSERT INTO events VALUES (1, 1, 1, NULL, 'message.user', 5, 'user:alice', 'operator', ?, x'00', x'00', x'00')",
        (session := ids.session(), b'{"text":"from before"}'),
    )
    connection.execute(
        "INSERT INTO sessions VALUES (?, ?, 'main', NULL, NULL, NULL, NULL, 0, 0, NULL, 0, 1, 1, 1)", (session, ALICE)
    )
    connection.execute("INSERT INTO artifact_links VALUES (?, ?, 3, 'text/plain', 1)", ("a" * 64, session))
    connection.close()
    async with journal_at(path) as journal:
        (hit,) = await journal.search.search(SearchQuery(match='"before"', principal=ALICE, limit=5))
        assert hit.excerpt == "from before"
        link = await journal.state.artifact_for(ArtifactId("a" * 64), ALICE)
        assert link is not None
        assert (link.trust, link.source) == (Trust.EXTERNAL, None)


async def test_trust_of_an_artifact_only_falls_and_the_least_of_ones_own_links_counts(tmp_path: Path) -> None:
    ids, artifact = Ids(), ArtifactId("b" * 64)
    async with journal_at(tmp_path / "journal.db") as journal:
        first, second, others = ids.session(), ids.session(), ids.session()
        owners = ((first, ALICE), (second, ALICE), (others, BOB))
        await journal.commit([Append(session, 0, (session_created(owner),)) for session, owner in owners])

        async def linked(session: str, trust: Trust, source: str | None = None) -> tuple[Trust, str | None]:
            await journal.commit((), (LinkArtifact(artifact, session, 3, "text/plain", 1, trust, source),))  # type: ignore[arg-type]
            link = await journal.state.artifact_for(artifact, ALICE)
            assert link is not None
            return link.trust, link.source

        assert await linked(first, Trust.LOCAL) == (Trust.LOCAL, None)
        assert await linked(others, Trust.EXTERNAL, "http:bobs") == (Trust.LOCAL, None)
        assert await linked(first, Trust.EXTERNAL, "http:a") == (Trust.EXTERNAL, "http:a")
        assert await linked(first, Trust.OPERATOR) == (Trust.EXTERNAL, "http:a")
        assert await linked(second, Trust.OPERATOR) == (Trust.EXTERNAL, "http:a")
