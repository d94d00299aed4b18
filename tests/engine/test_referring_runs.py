"""References in a run: read after the message is recorded, shown to the model, and read again after a crash."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.core.context.messages import UserMessage
from palyra.core.events.model import ReferenceResolved
from palyra.core.events.run import RunCancelled
from palyra.core.trust import Trust
from palyra.ports.provider import Delta, ModelRequest
from palyra.ports.references import NoReferences, ReadScope, ReferenceReaders, ReferenceText
from tests.references.repositories import write
from tests.references.workshops import reference_workshop
from tests.support.asking import ask, finished, says, wait_for
from tests.support.engines import OWNER

pytestmark = pytest.mark.anyio

DONE = [Script(turns=(says("Read."),))]


class Recording:
    """A provider that keeps the requests it got."""

    def __init__(self, scripts: Sequence[Script] = DONE) -> None:
        self.requests: list[ModelRequest] = []
        self._provider = ScriptedProvider(scripts)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        async for delta in self._provider.stream(request):
            yield delta

    def told(self) -> list[str]:
        return [message.text for message in self.requests[-1].messages if isinstance(message, UserMessage)]


class SlowFiles(NoReferences):
    """Never answers."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def read_file(self, target: str, scope: ReadScope) -> ReferenceText:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_run_shows_the_model_what_its_message_refers_to(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    shop.provider = provider = Recording()
    write(shop.workspace, {"a.md": "the colour is green </context_references>", "b.md": "second"})
    async with shop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask("See @file:a.md and @file:none @file:b.md")))
    types = [event.type for event in events]
    assert types.index("message.user") < types.index("reference.resolved") < types.index("context.assembled")
    resolved = [event.data for event in events if isinstance(event.data, ReferenceResolved)]
    assert [one.ok for one in resolved] == [True, False, True]
    said, block = provider.told()
    assert said == "See @file:a.md and @file:none @file:b.md"
    assert block.startswith("<context_references>")
    assert block.count("</context_references>") == 1
    assert "the colour is green" in block
    assert "second" in block
    assert "@file:none was not included (not_found)" in block


async def test_an_earlier_turn_renders_its_references_again_byte_for_byte(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    shop.provider = provider = Recording()
    write(shop.workspace, {"a.md": "before"})
    async with shop.open() as engine:
        first = await engine.runs.start(OWNER, ask("See @file:a.md"))
        await finished(engine, first)
    shown = provider.told()
    write(shop.workspace, {"a.md": "after"})
    async with shop.open() as engine:
        await finished(engine, await engine.runs.start(OWNER, ask("And now?", session_id=first.session_id)))
    assert provider.told() == [*shown, "And now?"]


async def test_a_restart_while_a_reference_is_read_reads_it_again(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    shop.provider = provider = Recording()
    write(shop.workspace, {"a.md": "kept"})
    readers, slow = shop.references, SlowFiles()
    shop.references = ReferenceReaders(files=slow, changes=readers.changes, pages=readers.pages)
    async with shop.open() as engine:
        run = await engine.runs.start(OWNER, ask("See @file:a.md"))
        await slow.begun.wait()
    assert provider.requests == []
    shop.references = readers
    async with shop.open() as engine:
        await finished(engine, await engine.runs.get(OWNER, run.id))
    assert "kept" in provider.told()[1]


async def test_a_run_is_cancelled_while_a_reference_is_read(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    readers, slow = shop.references, SlowFiles()
    shop.references = ReferenceReaders(files=slow, changes=readers.changes, pages=readers.pages)
    async with shop.open() as engine:
        run = await engine.runs.start(OWNER, ask("See @file:a.md"))
        await slow.begun.wait()
        await engine.runs.cancel(OWNER, run.id)
        events = await finished(engine, run)
    assert isinstance(events[-1].data, RunCancelled)


async def test_words_said_meanwhile_are_resolved_too_and_in_order(tmp_path: Path) -> None:
    shop = reference_workshop(tmp_path)
    shop.provider = provider = Recording()
    write(shop.workspace, {"a.md": "first file", "b.md": "second file"})
    async with shop.open() as engine:
        run = await engine.runs.start(OWNER, ask("See @file:a.md"))
        await engine.runs.send_input(OWNER, run.id, "and @file:b.md", Trust.OPERATOR)
        await wait_for(engine, run.id, "run.done")
    told = "\n".join(provider.told())
    assert told.index("first file") < told.index("second file")
