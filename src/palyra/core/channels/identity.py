"""Whose a message is: the speaker, the session's owner, and the trust of the words.

Owns: principals of senders, links of accounts to principals, and session keys.
Does not own: who is let in at all (router), storing links (core.writes).
Invariant: only a link that a person made gives a sender more trust than `external` (L8).
"""

import hashlib

import msgspec
from msgspec.structs import replace

from palyra.core.channels.model import ChannelKind, ChannelRules, InboundMessage
from palyra.core.ids import PRINCIPAL_LENGTH_MAX, Principal
from palyra.core.trust import Trust

KEY_PART_LENGTH_MAX = 80  # Three of them and the words between fit a session's key.
# Begins the account, and the conversation, of a sender whom the platform does not vouch for. It is no address of theirs.
UNPROVEN = "unproven:"
_KEPT = frozenset("-._~@+=/,!$&'()*;?#[]")


class AccountLink(msgspec.Struct, frozen=True, kw_only=True):
    """An account of a channel that a person linked to a principal.

    `role` is what the principal may do from this account. `display` is the name the platform showed at that time.
    """

    id: str
    channel: str
    sender_id: str
    principal: Principal
    role: str
    display: str
    made_by: Principal
    created_at_ms: int
    expires_at_ms: int
    revoked_at_ms: int | None = None


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks. `via` is the account that a linked principal speaks through. `role` is None while unlinked."""

    principal: Principal
    trust: Trust
    via: Principal | None = None
    role: str | None = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a message belongs to: its key and its owner."""

    session_key: str
    owner: Principal


def is_linked(link: AccountLink | None, now_ms: int) -> bool:
    return link is not None and link.revoked_at_ms is None and now_ms < link.expires_at_ms


def speaker_of(
    message: InboundMessage, kind: ChannelKind, link: AccountLink | None, may_approve: bool, now_ms: int
) -> Speaker:
    """Returns who speaks. Who only says that they are an account is not it: they have nothing of what is the account's."""
    account = account_principal(kind, f"{'' if message.sender_verified else UNPROVEN}{message.sender_id}")
    if link is None or not is_linked(link, now_ms) or not message.sender_verified:
        return Speaker(principal=account, trust=Trust.EXTERNAL)
    trust = Trust.OPERATOR if may_approve else Trust.LOCAL
    return Speaker(principal=link.principal, trust=trust, via=account, role=link.role)


def place_of(message: InboundMessage, rules: ChannelRules, speaker: Speaker) -> Place:
    """Returns the session. A direct conversation has one sender, so it is always that sender's own."""
    key = f"channel:{rules.name}:conversation:{_part(message.conversation_id)}"
    if not (rules.isolate_session_by_sender or message.is_direct):
        return Place(session_key=key, owner=channel_principal(rules.name))
    if rules.isolate_session_by_sender:
        key = f"{key}:sender:{_part(message.sender_id)}"
    return Place(session_key=key, owner=speaker.principal)


def as_earlier(message: InboundMessage) -> InboundMessage | None:
    """Returns the message under the id by which earlier releases knew its sender; None if that is the same."""
    earlier = message.earlier_sender_id
    return None if earlier is None else replace(message, sender_id=earlier)


def account_principal(kind: ChannelKind, sender_id: str) -> Principal:
    prefix = f"channel:{kind.value}:"
    named = "".join(letter if _fits(letter) or letter == ":" else _escaped(letter) for letter in sender_id)
    return Principal(_bounded(prefix, named, sender_id, PRINCIPAL_LENGTH_MAX - len(prefix)))


def channel_principal(name: str) -> Principal:
    return Principal(f"channel:{name}")


def _part(text: str) -> str:
    """Makes one part of a key. A colon within an id would let two keys be one."""
    named = "".join(letter if _fits(letter) else _escaped(letter) for letter in text)
    return _bounded("", named, text, KEY_PART_LENGTH_MAX)


def _bounded(prefix: str, named: str, text: str, length_max: int) -> str:
    if len(named) <= length_max:
        return prefix + named
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{prefix}{named[: length_max - len(mark) - 1]}~{mark}"


def _fits(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter in _KEPT)


def _escaped(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
