"""Maps the names in a skill's `allowed-tools` to tools of our catalog.

Does not own: whether such a tool exists (engine).
Skills are written for many programs, and each names its tools its own way. A name that means none of ours allows
nothing.
"""

import re

import msgspec

PATTERNS_MAX = 256
# These are other programs' names of tools, without case. The table in docs/skills.md is this one.
FOREIGN: dict[str, tuple[str, ...]] = {
    "read": ("fs.read",),
    "write": ("fs.write",),
    "edit": ("fs.patch",),
    "multiedit": ("fs.patch",),
    "grep": ("fs.search",),
    "glob": ("fs.list", "fs.search"),
    "ls": ("fs.list",),
    "bash": ("shell.run",),
    "shell": ("shell.run",),
    "webfetch": ("http.fetch",),
    "task": ("agent.delegate",),
    "agent": ("agent.delegate",),
    "skill": ("skill.open",),
}

_OURS = re.compile(r"[a-z][a-z0-9_]*(?:\.[A-Za-z0-9_*?-]+)+|[a-z*][a-z0-9_]*\*|\*", re.ASCII)
_MCP = re.compile(r"mcp__([A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*)(?:__([A-Za-z0-9_*-]+))?", re.ASCII)
_WITH_RESTRICTION = re.compile(r"([A-Za-z]+)\((.*)\)", re.DOTALL)


class MappedTools(msgspec.Struct, frozen=True):
    """`patterns` of our tools; `unknown` names mean none; `loosened` ones lost a restriction that we cannot keep."""

    patterns: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    loosened: tuple[str, ...] = ()


def understand(names: list[str]) -> MappedTools:
    patterns: dict[str, None] = {}
    unknown: dict[str, None] = {}
    loosened: dict[str, None] = {}
    for name in names:
        restricted = _WITH_RESTRICTION.fullmatch(name)
        found = _meaning(restricted[1] if restricted else name)
        patterns.update(dict.fromkeys(found))
        if not found:
            unknown[name] = None
        elif restricted and restricted[2].strip() not in ("", "*"):
            loosened[name] = None
    return MappedTools(tuple(patterns), tuple(unknown), tuple(loosened))


def split_names(text: str) -> list[str]:
    """Splits at spaces or commas; `Bash(git log:*)` is one word."""
    names: list[str] = []
    word, depth = "", 0
    for letter in text:
        depth = max(0, depth + (letter == "(") - (letter == ")"))
        if depth == 0 and (letter.isspace() or letter == ","):
            names.append(word)
            word = ""
        else:
            word += letter
    return [name for name in (*names, word) if name]


def _meaning(name: str) -> tuple[str, ...]:
    if name.casefold() in FOREIGN:
        return FOREIGN[name.casefold()]
    if _OURS.fullmatch(name):
        return (name,)
    of_server = _MCP.fullmatch(name)
    if of_server:
        return (f"mcp.{of_server[1]}.{of_server[2] or '*'}",)
    return ()
