"""Content that a call carries from one file into another: its taint counts before it is written (L8)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.tools.fs_patch import PREVIEWED_BYTES_MAX, FsPatch
from palyra.core.events.base import JsonObject
from palyra.core.tools import ToolResult
from palyra.engine.engine import Engine
from palyra.ports.tools import ToolCallContext
from tests.engine.test_taint import DONE, FETCH, READ, WRITE, outcomes, run, workshop_at
from tests.support.asking import ask, calls, says
from tests.support.delegating import rules
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio


def renaming(*pairs: tuple[str, str]) -> Turn:
    lines = "".join(f"diff --git a/{old} b/{new}\nrename from {old}\nrename to {new}\n" for old, new in pairs)
    return calls("fs.patch", patch=lines)


NOTES, LARGE = ("notes.md", "Makefile"), ("large.md", "other.md")
DIRTY = ("fetch", (FETCH, WRITE, DONE))
ELSEWHERE = ("move", (renaming(("notes.md", "old.md")), DONE))


class StuckPatch(FsPatch):
    """Patches, and never comes back to say so."""

    def __init__(self) -> None:
        self.has_written = asyncio.Event()

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        await super().execute(arguments, context)
        self.has_written.set()
        await asyncio.Event().wait()
        raise AssertionError


def patching(root: Path, patch: FsPatch, *scripts: tuple[str, Sequence[Turn]]) -> Workshop:
    shop = workshop_at(root, *scripts)
    shop.tools = [*shop.tools, patch]
    return shop


async def move(engine: Engine) -> list[str]:
    """Moves the file in a session that has seen nothing from outside, with nobody to ask. Returns the verdicts' rules."""
    record = await engine.runs.start(OWNER, ask("move", session_key="clean", can_ask=False))
    async for _ in await engine.runs.follow(OWNER, record.id, None):
        pass
    return rules(await engine.sessions.tape(OWNER, record.session_id, 0, 500))


@pytest.mark.parametrize("pairs", [(NOTES,), (LARGE, NOTES)])
async def test_moving_a_tainted_file_where_a_command_runs_it_asks_in_a_clean_session(
    tmp_path: Path, pairs: tuple[tuple[str, str], ...]
) -> None:
    """A large file beside it, which is not looked at before the verdict, hides nothing."""
    shop = patching(tmp_path, FsPatch(), DIRTY, ("move", (renaming(*pairs), DONE)))
    (shop.workspace / "large.md").write_bytes(bytes(PREVIEWED_BYTES_MAX + 1))
    async with shop.open() as engine:
        await run(engine, "fetch", session="outside")
        assert await move(engine) == ["nobody_to_ask"]
    assert not (shop.workspace / "Makefile").exists()


async def test_moving_it_to_an_ordinary_name_is_free(tmp_path: Path) -> None:
    shop = patching(tmp_path, FsPatch(), DIRTY, ELSEWHERE)
    async with shop.open() as engine:
        await run(engine, "fetch", session="outside")
        assert await move(engine) == ["workspace_write"]


async def test_a_file_that_a_person_vouches_for_is_moved_freely(tmp_path: Path) -> None:
    scripts = (DIRTY, ("read", (READ, DONE)), ("move", (renaming(NOTES), DONE)))
    async with patching(tmp_path, FsPatch(), *scripts).open() as engine:
        await run(engine, "fetch", session="outside")
        record, _ = await run(engine, "read", session="clean")
        await engine.taint.trust(OWNER, record.session_id, "file:notes.md", "")
        assert await move(engine) == ["workspace_read", "workspace_write"]


async def test_a_patch_that_is_cut_off_leaves_a_file_that_is_known_as_tainted(tmp_path: Path) -> None:
    look = ("look", (calls("fs.read", path="old.md"), says("Read.")))
    stuck = StuckPatch()
    shop = patching(tmp_path, stuck, DIRTY, ELSEWHERE, look)
    async with shop.open() as engine:
        await run(engine, "fetch", session="outside")
        await engine.runs.start(OWNER, ask("move", session_key="clean"))
        await stuck.has_written.wait()
        _, events = await run(engine, "look", session="another")
        assert outcomes(events)[0][1].source == "file:old.md"
