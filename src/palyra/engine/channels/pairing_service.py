"""Pairing: codes that are issued and used, the question that follows, and links of accounts.

Owns: committing what core.channels.pairing_codes decides, with its events on the node's system tape.
Does not own: who may issue a code or answer (gateway.access), sending words (intake).
Invariants: a code is used once, because codes are consumed one at a time and the use is committed with the question. A
wrong code, an expired one and one of another channel count and are answered alike. Nobody gives an account a role above
their own, not even by confirming what somebody else had in mind.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from palyra.core.channel_writes import (
    CountPairingAttempts,
    DropPairingRequest,
    PutLink,
    PutPairingCode,
    PutPairingRequest,
)
from palyra.core.channels.identity import AccountLink
from palyra.core.channels.model import DISPLAY_LENGTH_MAX, InboundMessage
from palyra.core.channels.pairing_codes import (
    CHANNEL_ATTEMPTS_MAX,
    CODE_LIFE_MS,
    CODE_RANDOM_BYTES,
    CODES_OPEN_MAX,
    DAY_MS,
    LINK_DAYS_DEFAULT,
    LINK_DAYS_MAX,
    PairingAttempts,
    PairingCode,
    PairingRequest,
    after_wrong,
    hash_code,
    is_locked,
    is_usable,
    make_code,
)
from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError, Unauthorized
from palyra.core.events import Data, Draft
from palyra.core.events.account_links import (
    PairingCarriedOver,
    PairingIssued,
    PairingLinked,
    PairingLocked,
    PairingRevoked,
)
from palyra.core.events.tool import ApprovalKind, ApprovalRequested, ApprovalResolved, ApprovalStatus, Decision, Risk
from palyra.core.ids import ApprovalId, Principal, length_prefixed, make_ulid, parse_principal
from palyra.core.trust import Trust
from palyra.core.writes import Write
from palyra.engine.api.requests import ApprovalAnswer
from palyra.engine.new_ids import IdSource
from palyra.engine.system_tape import SystemTape
from palyra.ports.channels import PairingViews
from palyra.ports.clock import Clock

PAIRING = Principal("system:pairing")
RULE = "pairing"
ROLES = ("viewer", "user", "operator", "admin")  # Each includes those before it.
LOOK_EVERY_S = 30.0
REQUESTS_MAX = 100  # Questions that wait at once.
CODES_KEPT_MS = DAY_MS
LINKS_PAGE = 500

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeWish:
    """What the operator has in mind for whoever uses a code; it is confirmed when the question is answered."""

    channel: str | None = None
    principal: Principal | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingService:
    """`key` hashes codes. `question_ms` is how long a question waits."""

    views: PairingViews
    system: SystemTape
    ids: IdSource
    clock: Clock
    key: bytes
    question_ms: int
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _told: list[Callable[[PairingRequest, bool], None]] = field(default_factory=list)

    async def issue(self, principal: Principal, wish: CodeWish) -> tuple[PairingCode, str]:
        """Returns a new code and its letters, which are stored nowhere."""
        now_ms = self.clock.now_ms()
        _require_role(wish.role)
        if len(await self.views.codes(now_ms)) >= CODES_OPEN_MAX:
            raise Conflict("too_many_codes", f"{CODES_OPEN_MAX} codes wait already; wait until they expire")
        letters = make_code(secrets.token_bytes(CODE_RANDOM_BYTES))
        code = PairingCode(
            id=self.ids.mark_id(),
            code_hash=hash_code(self.key, letters),
            made_by=principal,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + CODE_LIFE_MS,
            channel=wish.channel,
            principal=None if wish.principal is None else _person(wish.principal),
            role=wish.role,
        )
        fact = PairingIssued(code_id=code.id, expires_at_ms=code.expires_at_ms)
        await self._commit(principal, (fact,), (PutPairingCode(code, now_ms - CODES_KEPT_MS),))
        return code, letters

    async def consume(
        self, message: InboundMessage, letters: str, writes_after: Callable[[bool], tuple[Write, ...]]
    ) -> bool | None:
        """Uses a code. True asks the operator; False is a wrong code; None says nothing, as the sender is locked out.

        `writes_after` returns what is committed with either.
        """
        async with self._lock:
            now_ms = self.clock.now_ms()
            own = await self._attempts(message.channel, message.sender_id)
            everyones = await self._attempts(message.channel, "")
            earlier = await self._attempts(message.channel, message.earlier_sender_id or message.sender_id)
            if any(is_locked(each, now_ms) for each in (own, everyones, earlier)):
                return None
            code = await self.views.code(hash_code(self.key, letters))
            if code is None or not is_usable(code, message.channel, now_ms):
                await self._count_wrong(own, everyones, writes_after(False))
                return False
            if len(await self.views.requests(REQUESTS_MAX)) >= REQUESTS_MAX:
                return False
            await self._ask(message, code, writes_after(True))
            return True

    async def answer(self, approval_id: ApprovalId, answer: ApprovalAnswer, by: Principal) -> None:
        """Answers a pairing question once. Allow links the account to a principal."""
        async with self._lock:
            now_ms = self.clock.now_ms()
            request = await self.views.request(approval_id)
            if request is None:
                raise Conflict("approval_decided", f"approval {approval_id} is decided already", is_retryable=False)
            if request.expires_at_ms <= now_ms:
                await self._resolve(request, ApprovalStatus.EXPIRED, PAIRING)
                raise Conflict("approval_expired", f"approval {approval_id} has expired", is_retryable=False)
            is_allowed = answer.decision is Decision.ALLOW
            link = self._link(request, answer, by, now_ms) if is_allowed else None
            status = ApprovalStatus.ALLOWED if is_allowed else ApprovalStatus.DENIED
            await self._resolve(request, status, by, answer.reason, link)
        for told in self._told:
            told(request, is_allowed)

    def on_answer(self, told: Callable[[PairingRequest, bool], None]) -> None:
        self._told.append(told)

    async def revoke(self, link_id: str, by: Principal) -> AccountLink:
        link = await self.views.link_by_id(link_id)
        if link is None:
            raise NotFound("link_unknown", f"there is no link {link_id}; palyra pair list shows those there are")
        if link.revoked_at_ms is not None:
            raise Conflict("link_revoked", f"link {link_id} was revoked already", is_retryable=False)
        ended = replace(link, revoked_at_ms=self.clock.now_ms())
        await self._commit(by, (PairingRevoked(link_id=link.id, principal=link.principal),), (PutLink(ended),))
        return ended

    async def carry_over(self, channel: str, workspace: str) -> None:
        """Names the workspace of accounts that were stored without one, as earlier releases did."""
        async with self._lock:
            links: list[AccountLink] = []
            while page := await self.views.links(channel, links[-1].id if links else "", LINKS_PAGE):
                links += page
            bare = [replace(each, sender_id=f"{workspace}:{each.sender_id}") for each in links if _is_bare(each)]
            asked = [
                replace(each, sender_id=f"{workspace}:{each.sender_id}")
                for each in await self.views.requests(REQUESTS_MAX)
                if each.channel == channel and _is_bare(each)
            ]
            if bare or asked:
                fact = PairingCarriedOver(
                    channel=channel, workspace=workspace, links_count=len(bare), requests_count=len(asked)
                )
                await self._commit(PAIRING, (fact,), (*map(PutLink, bare), *map(PutPairingRequest, asked)))

    async def expire(self) -> int:
        """Ends questions that nobody answered in time: they count as no."""
        async with self._lock:
            late = [one for one in await self.views.requests(REQUESTS_MAX) if one.expires_at_ms <= self.clock.now_ms()]
            for request in late:
                await self._resolve(request, ApprovalStatus.EXPIRED, PAIRING)
            return len(late)

    async def keep(self) -> None:
        """Expires questions until it is cancelled."""
        while True:
            try:
                await self.expire()
            except PalyraError as error:
                log.warning("pairing_not_looked_at", code=error.code, message=error.message)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _attempts(self, channel: str, sender_id: str) -> PairingAttempts:
        found = await self.views.attempts(channel, sender_id)
        return found or PairingAttempts(channel=channel, sender_id=sender_id, since_ms=self.clock.now_ms())

    async def _count_wrong(self, own: PairingAttempts, everyones: PairingAttempts, writes: tuple[Write, ...]) -> None:
        now_ms = self.clock.now_ms()
        counted = (after_wrong(own, now_ms), after_wrong(everyones, now_ms, CHANNEL_ATTEMPTS_MAX))
        facts = [
            PairingLocked(channel=each.channel, until_ms=each.locked_until_ms, is_channel=not each.sender_id)
            for each in counted
            if is_locked(each, now_ms)
        ]
        log.warning("pairing_code_wrong", channel=own.channel, wrong_count=counted[0].wrong_count)
        await self._commit(PAIRING, facts, (*writes, *(CountPairingAttempts(each) for each in counted)))

    async def _ask(self, message: InboundMessage, code: PairingCode, writes: tuple[Write, ...]) -> None:
        now_ms = self.clock.now_ms()
        digest = hashlib.sha256(
            length_prefixed(b"pairing", message.channel.encode(), message.sender_id.encode(), code.id.encode())
        )
        approval_id = ApprovalId(make_ulid(now_ms, digest.digest()[:10]))
        request = PairingRequest(
            approval_id=approval_id,
            channel=message.channel,
            sender_id=message.sender_id,
            display=message.sender_display[:DISPLAY_LENGTH_MAX],
            conversation_id=message.conversation_id,
            digest=digest.hexdigest(),
            created_at_ms=now_ms,
            expires_at_ms=now_ms + self.question_ms,
            principal=code.principal,
            role=code.role,
        )
        asked = ApprovalRequested(
            approval_id=approval_id,
            kind=ApprovalKind.PAIRING,
            digest=request.digest,
            rule=RULE,
            expires_at_ms=request.expires_at_ms,
            risk=Risk.HIGH,
            reason=f"An account of the channel {message.channel} gave a pairing code.",
        )
        used = PutPairingCode(replace(code, used_at_ms=now_ms), now_ms - CODES_KEPT_MS)
        await self._commit(PAIRING, (asked,), (*writes, used, PutPairingRequest(request)))

    def _link(self, request: PairingRequest, answer: ApprovalAnswer, by: Principal, now_ms: int) -> AccountLink:
        principal = answer.principal or request.principal
        if principal is None:
            raise Invalid("principal_missing", "say whom the account belongs to: principal is user:NAME")
        role = answer.role or request.role or "user"
        _require_role(role)
        if ROLES.index(role) > ROLES.index(answer.role_max):
            message = f"the account would get the role {role}, and you may give {answer.role_max} at most"
            raise Unauthorized("role_insufficient", f"{message}; name another role, or ask somebody who may")
        life_ms = LINK_DAYS_DEFAULT * DAY_MS if answer.ttl_s is None else answer.ttl_s * 1000
        return AccountLink(
            id=self.ids.mark_id(),
            channel=request.channel,
            sender_id=request.sender_id,
            principal=_person(principal),
            role=role,
            display=request.display,
            made_by=by,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + min(life_ms, LINK_DAYS_MAX * DAY_MS),
        )

    async def _resolve(
        self,
        request: PairingRequest,
        status: ApprovalStatus,
        by: Principal,
        reason: str = "",
        link: AccountLink | None = None,
    ) -> None:
        facts: list[Data] = []
        writes: list[Write] = [DropPairingRequest(request.approval_id)]
        if link is not None:
            writes.append(PutLink(link))
            facts.append(_linked(link, request.approval_id))
        resolved = ApprovalResolved(
            approval_id=request.approval_id,
            status=status,
            decision=Decision.ALLOW if status is ApprovalStatus.ALLOWED else Decision.DENY,
            decided_by=by,
            digest=request.digest,
            reason=reason,
        )
        await self._commit(by, (resolved, *facts), writes)

    async def _commit(self, actor: Principal, facts: Sequence[Data], writes: Sequence[Write]) -> None:
        trust = Trust.SYSTEM if actor.startswith("system:") else Trust.OPERATOR
        now_ms = self.clock.now_ms()
        drafts = [Draft(data=data, actor=actor, trust=trust, at_ms=now_ms) for data in facts]
        await self.system.append(drafts, writes)


def _linked(link: AccountLink, approval_id: ApprovalId) -> PairingLinked:
    return PairingLinked(
        link_id=link.id,
        approval_id=approval_id,
        channel=link.channel,
        principal=link.principal,
        role=link.role,
        expires_at_ms=link.expires_at_ms,
    )


def _is_bare(account: AccountLink | PairingRequest) -> bool:
    return ":" not in account.sender_id


def _require_role(role: str | None) -> None:
    if role is not None and role not in ROLES:
        raise Invalid("role_invalid", f"a role is one of {', '.join(ROLES)}")


def _person(principal: str) -> Principal:
    """Only people are linked: an account must not speak as a channel, an agent or the daemon."""
    if not principal.startswith("user:"):
        raise Invalid("principal_invalid", "an account is linked to a person: principal is user:NAME")
    return parse_principal(principal)
