"""Console sessions of browsers, and the single-use codes that open them.

Owns: codes and sessions, in memory. All of them end with the process.
Does not own: cookies (routes.login), tokens (ports.tokens).
Invariants: a code opens one session. Only hashes of codes and of session ids are kept. A session permits what the token
permits that opened it, and ends with that token.
"""

import hmac
import secrets
from collections.abc import Callable

import msgspec

from palyra.ports.tokens import hash_token

CODE_LIFE_S = 600.0
CODES_MAX = 16  # Links that wait to be used; the oldest goes first.
SESSIONS_MAX = 256
IDLE_S = 2 * 3600.0  # Without any request.
LIFE_S = 24 * 3600.0  # However busy.
SECRET_BYTES = 32


class ConsoleSession(msgspec.Struct, frozen=True, kw_only=True):
    """`token_hash` is of the token it was opened with. Times are monotonic."""

    id_hash: str
    token_hash: str
    csrf_token: str
    opened_at_s: float
    used_at_s: float


class OpenedConsole(msgspec.Struct, frozen=True):
    """`id` goes into the cookie and nowhere else."""

    id: str
    session: ConsoleSession


class _Code(msgspec.Struct, frozen=True):
    token_hash: str
    expires_at_s: float


class ConsoleSessions:
    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now_s = monotonic_s
        self._codes: dict[str, _Code] = {}
        self._sessions: dict[str, ConsoleSession] = {}

    def new_code(self, token_hash: str) -> str:
        """For whoever holds that token."""
        while len(self._codes) >= CODES_MAX:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._codes[hash_token(code)] = _Code(token_hash, self._now_s() + CODE_LIFE_S)
        return code

    def redeem(self, code: str) -> str | None:
        """The hash of the token the code stands for, once; None if there is no such code any more."""
        found = self._codes.pop(hash_token(code), None)
        return found.token_hash if found is not None and self._now_s() < found.expires_at_s else None

    def open(self, token_hash: str) -> OpenedConsole:
        now_s = self._now_s()
        self._forget_ended(now_s)
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[min(self._sessions.values(), key=lambda held: held.used_at_s).id_hash]
        session_id = secrets.token_urlsafe(SECRET_BYTES)
        session = ConsoleSession(
            id_hash=hash_token(session_id),
            token_hash=token_hash,
            csrf_token=secrets.token_urlsafe(SECRET_BYTES),
            opened_at_s=now_s,
            used_at_s=now_s,
        )
        self._sessions[session.id_hash] = session
        return OpenedConsole(session_id, session)

    def find(self, session_id: str) -> ConsoleSession | None:
        """The session of that id, which counts as used now."""
        now_s, id_hash = self._now_s(), hash_token(session_id)
        session = self._sessions.get(id_hash)
        if session is None or not hmac.compare_digest(session.id_hash, id_hash):
            return None
        if _is_ended(session, now_s):
            self.close(session)
            return None
        used = msgspec.structs.replace(session, used_at_s=now_s)
        self._sessions[id_hash] = used
        return used

    def close(self, session: ConsoleSession) -> None:
        self._sessions.pop(session.id_hash, None)

    def _forget_ended(self, now_s: float) -> None:
        self._sessions = {held.id_hash: held for held in self._sessions.values() if not _is_ended(held, now_s)}


def _is_ended(session: ConsoleSession, now_s: float) -> bool:
    return now_s - session.used_at_s >= IDLE_S or now_s - session.opened_at_s >= LIFE_S
