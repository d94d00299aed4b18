"""Anchors: every place gets every checkpoint's head, and one that fails gets it later."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.adapters.anchors.places import WAITING_MAX, open_places
from palyra.adapters.net.client import HttpClient
from palyra.config import Config, read_config
from palyra.core.checkpoint import Anchor, anchor_line, read_anchors
from palyra.core.errors import Invalid
from palyra.core.ids import NodeId
from tests.support.asking import ask, finished
from tests.support.engines import OWNER, Workshop
from tests.support.stand_in_provider import Played, StandInProvider

pytestmark = pytest.mark.anyio


def anchor(position: int) -> Anchor:
    return Anchor(node=NodeId("n"), key_id="k", position=position, checkpoint=f"{position:064x}", at_ms=0)


async def test_files_and_commands_get_each_anchor_once(tmp_path: Path) -> None:
    file, copy = tmp_path / "anchors.jsonl", tmp_path / "copy.jsonl"
    places = open_places([f"file:{file}", f"command:dd of={copy} oflag=append conv=notrunc status=none"], None)
    for position in range(3):
        await places.keep([anchor(position)])
    for path in (file, copy):
        assert [each.position for each in read_anchors(path.read_bytes())] == [0, 1, 2]


async def test_a_place_that_fails_gets_later_what_it_missed(tmp_path: Path) -> None:
    file, good = tmp_path / "away" / "anchors.jsonl", tmp_path / "good.jsonl"
    places = open_places([f"file:{file}", f"file:{good}", "command:false"], None)
    await places.keep([anchor(1)])
    assert len(read_anchors(good.read_bytes())) == 1, "another place is not held up"
    file.parent.mkdir()
    await places.keep([anchor(2)])
    assert [each.position for each in read_anchors(file.read_bytes())] == [1, 2]
    await places.keep([anchor(position) for position in range(2 * WAITING_MAX)])
    assert len(read_anchors(file.read_bytes())) <= WAITING_MAX + 2


async def test_a_webhook_gets_the_lines(tmp_path: Path) -> None:
    client = HttpClient()
    async with StandInProvider(Played(b"{}", content_type="application/json")) as server:
        await open_places([f"{server.url}/anchors"], client).keep([anchor(7)])
        assert server.asked[0].path == "/anchors"
        assert server.asked[0].body["position"] == 7
    await client.close()


async def test_the_engine_anchors_its_first_and_its_last_checkpoint(tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.anchors: list[Anchor] = []

        async def keep(self, anchors: Sequence[Anchor]) -> None:
            self.anchors.extend(anchors)

    kept = Kept()
    workshop = Workshop(tmp_path, [])
    workshop.anchors = kept
    async with workshop.open() as engine:
        await asyncio.sleep(0)
        assert [each.position for each in kept.anchors] == [0]
    assert len(kept.anchors) == 1, "nothing changed"
    async with workshop.open() as engine:
        await finished(engine, await engine.runs.start(OWNER, ask()))
    assert len(kept.anchors) >= 2


@pytest.mark.parametrize("name", ["file:relative", "command: ", "ftp://x", "nonsense"])
def test_a_wrong_place_is_an_error_of_the_configuration(name: str) -> None:
    assert not isinstance(read_config(f'[journal]\nanchors = ["{name}"]\n', {}, "palyra.toml"), Config)


def test_a_line_that_is_no_anchor_is_refused() -> None:
    assert read_anchors(anchor_line(anchor(1)) * 2) == (anchor(1), anchor(1))
    with pytest.raises(Invalid):
        read_anchors(b"{}\n")
