"""Managed blocks: parts of a text that the daemon keeps up to date between two marks (apply_workspace_managed_block).

    <!-- palyra:begin facts v3 sha256=… -->
    - The release branch is called stable.
    <!-- palyra:end facts -->

Owns: finding and applying a block in a text. Does not own: files, who may change them (engine.api).
The hash is that of the lines between the marks, without regard to their line ends. `v` counts the changes.
Invariants: text outside the block stays as it is, byte for byte. A block that somebody changed by hand is a conflict and
is never overwritten. Marks without their counterpart, and marks around other marks, are ordinary text: a block with such
a mark, or one that is there twice, is a conflict too. So nothing is lost, whatever a person does to the marks.
"""

import hashlib
import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from palyra.core.canonical import INTEGER_MAX
from palyra.core.errors import Invalid

LINES_MAX = 2_000
BODY_CHARS_MAX = 64 * 1024

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?", re.ASCII)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BEGIN = re.compile(r"<!-- palyra:begin (\S{1,64}) v([1-9][0-9]{0,14}) sha256=([0-9a-f]{64}) -->", re.ASCII)
_END = re.compile(r"<!-- palyra:end (\S{1,64}) -->", re.ASCII)
# Whatever reads as a mark, also if it is damaged.
_BEGIN_WORD = re.compile(r"palyra:begin", re.IGNORECASE)
_MARK = re.compile(r"<!--\s*palyra:(?:begin|end)\b\s*(\S*)", re.IGNORECASE)


class ManagedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A whole block. `start` and `stop` are its place in the text, marks and last line end included."""

    name: str
    revision: int
    sha256: str
    lines: tuple[str, ...]
    start: int
    stop: int
    line_end: str

    @property
    def is_edited(self) -> bool:
        return _digest(self.lines) != self.sha256


class ParsedBlocks(msgspec.Struct, frozen=True):
    """`stray` holds the names in marks that belong to no whole block."""

    blocks: tuple[ManagedBlock, ...]
    stray: tuple[str, ...]


class ConflictKind(Enum):
    EDITED = "edited"  # Somebody changed the lines by hand.
    BROKEN = "broken"  # A mark is damaged, lacks its counterpart, or stands around another block.
    REPEATED = "repeated"  # There are two blocks of that name.


class BlockApplied(msgspec.Struct, frozen=True):
    """The text with the block. `revision` is that of the block in it."""

    text: str
    revision: int


class BlockUnchanged(msgspec.Struct, frozen=True):
    """The text is already as it should be."""


class BlockConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Both versions: the lines in the text, and those that were to be there. A broken block has no known lines."""

    kind: ConflictKind
    found: tuple[str, ...]
    wanted: tuple[str, ...]


def parse_blocks(text: str) -> ParsedBlocks:
    blocks: list[ManagedBlock] = []
    stray: list[str] = []
    opened: _Opened | None = None
    place = 0
    for line in _LINE.findall(text):
        start, place = place, place + len(line)
        said = line.strip()
        mark = _MARK.search(said)
        if mark is None:
            if opened is not None:
                opened.lines.append(_without_end(line))
            continue
        begin, end = _BEGIN.fullmatch(said), _END.fullmatch(said)
        if end is not None and opened is not None and end[1] == opened.name:
            blocks.append(_closed(opened, place))
            opened = None
            continue
        stray += [opened.name] if opened is not None else []
        opened = None
        if begin is not None:
            opened = _Opened(begin[1], int(begin[2]), begin[3], start, _line_end(line), [])
        else:
            stray.append(_named(mark[1]))
    stray += [opened.name] if opened is not None else []
    return ParsedBlocks(tuple(blocks), tuple(stray))


def apply_block(text: str, name: str, lines: Sequence[str]) -> BlockApplied | BlockUnchanged | BlockConflict:
    """Puts the lines into the block of that name. A text without it gets it at its end."""
    wanted = _checked(name, lines)
    found = _find(text, name, wanted)
    if isinstance(found, BlockConflict):
        return found
    if found is None:
        return BlockApplied(_appended(text, name, wanted), 1)
    if found.lines == wanted and not found.is_edited:
        return BlockUnchanged()
    if found.is_edited and found.lines != wanted:
        return BlockConflict(kind=ConflictKind.EDITED, found=found.lines, wanted=wanted)
    revision = min(found.revision + 1, INTEGER_MAX)
    last = _line_end(text[found.start : found.stop])
    block = _written(name, wanted, revision, found.line_end)
    return BlockApplied(f"{text[: found.start]}{block}{last}{text[found.stop :]}", revision)


def without_blocks(text: str, shown: frozenset[str]) -> str:
    """Returns the text without blocks, but for those of the names `shown`: whose the others are, nobody here knows.

    A mark is believed as little as it must be: a block whose end is missing goes on to the end of the text.
    """
    kept: list[str] = []
    hidden: str | None = None
    for line in _LINE.findall(text):
        mark = _MARK.search(line)
        name = _named(mark[1]) if mark is not None else ""
        if hidden is None and mark is not None and _BEGIN_WORD.search(mark[0]) and name not in shown:
            hidden = name
        elif hidden is None:
            kept.append(line)
        elif mark is not None and not _BEGIN_WORD.search(mark[0]) and name == hidden:
            hidden = None
    return "".join(kept)


class _Opened(NamedTuple):
    name: str
    revision: int
    sha256: str
    start: int
    line_end: str
    lines: list[str]


def _closed(opened: _Opened, stop: int) -> ManagedBlock:
    return ManagedBlock(
        name=opened.name,
        revision=opened.revision,
        sha256=opened.sha256,
        lines=tuple(opened.lines),
        start=opened.start,
        stop=stop,
        line_end=opened.line_end,
    )


def _named(word: str) -> str:
    """Returns the name in a damaged mark, as far as it can be told."""
    return word.partition(">")[0].rstrip("-").casefold()


def _find(text: str, name: str, wanted: tuple[str, ...]) -> ManagedBlock | BlockConflict | None:
    parsed = parse_blocks(text)
    found = [block for block in parsed.blocks if block.name == name]
    lines = found[0].lines if found else ()
    if name in parsed.stray:
        return BlockConflict(kind=ConflictKind.BROKEN, found=lines, wanted=wanted)
    if len(found) > 1:
        return BlockConflict(kind=ConflictKind.REPEATED, found=lines, wanted=wanted)
    return found[0] if found else None


def _appended(text: str, name: str, lines: tuple[str, ...]) -> str:
    """A text without a line end at its end keeps that: the block then has none either."""
    first = _LINE.match(text)
    line_end = _line_end(first[0]) if first is not None else ""
    line_end = line_end or "\n"
    block = _written(name, lines, 1, line_end)
    if not text or text.endswith("\n"):
        return f"{text}{block}{line_end}"
    return f"{text}{line_end}{block}"


def _written(name: str, lines: tuple[str, ...], revision: int, line_end: str) -> str:
    begin = f"<!-- palyra:begin {name} v{revision} sha256={_digest(lines)} -->"
    return line_end.join((begin, *lines, f"<!-- palyra:end {name} -->"))


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")).hexdigest()


def _line_end(text: str) -> str:
    return "\r\n" if text.endswith("\r\n") else "\n" if text.endswith("\n") else ""


def _without_end(line: str) -> str:
    return line.removesuffix(_line_end(line)) if line.endswith("\n") else line


def _checked(name: str, lines: Sequence[str]) -> tuple[str, ...]:
    _checked_name(name)
    if len(lines) > LINES_MAX or sum(len(line) + 1 for line in lines) > BODY_CHARS_MAX:
        message = f"a managed block has at most {LINES_MAX} lines and {BODY_CHARS_MAX} characters"
        raise Invalid("block_too_large", message)
    if any("\n" in line or "\r" in line or _MARK.search(line) for line in lines):
        raise Invalid("block_line_invalid", "a line of a managed block holds no line end and no mark of a block")
    return tuple(lines)


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise Invalid(
            "block_name_invalid",
            "a block's name has 1 to 64 small letters and digits, with '.', '_' and '-' between them",
        )
    return name
