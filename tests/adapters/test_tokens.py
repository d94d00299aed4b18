"""Tokens in files: made once, kept private, found by hash alone, revoked at once, and refused when in doubt."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from secrets import token_hex

import pytest

from palyra.adapters.files.private import PrivateFile
from palyra.adapters.tokens.files import TOKENS, FileTokens, ensure_admin_token
from palyra.core.errors import Corrupt, NotFound, Unavailable
from palyra.core.ids import Principal
from palyra.ports.tokens import Role, TokenRow, hash_token, includes, is_valid
from tests.support.waiting import WAIT_S

ALICE = Principal("user:alice")


@pytest.fixture
def tokens(tmp_path: Path) -> FileTokens:
    return FileTokens(tmp_path / "home" / "admin.token", tmp_path / "home" / "tokens.jsonl")


def admin_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "admin.token"


def rows_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "tokens.jsonl"


def new_row(role: Role = Role.USER, expires_at_ms: int | None = None) -> TokenRow:
    return TokenRow(id=token_hex(8), hash="", principal=ALICE, role=role, created_at_ms=1, expires_at_ms=expires_at_ms)


def issue(tokens: FileTokens, role: Role = Role.USER) -> str:
    return tokens.issue(new_row(role))


async def test_admin_token_is_made_once_and_is_the_owners(tmp_path: Path, tokens: FileTokens) -> None:
    token = ensure_admin_token(admin_path(tmp_path))
    assert ensure_admin_token(admin_path(tmp_path)) == token
    assert token.startswith("palyra_")
    assert stat.S_IMODE(admin_path(tmp_path).stat().st_mode) == 0o600
    row = await tokens.find(hash_token(token))
    assert row is not None
    assert (row.id, row.principal, row.role) == ("admin", "user:owner", Role.ADMIN)


async def test_nobody_is_known_without_files(tokens: FileTokens) -> None:
    assert await tokens.find(hash_token("palyra_anything")) is None
    assert tokens.rows() == ()


async def test_issued_token_is_found_and_never_stored(tmp_path: Path, tokens: FileTokens) -> None:
    token = issue(tokens)
    row = await tokens.find(hash_token(token))
    assert row is not None
    assert (row.principal, row.role, is_valid(row, 5)) == (ALICE, Role.USER, True)
    assert token not in rows_path(tmp_path).read_text()
    assert stat.S_IMODE(rows_path(tmp_path).stat().st_mode) == 0o600


async def test_several_tokens_live_side_by_side(tokens: FileTokens) -> None:
    issued = [issue(tokens, role) for role in Role]
    found = [await tokens.find(hash_token(token)) for token in issued]
    assert [row.role for row in found if row is not None] == list(Role)


async def test_the_nodes_own_token_is_listed_first_and_replaced_at_once(tmp_path: Path, tokens: FileTokens) -> None:
    issue(tokens)
    old = ensure_admin_token(admin_path(tmp_path))
    assert tokens.rows()[0].id == "admin"
    new = tokens.rotate_admin()
    assert admin_path(tmp_path).read_text().strip() == new
    assert stat.S_IMODE(admin_path(tmp_path).stat().st_mode) == 0o600
    assert await tokens.find(hash_token(old)) is None
    assert await tokens.find(hash_token(new)) is not None


def test_rows_of_an_earlier_release_are_read(tmp_path: Path, tokens: FileTokens) -> None:
    issue(tokens)
    old = {"id": "a", "hash": "0" * 64, "principal": "user:bob", "role": "user", "created_at_ms": 1}
    with rows_path(tmp_path).open("a") as file:
        file.write(f"{json.dumps(old)}\n")
    assert [(row.label, row.actions) for row in tokens.rows()] == [("", ()), ("", ())]


ISSUING = """
import sys
from pathlib import Path
from palyra.adapters.tokens.files import FileTokens
from tests.adapters.test_tokens import new_row
root = Path(sys.argv[1])
tokens = FileTokens(root / "admin.token", root / "tokens.jsonl")
for _ in range(int(sys.argv[2])):
    print(tokens.issue(new_row()), flush=True)
"""


def issuing(tmp_path: Path, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", ISSUING, str(tmp_path / "home"), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_change_tokens_at_once_lose_nothing(tmp_path: Path, tokens: FileTokens) -> None:
    first = tokens.issue(new_row())
    processes = [issuing(tmp_path, 25) for _ in range(3)]
    tokens.revoke(tokens.rows()[0].id)
    said = [process.communicate(timeout=WAIT_S)[0].split() for process in processes]
    issued = {hash_token(token) for each in said for token in each}
    assert len(issued) == 75
    assert {row.hash for row in tokens.rows()} == issued | {hash_token(first)}
    assert [row.revoked for row in tokens.rows()].count(True) == 1


@pytest.mark.parametrize("heard_count", [1, 3, 8, 15])
def test_killed_in_the_middle_leaves_the_old_or_the_new_and_no_lock(
    tmp_path: Path, tokens: FileTokens, heard_count: int
) -> None:
    with issuing(tmp_path, 10_000) as process:
        assert process.stdout is not None
        heard = [process.stdout.readline().strip() for _ in range(heard_count)]
        process.kill()
        rest = process.stdout.read().split("\n")[:-1]
    acknowledged = {hash_token(token) for token in (*heard, *rest)}
    kept = {row.hash for row in tokens.rows()}
    assert acknowledged <= kept
    assert len(kept) - len(acknowledged) <= 1
    issue(tokens)
    assert len(tokens.rows()) == len(kept) + 1


def test_a_lock_that_is_never_let_go_is_not_waited_for_without_end(
    tmp_path: Path, tokens: FileTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palyra.adapters.files.lock.LOCK_WAIT_S", 0.0)
    with PrivateFile(rows_path(tmp_path), TOKENS).locked(), pytest.raises(Unavailable) as caught:
        issue(tokens)
    assert caught.value.code == "tokens_busy"
    issue(tokens)


def uses_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "tokens.last-use.json"


def test_a_use_is_noted_to_the_minute_and_written_only_when_told_to(tmp_path: Path, tokens: FileTokens) -> None:
    issue(tokens)
    for second in range(119):
        tokens.used("a", 60_000 + second * 1000)
    assert not uses_path(tmp_path).exists()
    assert tokens.last_uses() == {"a": 120_000}
    tokens.flush_uses()
    assert stat.S_IMODE(uses_path(tmp_path).stat().st_mode) == 0o600
    inode = uses_path(tmp_path).stat().st_ino
    tokens.used("a", 179_999)
    tokens.flush_uses()
    assert uses_path(tmp_path).stat().st_ino == inode
    another = FileTokens(admin_path(tmp_path), rows_path(tmp_path))
    another.used("b", 240_000)
    another.flush_uses()
    assert FileTokens(admin_path(tmp_path), rows_path(tmp_path)).last_uses() == {"a": 120_000, "b": 240_000}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a":"x"}', b"\xff"])
def test_a_damaged_note_of_uses_counts_as_none(tmp_path: Path, tokens: FileTokens, content: bytes) -> None:
    tokens.used("a", 60_000)
    tokens.flush_uses()
    uses_path(tmp_path).write_bytes(content)
    fresh = FileTokens(admin_path(tmp_path), rows_path(tmp_path))
    assert fresh.last_uses() == {}
    fresh.used("a", 120_000)
    fresh.flush_uses()
    assert FileTokens(admin_path(tmp_path), rows_path(tmp_path)).last_uses() == {"a": 120_000}


async def test_revocation_by_another_process_is_seen_by_the_next_request(tmp_path: Path, tokens: FileTokens) -> None:
    token = issue(tokens)
    row = await tokens.find(hash_token(token))
    assert row is not None
    FileTokens(admin_path(tmp_path), rows_path(tmp_path)).revoke(row.id)
    revoked = await tokens.find(hash_token(token))
    assert revoked is not None
    assert not is_valid(revoked, 5)


async def test_removed_admin_token_is_refused_at_once(tmp_path: Path, tokens: FileTokens) -> None:
    token = ensure_admin_token(admin_path(tmp_path))
    assert await tokens.find(hash_token(token)) is not None
    admin_path(tmp_path).unlink()
    assert await tokens.find(hash_token(token)) is None


def test_revoking_what_is_not_there_is_said(tokens: FileTokens) -> None:
    with pytest.raises(NotFound):
        tokens.revoke("nope")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
async def test_file_that_others_can_reach_accepts_nobody(tmp_path: Path, tokens: FileTokens, mode: int) -> None:
    token = issue(tokens)
    os.chmod(rows_path(tmp_path), mode)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await tokens.find(hash_token(token))


@pytest.mark.parametrize("content", ["{}\n", "not json\n", '{"id":"a","unknown":1}\n', "\xff"])
async def test_damaged_file_accepts_nobody_but_the_admin(tmp_path: Path, tokens: FileTokens, content: str) -> None:
    token = issue(tokens)
    with rows_path(tmp_path).open("ab") as file:
        file.write(content.encode("latin-1"))
    with pytest.raises(Corrupt):
        await tokens.find(hash_token(token))
    admin = ensure_admin_token(admin_path(tmp_path))
    assert await tokens.find(hash_token(admin)) is not None


@pytest.mark.parametrize("content", ["", "\n", "short", "palyra_" + "é" * 40])
async def test_damaged_admin_file_accepts_nobody(tmp_path: Path, tokens: FileTokens, content: str) -> None:
    ensure_admin_token(admin_path(tmp_path))
    admin_path(tmp_path).write_text(content)
    with pytest.raises(Corrupt):
        await tokens.find(hash_token(content))


def test_expired_token_is_not_valid() -> None:
    row = new_row(expires_at_ms=10)
    assert (is_valid(row, 9), is_valid(row, 10)) == (True, False)


def test_roles_include_those_below_them() -> None:
    assert [includes(Role.OPERATOR, role) for role in Role] == [True, True, True, False]
