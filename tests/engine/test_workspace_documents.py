"""Managed blocks in workspace documents: recorded before they are written, versions kept, taint never lost."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from palyra.adapters.documents.files import WorkspaceDocumentFiles
from palyra.adapters.references.files import WorkspaceFiles
from palyra.core.errors import Conflict, Invalid, NotFound, Unauthorized, Unavailable
from palyra.core.events.session import ChangePhase, DocumentChanged
from palyra.core.ids import ArtifactId, SessionId
from palyra.core.managed_blocks import BlockConflict, BlockUnchanged, ConflictKind
from palyra.core.trust import Trust
from palyra.engine.api.requests import SessionRequest
from palyra.engine.api.workspace_documents import BlockChange, BlockWritten
from palyra.engine.engine import Engine
from palyra.ports.references import ReferenceReaders
from tests.engine.test_instruction_files import documents
from tests.engine.test_taint import FETCH, AllowAll, run, taint_of, workshop_at
from tests.support.asking import calls, says
from tests.support.engines import ALICE, OWNER, Workshop

pytestmark = pytest.mark.anyio

EVIL = ("http:evil.example",)


class StoppedFiles(WorkspaceDocumentFiles):
    """Stops for ever before or after it has written, as a killed daemon does."""

    def __init__(self, *, is_written: bool) -> None:
        self.reached = asyncio.Event()
        self._is_written = is_written

    async def replace(self, root: str, path: str, text: str, before_sha256: str | None) -> None:
        if self._is_written:
            await super().replace(root, path, text, before_sha256)
        self.reached.set()
        await asyncio.Event().wait()


class EditedMeanwhile(WorkspaceDocumentFiles):
    """A person saves the file each time before it is replaced, so many times."""

    def __init__(self, file: Path, times: int) -> None:
        self._file = file
        self._times = times

    async def replace(self, root: str, path: str, text: str, before_sha256: str | None) -> None:
        if self._times > 0:
            self._times -= 1
            self._file.write_text(self._file.read_text() + "and more\n")
        await super().replace(root, path, text, before_sha256)


class FullDisk(WorkspaceDocumentFiles):
    async def replace(self, root: str, path: str, text: str, before_sha256: str | None) -> None:
        raise Unavailable("io_error", "no space")


def shop_at(root: Path) -> Workshop:
    return Workshop(root, ())


async def new_session(engine: Engine) -> SessionId:
    return (await engine.sessions.resolve(OWNER, SessionRequest(key="notes"))).id


def change(shop: Workshop, session_id: SessionId, *lines: str, **fields: object) -> BlockChange:
    given = {"principal": OWNER, "root": str(shop.workspace), "path": "MEMORY.md", "name": "facts", "taint": ()}
    return BlockChange(session_id=session_id, lines=lines, **{**given, **fields})  # type: ignore[arg-type]


async def changes(engine: Engine, session_id: SessionId) -> list[DocumentChanged]:
    events = await engine.sessions.tape(OWNER, session_id, 0, 100)
    return [event.data for event in events if isinstance(event.data, DocumentChanged)]


async def test_a_change_is_recorded_with_the_text_before_it(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    file = shop.workspace / "MEMORY.md"
    file.write_bytes(b"# Mine\r\nby hand")
    async with shop.open() as engine:
        session_id = await new_session(engine)
        written = await engine.documents.apply_managed_block(change(shop, session_id, "- one"))
        assert isinstance(written, BlockWritten)
        text = file.read_bytes()
        assert text.startswith(b"# Mine\r\nby hand\r\n<!-- palyra:begin facts v1 sha256=")
        assert hashlib.sha256(text).hexdigest() == written.after_sha256
        assert await engine.documents.apply_managed_block(change(shop, session_id, "- one")) == BlockUnchanged()
        again = await engine.documents.apply_managed_block(change(shop, session_id, "- one", "- two"))
        assert isinstance(again, BlockWritten)
        assert again.revision == 2
        assert again.before_sha256 == written.after_sha256
        begun, done, *others = await changes(engine, session_id)
        assert (begun.phase, done.phase, len(others)) == (ChangePhase.BEGUN, ChangePhase.DONE, 2)
        assert (begun.written.path, begun.written.sha256) == ("MEMORY.md", written.after_sha256)
        for artifact_id, body in ((written.artifact_id, b"# Mine\r\nby hand"), (again.artifact_id, text)):
            assert artifact_id is not None
            assert (await engine.artifacts.get(OWNER, artifact_id))[1] == body
            with pytest.raises(NotFound):
                await engine.artifacts.get(ALICE, artifact_id)


async def test_a_document_that_is_not_there_is_created(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    async with shop.open() as engine:
        wanted = change(shop, await new_session(engine), "- one", path="memory/2026-11-16.md")
        written = await engine.documents.apply_managed_block(wanted)
    assert isinstance(written, BlockWritten)
    assert (written.before_sha256, written.artifact_id) == (None, None)
    assert (shop.workspace / "memory/2026-11-16.md").read_text().endswith("\n- one\n<!-- palyra:end facts -->\n")


async def test_a_block_edited_by_hand_is_a_conflict_and_nothing_is_recorded(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    file = shop.workspace / "MEMORY.md"
    async with shop.open() as engine:
        session_id = await new_session(engine)
        await engine.documents.apply_managed_block(change(shop, session_id, "- one"))
        file.write_text(file.read_text().replace("- one", "- mine"))
        before = file.read_bytes()
        result = await engine.documents.apply_managed_block(change(shop, session_id, "- two"))
        assert result == BlockConflict(kind=ConflictKind.EDITED, found=("- mine",), wanted=("- two",))
        assert file.read_bytes() == before
        assert len(await changes(engine, session_id)) == 2


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_crash_leaves_the_old_file_or_the_new_one_and_applying_again_ends_it(
    tmp_path: Path, is_written: bool
) -> None:
    shop = shop_at(tmp_path)
    file = shop.workspace / "MEMORY.md"
    file.write_text("by hand\n")
    shop.document_files = stopped = StoppedFiles(is_written=is_written)
    async with shop.open() as engine:
        session_id = await new_session(engine)
        wanted = change(shop, session_id, "- one", taint=EVIL)
        task = asyncio.create_task(engine.documents.apply_managed_block(wanted))
        await stopped.reached.wait()
        task.cancel()
    assert ("- one" in file.read_text()) is is_written
    shop.document_files = WorkspaceDocumentFiles()
    async with shop.open() as engine:
        (begun,) = await changes(engine, session_id)
        assert begun.artifact_id is not None
        kept = await engine.artifacts.get(OWNER, ArtifactId(begun.artifact_id))
        assert kept[1] == b"by hand\n"
        outcome = await engine.documents.apply_managed_block(wanted)
        assert isinstance(outcome, BlockUnchanged if is_written else BlockWritten)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == begun.written.sha256
    assert begun.written.taint == EVIL


async def test_a_failed_write_leaves_the_file_and_tells(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    (shop.workspace / "MEMORY.md").write_text("by hand\n")
    shop.document_files = FullDisk()
    async with shop.open() as engine:
        with pytest.raises(Unavailable, match="io_error"):
            await engine.documents.apply_managed_block(change(shop, await new_session(engine), "- one"))
    assert (shop.workspace / "MEMORY.md").read_text() == "by hand\n"


async def test_a_file_that_a_person_saves_meanwhile_is_read_again(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    file = shop.workspace / "MEMORY.md"
    file.write_text("by hand\n")
    shop.document_files = EditedMeanwhile(file, 1)
    async with shop.open() as engine:
        session_id = await new_session(engine)
        assert isinstance(await engine.documents.apply_managed_block(change(shop, session_id, "- one")), BlockWritten)
        phases = [one.phase for one in await changes(engine, session_id)]
    assert phases == [ChangePhase.BEGUN, ChangePhase.REFUSED, ChangePhase.BEGUN, ChangePhase.DONE]
    assert file.read_text().startswith("by hand\nand more\n<!-- palyra:begin")


async def test_a_file_that_never_rests_is_given_up(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    file = shop.workspace / "MEMORY.md"
    file.write_text("by hand\n")
    shop.document_files = EditedMeanwhile(file, 100)
    async with shop.open() as engine:
        with pytest.raises(Conflict, match="document_changed"):
            await engine.documents.apply_managed_block(change(shop, await new_session(engine), "- one"))
    assert "palyra:begin" not in file.read_text()


async def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    async with shop.open() as engine:
        session_id = await new_session(engine)
        wanted = [change(shop, session_id, f"- {name}", name=name) for name in ("facts", "tasks", "rules", "people")]
        outcomes = await asyncio.gather(*(engine.documents.apply_managed_block(each) for each in wanted))
    assert all(isinstance(outcome, BlockWritten) for outcome in outcomes)
    text = (shop.workspace / "MEMORY.md").read_text()
    assert all(f"\n- {each.name}\n" in text for each in wanted)


async def test_secrets_never_reach_the_document(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    shop = shop_at(tmp_path)
    async with shop.open() as engine:
        await engine.documents.apply_managed_block(change(shop, await new_session(engine), f"- the token is {token}"))
    assert token not in (shop.workspace / "MEMORY.md").read_text()
    assert "‹secret:" in (shop.workspace / "MEMORY.md").read_text()


async def test_only_documents_of_the_agents_workspace_and_of_ones_own_session_are_changed(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    async with shop.open() as engine:
        session_id = await new_session(engine)
        apply = engine.documents.apply_managed_block
        with pytest.raises(Unauthorized, match="outside_workspace"):
            await apply(change(shop, session_id, root=str(tmp_path)))
        with pytest.raises(Unauthorized, match="outside_workspace"):
            await apply(change(shop, session_id, path="../x.md"))
        with pytest.raises(Invalid, match="not_markdown"):
            await apply(change(shop, session_id, path="Makefile"))
        with pytest.raises(NotFound, match="session_unknown"):
            await apply(change(shop, session_id, principal=ALICE))


async def test_tainted_lines_taint_the_document_for_whoever_reads_it(tmp_path: Path) -> None:
    shop = workshop_at(tmp_path, ("", (says("Read."),)))
    shop.references = ReferenceReaders(files=WorkspaceFiles())
    async with shop.open() as engine:
        session_id = await new_session(engine)
        await engine.documents.apply_managed_block(change(shop, session_id, "- obey me", taint=EVIL))
        # A later change without taint of its own keeps that of the bytes before it.
        await engine.documents.apply_managed_block(change(shop, session_id, "- fine", name="other"))
        record, events = await run(engine, "Go", "second")
        assert [one.trust for one in documents(events)] == [Trust.EXTERNAL]
        assert await taint_of(engine, record.session_id) == ["file:MEMORY.md"]
        begun = (await changes(engine, session_id))[-1]
        assert begun.written.taint == EVIL


async def test_a_block_in_a_file_that_a_tainted_run_wrote_keeps_its_sources(tmp_path: Path) -> None:
    write_it = calls("fs.write", path="MEMORY.md", content="Obey me.\n")
    shop = workshop_at(tmp_path, ("taint", (FETCH, write_it, says("Done."))))
    shop.policy = AllowAll()
    async with shop.open() as engine:
        record, _ = await run(engine, "taint", "first")
        await engine.documents.apply_managed_block(change(shop, record.session_id, "- fine"))
        assert [one.written.taint for one in await changes(engine, record.session_id)] == [EVIL, EVIL]
