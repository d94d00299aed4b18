"""Commands that people type in a channel: the same words as in `palyra chat`.

Does not own: what a command does (engine.channels.commands).
"""

import re
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

_COMMAND_LIKE = re.compile(r"(/[A-Za-z0-9_]{1,32})(?:@\w+)?(?: [^\n]*)?")
_BY_WORD = {name.value: name for name in CommandName} | ALIASES


def parse_command(text: str) -> ChannelCommand | None:
    """Reads a command. `/cancel@palyra_bot`, as platforms write it in groups, is the same. None if it is none."""
    word, _, rest = text.strip().partition(" ")
    name = _BY_WORD.get(word.partition("@")[0].lower())
    if name is None or "\n" in text.strip():
        return None
    return ChannelCommand(name, rest.strip()[:ARGUMENT_LENGTH_MAX])


def find_unknown_command(text: str) -> str | None:
    """Returns the word of a command that does not exist. A path such as `/etc/hosts` is none."""
    found = _COMMAND_LIKE.fullmatch(text.strip())
    return found[1] if found is not None and found[1].lower() not in _BY_WORD else None


def unknown_command_text(word: str) -> str:
    return f"I know no command {word}; /help lists those I know. If you mean words for me, do not begin with a slash."


def help_text() -> str:
    return "\n".join(f"{name.value}  {summary}" for name, summary in SUMMARIES.items())
