"""The ChannelRouter: decides what becomes of a message that came in.

Owns: deny lists, allow lists, the policy for direct messages, mentions in groups and broadcasts.
Does not own: duplicates (they are looked up in the journal), whose a message is (identity), performing (engine.channels).
Invariant: what no rule lets in is ignored, with the reason (deny by default). Who is ignored is told nothing.
An unverified sender gives no command and no code, and is told nothing by whoever performs what is decided here.
"""

import re
from functools import lru_cache
from typing import assert_never

import msgspec

from palyra.core.channels.commands import ChannelCommand, CommandName, find_unknown_command, parse_command
from palyra.core.channels.model import (
    ANYONE,
    SELF,
    BroadcastStrategy,
    ChannelKind,
    ChannelRules,
    DirectMessages,
    InboundMessage,
)
from palyra.core.channels.pairing_codes import find_code, find_shown_code

MATCHED_LENGTH_MAX = 4_000  # A pattern of the operator's looks at the beginning of a message only.


class Ignored(msgspec.Struct, frozen=True):
    """Nothing happens and nobody is told. `reason` is for the log."""

    reason: str


class PairingNeeded(msgspec.Struct, frozen=True):
    """A stranger writes where strangers may pair: they are told how."""


class CodeGiven(msgspec.Struct, frozen=True):
    """A stranger gives a pairing code."""

    code: str


class CommandGiven(msgspec.Struct, frozen=True):
    command: ChannelCommand


class UnknownCommandGiven(msgspec.Struct, frozen=True):
    """Somebody who may speak mistypes a command, or means another bot's: they are told, and the agent is not."""

    word: str


class CommandUnproven(msgspec.Struct, frozen=True):
    """A command that came without the proof that its platform needs for one: the sender is told how to give it."""


class WordsGiven(msgspec.Struct, frozen=True):
    text: str


Routed = Ignored | PairingNeeded | CodeGiven | CommandGiven | CommandUnproven | UnknownCommandGiven | WordsGiven


def route(message: InboundMessage, rules: ChannelRules, is_linked: bool) -> Routed:
    """Decides. `is_linked` says that the sender's account is linked to a principal."""
    if _names(message, rules.deny_from):
        return Ignored("sender_denied")
    is_known = message.sender_verified and (is_linked or _is_listed(message, rules))
    if not message.is_direct:
        return _route_group(message, rules, is_known)
    may_speak = is_known or rules.dm_policy is DirectMessages.ALLOW
    code = find_shown_code(message.text) if may_speak and message.sender_verified and not is_linked else None
    if code is not None:
        return CodeGiven(code)
    if is_known:
        return _understood(message, rules)
    match rules.dm_policy:
        case DirectMessages.ALLOW:
            return _understood(message, rules)
        case DirectMessages.DENY:
            return Ignored("direct_denied")
        case DirectMessages.PAIRING:
            if not message.sender_verified:
                return Ignored("sender_unverified")
            code = find_code(message.text)
            return PairingNeeded() if code is None else CodeGiven(code)
        case _:
            assert_never(rules.dm_policy)


def _route_group(message: InboundMessage, rules: ChannelRules, is_known: bool) -> Routed:
    if not is_known:
        return Ignored("sender_not_allowed")
    is_mentioned = SELF in message.mentions or message.pressed is not None or _names_us(message.text, rules)
    if message.requested_broadcast:
        match rules.broadcast:
            case BroadcastStrategy.DENY:
                return Ignored("broadcast_denied")
            case BroadcastStrategy.MENTION_ONLY:
                return _understood(message, rules) if is_mentioned else Ignored("broadcast_without_mention")
            case BroadcastStrategy.ALLOW:
                return _understood(message, rules)
            case _:
                assert_never(rules.broadcast)
    return _understood(message, rules) if is_mentioned else Ignored("not_mentioned")


def _understood(message: InboundMessage, rules: ChannelRules) -> Routed:
    after_name = _after_name(message.text, rules)
    command = parse_command(message.pressed or message.text) or parse_command(after_name)
    if command is not None:
        return CommandGiven(command) if message.may_command else CommandUnproven()
    if message.pressed is not None:
        return Ignored("button_unknown")
    word = find_unknown_command(message.text) or find_unknown_command(after_name)
    if word is not None:
        return UnknownCommandGiven(word)
    if not message.text.strip() and not message.attachments and not message.has_files:
        return Ignored("empty")
    return WordsGiven(message.text)


def _is_listed(message: InboundMessage, rules: ChannelRules) -> bool:
    """Tells whether the channel's rules name the sender. Anyone of Discord's guilds is not anyone of Discord."""
    is_anyone = ANYONE in rules.allow_from and not (rules.kind is ChannelKind.DISCORD and message.is_direct)
    return is_anyone or _names(message, rules.allow_from)


def _names(message: InboundMessage, listed: tuple[str, ...]) -> bool:
    """Tells whether a list names the sender. An id without a workspace is one of the channel's own."""
    return message.sender_id in listed or message.earlier_sender_id in listed


def _names_us(text: str, rules: ChannelRules) -> bool:
    return any(_pattern(each).search(text[:MATCHED_LENGTH_MAX]) for each in rules.mention_patterns)


def _after_name(text: str, rules: ChannelRules) -> str:
    """Returns what follows a mention at the beginning, as in `palyra: /status`."""
    found = (_pattern(each).match(text[:MATCHED_LENGTH_MAX].lstrip()) for each in rules.mention_patterns)
    ends = [match.end() for match in found if match is not None]
    return text.lstrip()[max(ends) :].lstrip(" ,:") if ends else ""


@lru_cache(256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


__all__ = [
    "CodeGiven",
    "CommandGiven",
    "CommandName",
    "CommandUnproven",
    "Ignored",
    "PairingNeeded",
    "Routed",
    "UnknownCommandGiven",
    "WordsGiven",
    "route",
]
