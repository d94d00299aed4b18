"""Keys in files: made once, refused when exposed or damaged; signatures and sealed values hold or do not."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.keys.sealer import FileSealer
from palyra.adapters.keys.secret_file import KEY_BYTES, load_or_create
from palyra.adapters.keys.signer import FileSigner
from palyra.core.checkpoint import key_id
from palyra.core.errors import Corrupt, PalyraError, Unavailable


def signer(home: Path) -> FileSigner:
    return FileSigner(home / "signing.key", home / "keys")


def test_key_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    first = load_or_create(tmp_path / "vault.key")
    assert load_or_create(tmp_path / "vault.key") == first
    assert len(first) == KEY_BYTES
    assert stat.S_IMODE((tmp_path / "vault.key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["vault.key"]


def test_all_who_start_at_once_get_the_same_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_or_create(tmp_path / "vault.key"), range(32)))
    assert len(keys) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["vault.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_key_that_others_can_read_is_refused_with_what_to_do(tmp_path: Path, mode: int) -> None:
    load_or_create(tmp_path / "vault.key")
    (tmp_path / "vault.key").chmod(mode)
    with pytest.raises(Unavailable) as caught:
        FileSealer(tmp_path / "vault.key")
    assert caught.value.code == "key_exposed"
    assert f"chmod 600 {tmp_path / 'vault.key'}" in caught.value.message


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "zz" * 32, "\xff" * 64])
def test_key_of_another_length_or_form_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "signing.key"
    path.touch(0o600)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Corrupt) as caught:
        signer(tmp_path)
    assert caught.value.code == "key_damaged"
    assert "zz" not in caught.value.message


def test_signature_holds_under_the_published_key(tmp_path: Path) -> None:
    signing = signer(tmp_path)
    keys = KeyDirectory(tmp_path / "keys")
    public_key = keys.public_key(key_id(signing.public_key))
    assert public_key == signing.public_key
    signature = signing.sign(b"words")
    assert keys.is_valid(public_key, b"words", signature)
    assert not keys.is_valid(public_key, b"other", signature)
    assert not keys.is_valid(public_key, b"words", b"")
    assert not keys.is_valid(b"no key", b"words", signature)


def test_public_key_is_one_line_of_hex_named_by_its_id(tmp_path: Path) -> None:
    signing = signer(tmp_path)
    published = tmp_path / "keys" / f"{key_id(signing.public_key)}.pub"
    assert published.read_text() == signing.public_key.hex() + "\n"
    assert [path.name for path in (tmp_path / "keys").iterdir()] == [published.name]


def test_same_file_is_the_same_signer_and_publishes_again(tmp_path: Path) -> None:
    first = signer(tmp_path)
    next((tmp_path / "keys").iterdir()).unlink()
    assert signer(tmp_path).public_key == first.public_key
    assert KeyDirectory(tmp_path / "keys").public_key(key_id(first.public_key)) == first.public_key


@pytest.mark.parametrize("name", ["", "0" * 15, "0" * 17, "../signing", "A" * 16, "0" * 15 + "/"])
def test_text_that_is_no_key_id_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    signer(tmp_path)
    assert KeyDirectory(tmp_path / "keys").public_key(name) is None


@pytest.mark.parametrize("content", [b"", b"00" * 32, b"00" * 5, b"\xff\xfe"])
def test_file_that_is_not_the_key_its_name_says_is_unknown(tmp_path: Path, content: bytes) -> None:
    identity = key_id(signer(tmp_path).public_key)
    (tmp_path / "keys" / f"{identity}.pub").write_bytes(content)
    assert KeyDirectory(tmp_path / "keys").public_key(identity) is None


def test_absent_directory_knows_no_key(tmp_path: Path) -> None:
    assert KeyDirectory(tmp_path / "none").public_key("0" * 16) is None


def test_sealed_value_opens_only_with_its_run_and_key(tmp_path: Path) -> None:
    sealer = FileSealer(tmp_path / "vault.key")
    sealed = sealer.seal(b"hunter2", b"run 1")
    assert b"hunter2" not in sealed
    assert sealer.seal(b"hunter2", b"run 1") != sealed
    assert FileSealer(tmp_path / "vault.key").unseal(sealed, b"run 1") == b"hunter2"
    broken = bytes([sealed[0], *sealed[1:-1], sealed[-1] ^ 1])
    other = FileSealer(tmp_path / "other.key")
    attempts = [
        (sealer, sealed, b"run 2"),
        (sealer, broken, b"run 1"),
        (sealer, b"\x02" + sealed[1:], b"run 1"),
        (sealer, b"", b"run 1"),
        (other, sealed, b"run 1"),
    ]
    for opener, value, context in attempts:
        with pytest.raises(PalyraError) as caught:
            opener.unseal(value, context)
        assert caught.value.code == "secret_unsealable"


def test_marker_key_is_stable_and_not_the_key_itself(tmp_path: Path) -> None:
    marker = FileSealer(tmp_path / "vault.key").marker_key
    assert marker == FileSealer(tmp_path / "vault.key").marker_key
    assert marker != load_or_create(tmp_path / "vault.key")
    assert marker != FileSealer(tmp_path / "other.key").marker_key
