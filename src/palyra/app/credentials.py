"""Wiring of access: the tokens and console sessions of a daemon.

Owns: opening them for a daemon, and changing tokens without one.
Does not own: rules (gateway.access), files (adapters.tokens).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
import structlog

from palyra.adapters.clock import SystemClock
from palyra.adapters.tokens.files import ADMIN_PRINCIPAL, FileTokens, ensure_admin_token
from palyra.app import Home, now_ms, open_offline
from palyra.core.errors import Invalid, PalyraError
from palyra.core.events import Draft
from palyra.core.events.base import JsonObject
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal, derive_node_id
from palyra.core.trust import Trust
from palyra.engine.system_tape import append_to_system
from palyra.gateway.access.console_sessions import ConsoleSessions
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.routes.login import link_path
from palyra.gateway.routes.table import ROUTES
from palyra.gateway.routes.tokens import (
    ACT_OF_ROTATE,
    IssuedToken,
    RotatedToken,
    TokenBody,
    TokenRecord,
    act_of_issue,
    act_of_revoke,
    make_row,
    require_issued,
    route_actions,
    token_record,
    token_records,
)
from palyra.ports.policy import AccessPolicy
from palyra.ports.tokens import Role, covers, hash_token, includes, is_valid

USES_EVERY_S = 60.0
STARTS = "runs.start"

Answer = TypeVar("Answer")


def open_credentials(home: Home, policy: AccessPolicy) -> tuple[FileTokens, Credentials]:
    """The tokens are given besides, for what only files need: writing down when they were used."""
    ensure_admin_token(home.admin_token)
    tokens = FileTokens(home.admin_token, home.tokens)
    return tokens, Credentials(tokens, tokens, ConsoleSessions(time.monotonic), policy, SystemClock())


def login_link(home: Home, credentials: Credentials) -> str:
    """What comes behind the daemon's address: good once, for the holder of the node's own token."""
    return link_path(credentials.logins.new_code(hash_token(ensure_admin_token(home.admin_token))))


def workers(tokens: FileTokens) -> tuple[Principal, ...]:
    """Returns the principals whose tokens may start runs now."""
    at_ms = now_ms()
    return tuple(
        row.principal
        for row in tokens.rows()
        if is_valid(row, at_ms) and includes(row.role, Role.USER) and covers(row.actions, STARTS)
    )


@asynccontextmanager
async def noting_uses(tokens: FileTokens) -> AsyncIterator[None]:
    """Writes down when tokens were used, once a minute and at the end."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(USES_EVERY_S)
            await asyncio.to_thread(_flush, tokens)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.to_thread(_flush, tokens)


def _flush(tokens: FileTokens) -> None:
    """A time of last use is not worth ending the daemon for, nor its orderly end."""
    try:
        tokens.flush_uses()
    except PalyraError as error:
        structlog.get_logger().warning("token_uses_not_written", code=error.code, message=error.message)


def list_tokens(home: Home) -> tuple[TokenRecord, ...]:
    return token_records(_tokens(home), now_ms())


def issue_token(home: Home, wish: JsonObject) -> IssuedToken:
    """Issues a token without a daemon, as the daemon's route does."""
    try:
        body = msgspec.convert(wish, TokenBody)
    except msgspec.ValidationError as cause:
        raise Invalid("token_wish_invalid", str(cause)) from cause
    actions = route_actions(frozenset(route.action for route in ROUTES if route.needs_credentials))
    row = make_row(body, now_ms(), actions)
    token = _recorded(home, act_of_issue(row), lambda: _tokens(home).issue(row))
    return IssuedToken(token=token, record=token_record(row, None, now_ms()))


def revoke_token(home: Home, token_id: str) -> TokenRecord:
    row = require_issued(_tokens(home).rows(), token_id)
    revoked = _recorded(home, act_of_revoke(row), lambda: _tokens(home).revoke(row.id))
    return token_record(revoked, None, now_ms())


def rotate_admin_token(home: Home) -> RotatedToken:
    return RotatedToken(_recorded(home, ACT_OF_ROTATE, _tokens(home).rotate_admin))


def _tokens(home: Home) -> FileTokens:
    return FileTokens(home.admin_token, home.tokens)


def _recorded(home: Home, act: AdminActed, change: Callable[[], Answer]) -> Answer:
    """Records the action on the node's tape before it is done. A home that never had a daemon has no tape yet."""
    if home.journal.exists():
        asyncio.run(_record(home, act))
    return change()


async def _record(home: Home, act: AdminActed) -> None:
    from palyra.adapters.keys.signer import FileSigner

    node = derive_node_id(FileSigner(home.signing_key, home.public_keys).public_key)
    draft = Draft(data=act, actor=ADMIN_PRINCIPAL, trust=Trust.OPERATOR, at_ms=now_ms())
    async with open_offline(home) as offline:
        await append_to_system(offline.journal, node, (draft,))
