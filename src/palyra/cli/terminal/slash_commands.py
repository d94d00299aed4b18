"""The slash commands of a chat: their names, their arguments, and what /help prints.

Owns: the one table from which help and completion are made.
Does not own: what a command does (conversation).
"""

import msgspec


class SlashCommand(msgspec.Struct, frozen=True):
    """`argument` is empty if the command takes none."""

    name: str
    text: str
    argument: str = ""


SLASH_COMMANDS = (
    SlashCommand("/help", "show this list"),
    SlashCommand("/attach", "attach a file to your next message; without FILE, attach none", "FILE"),
    SlashCommand("/pin", "keep TEXT in the context; without TEXT, the last message", "TEXT"),
    SlashCommand("/unpin", "remove a pin by its number; without one, the newest", "NUMBER"),
    SlashCommand("/pins", "list what is pinned"),
    SlashCommand("/new", "start a new session"),
    SlashCommand("/sessions", "list sessions"),
    SlashCommand("/approvals", "list open questions"),
    SlashCommand("/compact", "summarise the older part of this session, to make room"),
    SlashCommand("/cancel", "cancel the run"),
    SlashCommand("/quit", "leave (Ctrl-D too)"),
)

_KEYS = (
    ("Enter", "send; while a run is active your line steers it"),
    ("Alt-Enter", "a new line; so does a backslash at the end of a line"),
    ("Tab", "complete a command, a file name or a reference"),
    ("@", "refer to something: @file:notes.md, @folder:src, @diff, @url:…"),
    ("Up, Ctrl-R", "earlier lines, also of earlier chats"),
    ("Ctrl-C", "clear the line, or cancel the run; twice to leave"),
)


def help_text() -> str:
    rows = [*_KEYS, *((f"{each.name} {each.argument}".rstrip(), each.text) for each in SLASH_COMMANDS)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)
