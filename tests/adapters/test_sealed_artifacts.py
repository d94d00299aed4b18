"""Bodies with secrets on disk: sealed, read back by whoever may, the same id for the same body."""

import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.artifacts.files import FileArtifacts, Sealing
from palyra.adapters.keys.sealer import SEALED_ADDED_BYTES, FileSealer
from palyra.app.engine_builder import holds_secret
from palyra.core.errors import Corrupt
from palyra.core.redaction import KnownSecrets

SECRET = b"password = correct9horse7battery\n"
BODIES = [SECRET, b"x" * 65_530 + b"\npassword = " + b"correct9horse7battery\n" + b"y" * 10, b"\x00" * 512 + SECRET]


def artifacts_at(home: Path) -> FileArtifacts:
    sealer = FileSealer(home / "vault.key")
    sealing = Sealing(partial(holds_secret, KnownSecrets()), sealer.seal_body, sealer.unseal_body, SEALED_ADDED_BYTES)
    return FileArtifacts(home / "artifacts", sealing)


def bytes_on_disk(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (home / "artifacts").rglob("*") if path.is_file())


@pytest.mark.anyio
@pytest.mark.parametrize("body", BODIES)
async def test_a_body_with_a_secret_is_sealed_on_disk_and_read_as_it_was_put(tmp_path: Path, body: bytes) -> None:
    artifacts = artifacts_at(tmp_path)
    artifact_id = await artifacts.put(body)
    assert b"horse" not in bytes_on_disk(tmp_path)
    assert await artifacts.get(artifact_id, 0, len(body)) == body
    assert await artifacts.get(artifact_id, 3, 5) == body[3:8]
    assert await artifacts.size(artifact_id) == len(body)
    assert await artifacts.put(body) == artifact_id
    assert await artifacts_at(tmp_path).get(artifact_id, 0, len(body)) == body


@pytest.mark.anyio
async def test_other_bodies_and_those_of_earlier_releases_stay_as_they_are(tmp_path: Path) -> None:
    plain = FileArtifacts(tmp_path / "artifacts")
    older, harmless = await plain.put(SECRET), await artifacts_at(tmp_path).put(b"harmless words\n")
    assert b"harmless words" in bytes_on_disk(tmp_path)
    assert await artifacts_at(tmp_path).get(older, 0, 100) == SECRET
    assert await artifacts_at(tmp_path).get(harmless, 0, 100) == b"harmless words\n"


@pytest.mark.anyio
async def test_without_its_key_a_sealed_body_is_told_and_not_shown(tmp_path: Path) -> None:
    artifact_id = await artifacts_at(tmp_path).put(SECRET)
    (tmp_path / "vault.key").unlink()
    with pytest.raises(Corrupt, match="artifact_unsealable"):
        await artifacts_at(tmp_path).get(artifact_id, 0, 100)


@pytest.mark.anyio
async def test_a_body_that_looks_sealed_is_read_as_it_was_put(tmp_path: Path) -> None:
    artifacts = artifacts_at(tmp_path)
    first = await artifacts.put(SECRET)
    forged = (tmp_path / "artifacts" / first[:2] / first).read_bytes()
    for body in (forged, b"palyra sealed artifact 1\n", b"palyra sealed artifact 1\nwords"):
        assert await artifacts.get(await artifacts.put(body), 0, 10_000) == body


@given(st.binary(max_size=3_000))
def test_no_body_fails_the_search_for_secrets(body: bytes) -> None:
    assert holds_secret(KnownSecrets(), body) in (True, False)
    assert holds_secret(KnownSecrets(), b"a\n" * 2_000 + SECRET)


def test_a_large_body_is_searched_in_a_moment() -> None:
    began_s = time.process_time()
    assert not holds_secret(KnownSecrets(), b"Plain words of a long report, line by line.\n" * 100_000)
    assert time.process_time() - began_s < 5
