"""Commands that people type in a channel: the same words as in `palyra chat`.

Does not own: what a command does (engine.channels.commands).
"""

from enum import Enum

import msgspec

ARGUMENT_LENGTH_MAX = 200


class CommandName(Enum):
    NEW = "/new"
    STATUS = "/status"
    CANCEL = "/cancel"
    COMPACT = "/compact"
    APPROVE = "/approve"
    DENY = "/deny"
    USAGE = "/usage"
    WHOAMI = "/whoami"
    HELP = "/help"


class ChannelCommand(msgspec.Struct, frozen=True):
    name: CommandName
    argument: str = ""


SUMMARIES: dict[CommandName, str] = {
    CommandName.NEW: "start over: earlier words are no longer context",
    CommandName.STATUS: "say what is going on here",
    CommandName.CANCEL: "cancel the run (/stop too)",
    CommandName.COMPACT: "summarise the older part of this conversation",
    CommandName.APPROVE: "allow the call that waits; with an id, that one",
    CommandName.DENY: "refuse the call that waits; with an id, that one; with session or timeboxed, equal calls too",
    CommandName.USAGE: "say what this conversation has cost",
    CommandName.WHOAMI: "say who you are to me",
    CommandName.HELP: "show this list",
}
ALIASES = {"/stop": CommandName.CANCEL, "/start": CommandName.HELP}

_BY_WORD = {name.value: name for name in CommandName} | ALIASES


def parse_command(text: str) -> ChannelCommand | None:
    """Reads a command. `/cancel@palyra_bot`, as platforms write it in groups, is the same. None if it is none."""
    word, _, rest = text.strip().partition(" ")
    name = _BY_WORD.get(word.partition("@")[0].lower())
    if name is None or "\n" in text.strip():
        return None
    return ChannelCommand(name, rest.strip()[:ARGUMENT_LENGTH_MAX])


def help_text() -> str:
    return "\n".join(f"{name.value}  {summary}" for name, summary in SUMMARIES.items())
