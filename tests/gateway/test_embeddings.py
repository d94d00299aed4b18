"""Embeddings over HTTP: many long vectors are sent without holding up anybody else."""

import json
import struct
from collections.abc import Sequence

from palyra.core.ids import Principal
from palyra.gateway.http.settings import HttpSettings
from palyra.ports.embedder import EmbedderTraits
from tests.gateway.prepared import Prepared
from tests.gateway.scene import Scene, connected, listening, request_bytes
from tests.support.loop_beats import loop_beats

HELD_S = 0.05
DIMENSIONS = 1536


class LongVectors:
    traits = EmbedderTraits(version="long-1", dimensions=DIMENSIONS)

    async def embed(self, texts: Sequence[str], principal: Principal) -> tuple[bytes, ...]:
        vector = struct.pack(f"<{DIMENSIONS}f", *(0.123456 * number for number in range(DIMENSIONS)))
        return tuple(vector for _ in texts)


async def test_many_long_vectors_hold_up_nobody(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    scene.engine.embedder = LongVectors()
    body = json.dumps({"model": "any", "input": ["a"] * 2048}).encode()
    end = b""
    async with listening(scene) as server, connected(server.port) as wire:
        async with loop_beats() as beats:
            await wire.send(request_bytes("POST", "/v1/embeddings", body, connection="close"))
            while piece := await wire.reader.read(1 << 16):
                end = (end + piece)[-200:]
        assert beats.held_s < HELD_S
    assert b'"model":"long-1"' in end
