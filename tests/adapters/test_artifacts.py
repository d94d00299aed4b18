"""Artifacts as files: content-addressed, whole or absent, checked when read."""

import hashlib
import os
from pathlib import Path

import pytest

from palyra.adapters.artifacts.files import BODY_BYTES_MAX, FileArtifacts
from palyra.core.errors import Corrupt, Invalid, NotFound
from palyra.core.ids import ArtifactId

pytestmark = pytest.mark.anyio
BODY = b"0123456789" * 100
ABSENT = ArtifactId("0" * 64)


async def test_put_body_can_be_read_whole_and_in_parts(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    artifact = await artifacts.put(BODY)
    assert artifact == hashlib.sha256(BODY).hexdigest()
    assert (tmp_path / artifact[:2] / artifact).read_bytes() == BODY
    assert await artifacts.get(artifact, 0, 10_000) == BODY
    assert await artifacts.get(artifact, 995, 10) == b"56789"
    assert await artifacts.get(artifact, 5000, 10) == b""
    assert await artifacts.size(artifact) == 1000


async def test_putting_twice_is_putting_once(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    artifact = await artifacts.put(BODY)
    before = (tmp_path / artifact[:2] / artifact).stat()
    assert await artifacts.put(BODY) == artifact
    after = (tmp_path / artifact[:2] / artifact).stat()
    assert before.st_ino == after.st_ino
    assert len(list((tmp_path / artifact[:2]).iterdir())) == 1


async def test_empty_body_is_an_artifact_too(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    assert await artifacts.get(await artifacts.put(b""), 0, 1) == b""


async def test_damaged_body_is_noticed_and_mended_by_putting_it_again(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    artifact = await artifacts.put(BODY)
    path = tmp_path / artifact[:2] / artifact
    path.write_bytes(b"x" + BODY[1:])
    with pytest.raises(Corrupt):
        await artifacts.get(artifact, 0, 10_000)
    path.write_bytes(BODY[:-1])
    with pytest.raises(Corrupt):
        await artifacts.get(artifact, 0, 10_000)
    await artifacts.put(BODY)
    assert await artifacts.get(artifact, 0, 10_000) == BODY


async def test_absent_artifact_is_not_found_and_removing_it_is_no_error(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    assert await artifacts.size(ABSENT) is None
    await artifacts.remove(ABSENT)
    with pytest.raises(NotFound):
        await artifacts.get(ABSENT, 0, 1)


async def test_removed_artifact_is_gone(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    artifact = await artifacts.put(BODY)
    await artifacts.remove(artifact)
    assert await artifacts.size(artifact) is None


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "0" * 63, "0" * 63 + "/", "G" * 64])
async def test_text_that_is_no_hash_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid):
        await FileArtifacts(tmp_path).get(ArtifactId(name), 0, 1)


async def test_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        await FileArtifacts(tmp_path).put(bytes(BODY_BYTES_MAX + 1))
    assert caught.value.code == "artifact_too_large"


@pytest.mark.parametrize(("offset", "limit"), [(-1, 1), (0, -1)])
async def test_negative_ranges_are_refused(tmp_path: Path, offset: int, limit: int) -> None:
    with pytest.raises(Invalid):
        await FileArtifacts(tmp_path).get(ABSENT, offset, limit)


async def test_sweep_removes_what_a_crash_left_and_nothing_else(tmp_path: Path) -> None:
    artifacts = FileArtifacts(tmp_path)
    artifact = await artifacts.put(BODY)
    old, young = tmp_path / artifact[:2] / ".partial-old", tmp_path / artifact[:2] / ".partial-young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert artifacts.sweep() == 1
    assert (old.exists(), young.exists(), await artifacts.size(artifact)) == (False, True, 1000)
