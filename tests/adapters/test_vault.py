"""The vault: what is kept comes back, nothing else opens it, and no reader of the file, killed writer or forger breaks it."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.files import lock as file_lock
from palyra.adapters.files import regular
from palyra.adapters.files.private import PrivateFile
from palyra.adapters.vault import contents, keyring
from palyra.adapters.vault.contents import NAME_BYTES_MAX, SECRETS_COUNT_MAX, VALUE_BYTES_MAX, Entry, encrypt
from palyra.adapters.vault.header import (
    LANES_MAX,
    MEMORY_KIB_MAX,
    PASSES_MAX,
    Costs,
    KeyFileLock,
    LockKind,
    PassphraseLock,
    encode_header,
    read_lock,
    split_header,
)
from palyra.adapters.vault.keyring import PASSPHRASE_BYTES_MAX, PASSPHRASE_CHARS_MIN, Keyring, Origins
from palyra.adapters.vault.vault import KIND, SecretRow, Vault
from palyra.core.errors import PalyraError

ROOT = Path(__file__).parents[2]
KEY = bytes(range(32))
PASSPHRASE = "correct horse"
CHEAP = Costs(passes=1, memory_kib=8, lanes=1)
VALUE = "sk-value-that-nobody-may-see"


class Keys:
    """Where a test's keys come from, and how often a passphrase was asked for."""

    def __init__(self, key: bytes | None = KEY, passphrase: str = PASSPHRASE) -> None:
        self.key = key
        self.passphrase = passphrase
        self.asked_count = 0

    def load(self) -> bytes:
        if self.key is None:
            raise FileNotFoundError
        return self.key

    def ask(self) -> str:
        self.asked_count += 1
        return self.passphrase


def vault_at(path: Path, keys: Keys | None = None) -> Vault:
    keys = keys or Keys()
    return Vault(path, Keyring(Origins(keys.load, keys.load, keys.ask), CHEAP))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "vault"


@pytest.fixture
def kept(path: Path) -> Path:
    """A vault with one secret, under the key file."""
    vault_at(path).set("openai", VALUE, 5)
    return path


@pytest.fixture
def protected(kept: Path) -> Path:
    """The same under a passphrase."""
    vault_at(kept).lock_with_passphrase(PASSPHRASE)
    return kept


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(PalyraError) as caught:
        act()
    assert VALUE not in str(caught.value)
    assert PASSPHRASE not in str(caught.value)
    return caught.value.code


def test_what_was_set_comes_back_until_it_is_removed(path: Path) -> None:
    vault = vault_at(path)
    assert vault.get("openai") is None
    assert vault.set("openai", VALUE, 5) is False
    assert vault.set("anthropic", "é\nsecond line", 6) is False
    again = vault_at(path)
    assert (again.get("openai"), again.get("anthropic")) == (VALUE, "é\nsecond line")
    assert again.rows() == (SecretRow("anthropic", 6), SecretRow("openai", 5))
    assert again.values() == {VALUE, "é\nsecond line"}
    assert again.set("openai", "another", 7) is True
    again.remove("anthropic")
    assert vault.rows() == (SecretRow("openai", 7),)
    assert vault.get("openai") == "another"


def test_vault_that_is_not_there_is_empty_and_is_not_made_by_reading(path: Path) -> None:
    vault = vault_at(path)
    assert (vault.rows(), vault.values(), vault.lock_kind()) == ((), frozenset(), None)
    assert not path.parent.exists()


def test_file_is_ours_alone_and_shows_neither_names_nor_values(kept: Path, protected: Path) -> None:
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    for word in (VALUE, "openai", PASSPHRASE, KEY.hex()):
        assert word.encode() not in kept.read_bytes()
    assert sorted(each.name for each in kept.parent.iterdir()) == ["vault", "vault.lock"]


def test_each_write_has_a_nonce_of_its_own(kept: Path) -> None:
    first = kept.read_bytes()
    vault_at(kept).set("openai", VALUE, 5)
    assert kept.read_bytes() != first


def test_nothing_shows_a_value_when_printed(kept: Path) -> None:
    vault = vault_at(kept)
    vault.get("openai")
    shown = [repr(vault), repr(vars(vault)), repr(vars(vault)["_opened"]), repr(Entry(VALUE, 5))]
    assert not [text for text in shown if VALUE in text or repr(KEY) in text]


def test_removing_what_is_not_there_is_said_and_changes_nothing(kept: Path) -> None:
    before = kept.read_bytes()
    assert code_of(lambda: vault_at(kept).remove("nothing")) == "secret_unknown"
    assert kept.read_bytes() == before


# Limits


def test_value_of_the_largest_size_is_kept_and_one_byte_more_is_refused(path: Path) -> None:
    vault = vault_at(path)
    largest = "é" * (VALUE_BYTES_MAX // 2)
    vault.set("large", largest, 1)
    assert code_of(lambda: vault.set("larger", largest + "x", 1)) == "secret_too_large"
    assert vault_at(path).get("large") == largest
    assert vault.rows() == (SecretRow("large", 1),)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("a", "", "secret_empty"),
        ("a", "\ud800", "secret_not_text"),
        ("", "value", "secret_name_invalid"),
        ("n" * (NAME_BYTES_MAX + 1), "value", "secret_name_invalid"),
    ],
)
def test_what_cannot_be_kept_is_refused(path: Path, name: str, value: str, code: str) -> None:
    assert code_of(lambda: vault_at(path).set(name, value, 1)) == code
    assert not path.exists()


def test_full_vault_takes_new_values_and_no_new_names(path: Path) -> None:
    longest = [f"{number:04}".ljust(NAME_BYTES_MAX, "n") for number in range(SECRETS_COUNT_MAX)]
    sealed_under_key(path, {name: Entry("x" * 100, 1) for name in longest[1:]})
    vault = vault_at(path)
    vault.set(longest[0], "value", 2)
    assert len(vault.rows()) == SECRETS_COUNT_MAX
    assert vault.set(longest[0], "other", 3) is True
    assert code_of(lambda: vault.set("one-more", "value", 4)) == "vault_full"
    vault.remove(longest[1])
    vault.set("one-more", "value", 5)
    assert len(vault_at(path).rows()) == SECRETS_COUNT_MAX


def test_largest_vault_of_all_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer secrets, so that it is quick; the limit of the file is computed as in the module."""
    most = 20
    overhead = contents.FILE_BYTES_MAX - SECRETS_COUNT_MAX * (VALUE_BYTES_MAX + NAME_BYTES_MAX + 32)
    monkeypatch.setattr(contents, "SECRETS_COUNT_MAX", most)
    bytes_max = overhead + most * (VALUE_BYTES_MAX + NAME_BYTES_MAX + 32)
    monkeypatch.setattr("palyra.adapters.vault.vault.KIND", msgspec.structs.replace(KIND, bytes_max=bytes_max))
    vault = vault_at(path)
    names = [f"{number:04}".ljust(NAME_BYTES_MAX, "n") for number in range(most)]
    sealed_under_key(path, {name: Entry("x" * VALUE_BYTES_MAX, 2**63 - 1) for name in names})
    assert len(vault.rows()) == most


def sealed_under_key(path: Path, entries: object) -> None:
    """A file that only who has the key could have written."""
    lock, key = Keyring(Origins(lambda: KEY, lambda: KEY, lambda: ""), CHEAP).lock_with_file()
    path.parent.mkdir(exist_ok=True)
    path.touch(0o600)
    path.write_bytes(encrypt(encode_header(lock), key, entries))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "entries",
    [
        {f"n{number}": Entry("x", 1) for number in range(SECRETS_COUNT_MAX + 1)},
        {"n" * (NAME_BYTES_MAX + 1): Entry("x", 1)},
        {"a": Entry("x" * (VALUE_BYTES_MAX + 1), 1)},
        {"a": Entry("", 1)},
        {"a": ["x"]},
        {"a": ["x", 1, 2]},
        {1: ["x", 1]},
        [["a", "x"]],
        "text",
        None,
        {"a": [b"bytes", 1]},
    ],
    ids=["many", "long_name", "large", "empty", "short", "long", "number", "list", "text", "none", "bytes"],
)
def test_what_no_release_writes_is_refused_even_under_the_right_key(path: Path, entries: object) -> None:
    sealed_under_key(path, entries)
    assert code_of(vault_at(path).rows) == "vault_damaged"


# Keys and passphrases


def test_vault_does_not_open_with_another_key_file_or_none(kept: Path) -> None:
    assert code_of(vault_at(kept, Keys(bytes(32))).rows) == "vault_key_other"
    assert code_of(vault_at(kept, Keys(None)).rows) == "vault_key_missing"
    before = kept.read_bytes()
    assert code_of(lambda: vault_at(kept, Keys(bytes(32))).set("a", "b", 1)) == "vault_key_other"
    assert kept.read_bytes() == before


def test_passphrase_replaces_the_key_file_and_back(protected: Path) -> None:
    vault = vault_at(protected, Keys(None))
    assert (vault.lock_kind(), vault.get("openai")) == (LockKind.PASSPHRASE, VALUE)
    vault_at(protected).lock_with_file()
    back = vault_at(protected, Keys(passphrase="not asked for"))
    assert (back.lock_kind(), back.get("openai")) == (LockKind.KEY_FILE, VALUE)
    assert code_of(back.lock_with_file) == "vault_unprotected"


def test_changed_passphrase_opens_and_the_former_does_not(protected: Path) -> None:
    former = protected.read_bytes()
    vault_at(protected).lock_with_passphrase("another one altogether")
    assert vault_at(protected, Keys(passphrase="another one altogether")).get("openai") == VALUE
    assert code_of(vault_at(protected).rows) == "vault_passphrase_wrong"
    assert split_header(former, protected)[0] != split_header(protected.read_bytes(), protected)[0]


def test_empty_home_can_be_given_a_passphrase_first(path: Path) -> None:
    vault_at(path).lock_with_passphrase(PASSPHRASE)
    vault = vault_at(path)
    vault.set("openai", VALUE, 1)
    assert (vault.lock_kind(), vault_at(path, Keys(None)).get("openai")) == (LockKind.PASSPHRASE, VALUE)


def test_passphrase_is_asked_for_once_while_the_lock_is_the_same(protected: Path) -> None:
    keys = Keys()
    vault = vault_at(protected, keys)
    for number in range(3):
        vault.set(f"n{number}", VALUE, 1)
        assert vault.get(f"n{number}") == VALUE
    assert keys.asked_count == 1


def test_wrong_passphrase_is_computed_once_and_a_right_one_opens_later(
    protected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stretched: list[bytes] = []
    stretch = keyring._stretch

    def noted(passphrase: bytes, salt: bytes, costs: Costs) -> bytes:
        stretched.append(passphrase)
        return stretch(passphrase, salt, costs)

    monkeypatch.setattr(keyring, "_stretch", noted)
    keys = Keys(passphrase="wrong passphrase")
    vault = vault_at(protected, keys)
    assert {code_of(vault.rows) for _ in range(3)} == {"vault_passphrase_wrong"}
    keys.passphrase = PASSPHRASE
    assert vault.get("openai") == VALUE
    assert stretched == [b"wrong passphrase", PASSPHRASE.encode()]


def test_letters_composed_otherwise_are_the_same_passphrase(kept: Path) -> None:
    vault_at(kept).lock_with_passphrase("Käse und Brot")
    assert vault_at(kept, Keys(passphrase="Ka\u0308se und Brot")).get("openai") == VALUE


@pytest.mark.parametrize(
    ("passphrase", "code"),
    [
        ("", "vault_passphrase_short"),
        ("x" * (PASSPHRASE_CHARS_MIN - 1), "vault_passphrase_short"),
        ("x" * (PASSPHRASE_BYTES_MAX + 1), "vault_passphrase_form"),
        ("\ud800" * 20, "vault_passphrase_form"),
    ],
)
def test_unfit_passphrase_is_refused_and_changes_nothing(kept: Path, passphrase: str, code: str) -> None:
    before = kept.read_bytes()
    assert code_of(lambda: vault_at(kept).lock_with_passphrase(passphrase)) == code
    assert kept.read_bytes() == before


@pytest.mark.parametrize("length", [PASSPHRASE_CHARS_MIN, PASSPHRASE_BYTES_MAX])
def test_passphrase_at_either_limit_opens(kept: Path, length: int) -> None:
    vault_at(kept).lock_with_passphrase("x" * length)
    assert vault_at(kept, Keys(None, "x" * length)).get("openai") == VALUE


def test_costs_that_are_used_by_default_are_within_the_limits(kept: Path) -> None:
    keys = Keys()
    Vault(kept, Keyring(Origins(keys.load, keys.load, keys.ask))).lock_with_passphrase(PASSPHRASE)
    lock = read_lock(split_header(kept.read_bytes(), kept)[0], kept)
    assert isinstance(lock, PassphraseLock)
    assert (lock.passes, lock.memory_kib, lock.lanes) == (3, 65536, 4)
    assert vault_at(kept).get("openai") == VALUE


@pytest.mark.parametrize(
    "costs",
    [
        {"memory_kib": 64 * 1024 * 1024},
        {"memory_kib": MEMORY_KIB_MAX + 1},
        {"memory_kib": 2**80},
        {"memory_kib": 7},
        {"memory_kib": -1},
        {"passes": PASSES_MAX + 1},
        {"passes": 0},
        {"lanes": LANES_MAX + 1, "memory_kib": 1024},
        {"lanes": 2},
        {"lanes": 0},
    ],
    ids=str,
)
def test_forged_costs_are_refused_before_anything_is_computed(protected: Path, costs: dict[str, int]) -> None:
    header, body = split_header(protected.read_bytes(), protected)
    members = {**json.loads(header.split(b" ", 2)[2]), **costs}
    protected.write_bytes(b"palyra-vault 1 " + json.dumps(members).encode() + b"\n" + body)
    keys = Keys()
    assert code_of(vault_at(protected, keys).rows) in ("vault_costs", "vault_damaged")
    assert keys.asked_count == 0


def test_costs_at_the_limits_are_read() -> None:
    lock = PassphraseLock(
        salt="00" * 16, passes=PASSES_MAX, memory_kib=MEMORY_KIB_MAX, lanes=LANES_MAX, check="00" * 16
    )
    assert read_lock(encode_header(lock), Path("vault")) == lock


# Tampering, truncation, versions, permissions


def test_every_flipped_bit_is_noticed(kept: Path) -> None:
    whole = kept.read_bytes()
    for place in range(len(whole)):
        kept.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert code_of(vault_at(kept).rows) in ("vault_damaged", "vault_key_other", "vault_newer")


def test_every_truncation_is_noticed(kept: Path) -> None:
    whole = kept.read_bytes()
    for length in range(len(whole)):
        kept.write_bytes(whole[:length])
        assert code_of(vault_at(kept).rows) == "vault_damaged"
    kept.write_bytes(whole + b"\x00")
    assert code_of(vault_at(kept).rows) == "vault_damaged"


def test_header_of_another_vault_under_the_same_key_does_not_fit(kept: Path) -> None:
    _, body = split_header(kept.read_bytes(), kept)
    header = kept.read_bytes()[: -len(body)].replace(b'{"lock"', b'{ "lock"')
    kept.write_bytes(header + body)
    assert code_of(vault_at(kept).rows) == "vault_damaged"


def test_damaged_vault_is_never_written_over(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:-1])
    before = kept.read_bytes()
    for act in (lambda: vault_at(kept).set("a", "b", 1), lambda: vault_at(kept).lock_with_passphrase(PASSPHRASE)):
        assert code_of(act) == "vault_damaged"
    assert kept.read_bytes() == before


def test_newer_vault_is_left_to_the_newer_release(kept: Path) -> None:
    kept.write_bytes(b"palyra-vault 2 whatever comes\n" + bytes(100))
    with pytest.raises(PalyraError) as caught:
        vault_at(kept).set("a", "b", 1)
    assert caught.value.code == "vault_newer"
    assert "version 2" in caught.value.message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o777])
def test_vault_that_others_can_reach_is_refused_with_what_to_do(kept: Path, mode: int) -> None:
    kept.chmod(mode)
    with pytest.raises(PalyraError) as caught:
        vault_at(kept).rows()
    assert caught.value.code == "vault_exposed"
    assert f"chmod 600 {kept}" in caught.value.message
    kept.chmod(0o600)
    assert vault_at(kept).get("openai") == VALUE


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_something_else_in_its_place_is_refused_at_once(path: Path, make: Callable[[Path], None]) -> None:
    path.parent.mkdir()
    make(path)
    path.chmod(0o600)
    assert code_of(vault_at(path).rows) == "vault_damaged"


def test_place_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    vault = vault_at(tmp_path / "file" / "vault")
    assert code_of(vault.rows) == "vault_unreadable"
    assert code_of(lambda: vault.set("a", "b", 1)) in ("vault_unreadable", "vault_unwritable")


def test_full_disk_leaves_the_vault_as_it_was(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    before = kept.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    assert code_of(lambda: vault_at(kept).set("a", "b", 1)) == "vault_unwritable"
    assert kept.read_bytes() == before


# Fuzzing the reader


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.binary(max_size=400),
        st.binary(max_size=200).map(lambda rest: b"palyra-vault " + rest),
        st.binary(max_size=200).map(lambda rest: b"palyra-vault 1 " + rest + b"\n" + rest),
        st.tuples(st.integers(), st.integers(), st.integers(), st.binary(max_size=60)).map(
            lambda given: (
                b'palyra-vault 1 {"lock":"passphrase","salt":"%s","passes":%d,"memory_kib":%d,"lanes":%d,"check":"%s"}\n%s'
                % (b"00" * 16, min(given[0], 2), min(given[1], 64), given[2], b"00" * 16, given[3])
            )
        ),
    )
)
def test_arbitrary_bytes_are_refused_as_ours(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "vault"
    path.touch(0o600)
    path.write_bytes(data)
    with pytest.raises(PalyraError):
        vault_at(path).rows()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bits_are_refused_as_ours(protected: Path, data: st.DataObject) -> None:
    whole = bytearray(_original(protected))
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 7)), min_size=1, unique=True))
    for place, bit in flips:
        whole[place] ^= 1 << bit
    protected.write_bytes(bytes(whole))
    with pytest.raises(PalyraError):
        vault_at(protected).rows()


def _original(path: Path) -> bytes:
    """What was there before the first example spoilt it."""
    saved = path.with_name("saved")
    if not saved.exists():
        saved.write_bytes(path.read_bytes())
    return saved.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plain=st.one_of(
        st.binary(max_size=100),
        st.dictionaries(
            st.text(max_size=9), st.lists(st.one_of(st.text(max_size=9), st.integers(-9, 9)), max_size=3)
        ).map(msgspec.msgpack.encode),
    )
)
def test_arbitrary_contents_under_the_right_key_are_secrets_or_refused_as_ours(tmp_path: Path, plain: bytes) -> None:
    path = tmp_path / "vault"
    sealed_under_key(path, msgspec.Raw(plain))
    try:
        rows = vault_at(path).rows()
    except PalyraError as error:
        assert error.code == "vault_damaged"
    else:
        assert len(rows) == len(msgspec.msgpack.decode(plain))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.dictionaries(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=50), max_size=5))
def test_any_text_goes_round(tmp_path: Path, entries: dict[str, str]) -> None:
    path = tmp_path / "vault"
    path.unlink(missing_ok=True)
    vault = vault_at(path)
    for name, value in entries.items():
        vault.set(name, value, 1)
    assert {row.name: vault_at(path).get(row.name) for row in vault.rows()} == entries


# Reading again


def test_change_by_another_process_is_seen_at_once(kept: Path) -> None:
    reader, writer = vault_at(kept), vault_at(kept)
    for number in range(50):
        writer.set("openai", f"value{number % 10}", 1)
        assert reader.get("openai") == f"value{number % 10}"
    kept.unlink()
    assert reader.get("openai") is None


def test_settled_file_is_read_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(kept, (1, 1))
    monkeypatch.setattr(regular, "_SETTLED_NS", -(10**15))  # As if much time had passed.
    reads: list[Path] = []

    def noted(path: Path, bytes_max: int) -> regular.FileRead:
        reads.append(path)
        return regular.read_regular(path, bytes_max)

    monkeypatch.setattr("palyra.adapters.files.private.read_regular", noted)
    vault = vault_at(kept)
    assert {vault.get("openai") for _ in range(5)} == {VALUE}
    assert len(reads) == 1
    vault_at(kept).set("openai", "changed", 2)
    assert vault.get("openai") == "changed"


@pytest.mark.parametrize(("age_ns", "is_trusted"), [(-(10**12), False), (10**12, True)], ids=["fresh", "settled"])
def test_stamp_of_a_fresh_file_is_not_trusted(
    kept: Path, monkeypatch: pytest.MonkeyPatch, age_ns: int, is_trusted: bool
) -> None:
    """Two changes within one tick of the file system's clock may leave the same stamp. A slow test makes none older."""
    same = regular.FileStamp(1, 2, time.time_ns() - age_ns, time.time_ns() - age_ns, 100)
    monkeypatch.setattr(regular, "_stamp", lambda found: same)
    vault = vault_at(kept)
    assert vault.get("openai") == VALUE
    vault_at(kept).set("openai", "changed", 2)
    assert vault.get("openai") == (VALUE if is_trusted else "changed")


def test_vault_that_became_unreadable_gives_out_nothing_older(kept: Path) -> None:
    vault = vault_at(kept)
    assert vault.get("openai") == VALUE
    kept.chmod(0o644)
    assert {code_of(lambda: vault.get("openai")) for _ in range(2)} == {"vault_exposed"}
    assert vars(vault)["_opened"] is None
    kept.chmod(0o600)
    assert vault.get("openai") == VALUE


# Killing writers


def left_by(act: str, directory: Path) -> list[dict[str, object]]:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.vault_kills", act, str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize(
    ("act", "old", "new"),
    [
        ("first", {}, {"new": "value"}),
        ("replace", {"old": "value"}, {"old": "other"}),
        ("remove", {"old": "value"}, {}),
        ("passphrase", {"old": "value"}, {"old": "value"}),
    ],
)
def test_killed_at_any_step_the_vault_is_the_old_or_the_new_one(
    tmp_path: Path, act: str, old: dict[str, str], new: dict[str, str]
) -> None:
    points = left_by(act, tmp_path)
    found = [point["holds"] for point in points]
    assert [point["was_killed"] for point in points] == [True] * (len(points) - 1) + [False]
    assert len(points) > 10
    changed_at = found.index(new) if old != new else 0
    assert found == [old] * changed_at + [new] * (len(points) - changed_at)
    for point in points:
        assert point["files"] == ["vault", "vault.lock"], "what a crash left is cleared away"
        assert point["afterwards"] == {**point["holds"], "afterwards": "value"}  # type: ignore[dict-item]


def test_killed_at_any_moment_nothing_that_was_told_is_lost(tmp_path: Path) -> None:
    for left in left_by("anywhen", tmp_path):
        holds, told = left["holds"], left["told"]
        assert isinstance(holds, dict), holds
        assert isinstance(told, int)
        assert int(holds["count"]) - told in (0, 1)


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    codes, last = left_by("together", tmp_path)
    assert codes == {"codes": [0, 0, 0, 0]}
    assert isinstance(last["holds"], dict)
    assert len(last["holds"]) == 40


def test_nobody_waits_while_a_person_is_asked(protected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "LOCK_WAIT_S", 0.0)

    class Slow(Keys):
        def ask(self) -> str:
            vault_at(protected).set("meanwhile", "value", 1)
            return super().ask()

    vault_at(protected, Slow()).set("a", "b", 2)
    assert [row.name for row in vault_at(protected).rows()] == ["a", "meanwhile", "openai"]


def test_who_waits_too_long_for_the_lock_is_told(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "LOCK_WAIT_S", 0.0)
    with PrivateFile(kept, KIND).locked():
        assert code_of(lambda: vault_at(kept).set("a", "b", 1)) == "vault_busy"
        assert vault_at(kept).get("openai") == VALUE, "readers do not wait"
    assert vault_at(kept).set("a", "b", 1) is False


def test_lock_is_the_key_files_by_name(kept: Path) -> None:
    assert isinstance(read_lock(split_header(kept.read_bytes(), kept)[0], kept), KeyFileLock)
    assert kept.read_bytes().startswith(b'palyra-vault 1 {"lock":"key-file",')
