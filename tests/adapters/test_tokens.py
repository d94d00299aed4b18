"""Tokens in files: made once, kept private, found by hash alone, revoked at once, and refused when in doubt."""

import os
import stat
from pathlib import Path

import pytest

from palyra.adapters.tokens.files import FileTokens, ensure_admin_token, new_row
from palyra.core.errors import Corrupt, NotFound, Unavailable
from palyra.core.ids import Principal
from palyra.ports.tokens import Role, hash_token, includes, is_valid

ALICE = Principal("user:alice")


@pytest.fixture
def tokens(tmp_path: Path) -> FileTokens:
    return FileTokens(tmp_path / "home" / "admin.token", tmp_path / "home" / "tokens.jsonl")


def admin_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "admin.token"


def rows_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "tokens.jsonl"


def issue(tokens: FileTokens, role: Role = Role.USER) -> str:
    return tokens.issue(new_row(ALICE, role, 1, None))


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
    row = new_row(ALICE, Role.USER, 1, 10)
    assert (is_valid(row, 9), is_valid(row, 10)) == (True, False)


def test_roles_include_those_below_them() -> None:
    assert [includes(Role.OPERATOR, role) for role in Role] == [True, True, True, False]
