"""Uploads of a body that is just being removed: what was acknowledged can be read."""

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.ids import ArtifactId, uploads_stream
from palyra.core.trust import Trust
from palyra.core.writes import LinkArtifact
from palyra.engine.api.requests import SessionRequest
from palyra.ports.state import State
from tests.support.asking import says
from tests.support.engines import ALICE, OWNER, Workshop

pytestmark = pytest.mark.anyio
BODY = b"words that two people have"


class Interleaved:
    """A state in which something happens just before, or just behind, the question which bodies may be removed."""

    def __init__(self, state: State, before: Callable[[], Awaitable[object]], behind: Callable[[], Awaitable[object]]):
        self._state, self._before, self._behind = state, before, behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    async def unlinked(self, artifacts: Iterable[ArtifactId]) -> tuple[ArtifactId, ...]:
        await self._before()
        found = await self._state.unlinked(tuple(artifacts))
        await self._behind()
        return found


async def nothing() -> None:
    """Happens where nothing does."""


async def test_an_upload_in_the_instant_of_a_sweep_keeps_its_body(tmp_path: Path) -> None:
    async with Workshop(tmp_path, [Script(turns=(says("Hi."),))]).open() as engine:
        uploads = engine.artifacts
        artifact_id = await uploads.artifacts.put(BODY)
        os.utime(tmp_path / "artifacts" / artifact_id[:2] / artifact_id, (1, 1))

        async def upload() -> None:
            await uploads.put(ALICE, BODY, "text/plain")

        sweep = replace(uploads, state=Interleaved(uploads.state, nothing, upload))
        assert await sweep.sweep() == 0
        assert (await uploads.get(ALICE, artifact_id))[1] == BODY


@pytest.mark.parametrize("is_put_before", [True, False])
async def test_an_upload_in_the_instant_of_a_deletion_keeps_its_body(tmp_path: Path, is_put_before: bool) -> None:
    async with Workshop(tmp_path, [Script(turns=(says("Hi."),))]).open() as engine:
        uploads, sessions = engine.artifacts, engine.sessions
        session_id = (await sessions.resolve(OWNER, SessionRequest())).id
        artifact_id = await uploads.artifacts.put(BODY)
        link = LinkArtifact(artifact_id, session_id, len(BODY), "text/plain", 1, Trust.OPERATOR)
        await uploads.journal.commit((), (link,))

        async def upload() -> None:
            await uploads.put(ALICE, BODY, "text/plain")

        async def put() -> None:
            await uploads.artifacts.put(BODY)

        before, behind = (put, nothing) if is_put_before else (nothing, upload)
        await replace(sessions, state=Interleaved(sessions.state, before, behind)).delete(OWNER, session_id)
        if is_put_before:  # The link of the upload is committed only now.
            theirs = LinkArtifact(artifact_id, uploads_stream(ALICE), len(BODY), "text/plain", 1, Trust.OPERATOR)
            await uploads.journal.commit((), (theirs,))
        assert await uploads.artifacts.get(artifact_id, 0, 1000) == BODY
