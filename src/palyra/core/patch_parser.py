"""Reads the text of a unified diff, as tools and as models write it.

Does not own: what the patch makes of a file (patches).
Understood are `---`/`+++` with or without `a/` and `b/`, `/dev/null`, git's headers for new, deleted and renamed files,
and quoted names. So are missing line numbers, wrong counts, empty lines that lost their blank, and a code fence or
words around the patch.
The counts of a hunk are believed where its lines agree with them. Otherwise the hunk goes on to the next header.
"""

import re

import msgspec

from palyra.core.errors import Invalid
from palyra.core.patches import FilePatch, Hunk, PatchKind

FILES_MAX = 50
HUNKS_MAX = 500

_NOWHERE = "/dev/null"
_HEAD = re.compile(r"@@(?: -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))?(?: @@.*)?| .*)?")
_ESCAPE = re.compile(r'\\([0-7]{1,3}|["\\abfnrtv])')
_LETTERS = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_FORM = "write `--- a/path`, `+++ b/path`, then hunks that begin with @@"


def read_patch(text: str) -> tuple[FilePatch, ...]:
    """Reads a patch; raises Invalid if the text is none, or asks for what patches cannot do here."""
    reader = _Reader(_lines(text))
    while not reader.is_done:
        reader.read_next()
    sections = [section.finish() for section in reader.sections]
    if not sections:
        raise Invalid("patch_invalid", f"the patch names no file: {_FORM}")
    return _merged(sections)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if any(line.endswith("\r") and line.startswith(("--- ", "+++ ", "@@")) for line in lines):
        lines = [line.removesuffix("\r") for line in lines]
    return lines[:-1] if lines[-1] == "" else lines


def _merged(sections: list[FilePatch]) -> tuple[FilePatch, ...]:
    """Merges the changes of one file from several sections; refuses any other patch that names a file twice."""
    by_path: dict[str, FilePatch] = {}
    for section in sections:
        earlier = by_path.get(section.path)
        if earlier is None:
            by_path[section.path] = section
        elif {earlier.kind, section.kind} == {PatchKind.CHANGE} and earlier.source == section.source == section.path:
            count = len(earlier.hunks)
            added = (msgspec.structs.replace(hunk, number=count + hunk.number) for hunk in section.hunks)
            by_path[section.path] = msgspec.structs.replace(earlier, hunks=(*earlier.hunks, *added))
        else:
            raise Invalid("patch_invalid", f"the patch names {section.path} twice; make one section of it")
    if len(by_path) > FILES_MAX:
        raise Invalid("patch_too_large", f"the patch has {len(by_path)} files, at most {FILES_MAX}; split it")
    return tuple(by_path.values())


class _Section:
    """A file's part of the patch while it is read."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new
        self.hunks: list[Hunk] = []
        self.is_executable = False
        self.is_bare = False  # Whether the names certainly have no git prefixes.

    def finish(self) -> FilePatch:
        old, new = (self.old, self.new) if self.is_bare else _without_prefixes(self.old, self.new)
        if {old, new} == {_NOWHERE} or not old or not new:
            raise Invalid("patch_invalid", f"a section names no file: {_FORM}")
        hunks = tuple(self.hunks)
        is_filling = len(hunks) == 1 and not hunks[0].before and hunks[0].line == 0
        if _NOWHERE not in (old, new) and old == new and not hunks:
            raise Invalid("patch_invalid", f"the section of {new} has no hunk, and changes of modes are not made")
        kind = PatchKind.CHANGE
        if old == _NOWHERE or (is_filling and old == new):
            kind, old = PatchKind.CREATE, new
        elif new == _NOWHERE:
            kind, new = PatchKind.DELETE, old
        if kind is PatchKind.CREATE and any(hunk.before for hunk in hunks):
            raise Invalid("patch_invalid", f"{new} is to be created, but a hunk of it has context or removed lines")
        return FilePatch(kind=kind, path=new, source=old, hunks=hunks, is_executable=self.is_executable)


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self.sections: list[_Section] = []

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._lines)

    def read_next(self) -> None:
        line = self._line(self._at)
        if line.startswith("diff --git "):
            self._read_git_header()
        elif self._is_header(self._at):
            self.sections.append(_Section(*self._take_names()))
        elif line.startswith("@@"):
            self._read_hunk()
        else:
            self._at += 1  # This line is text around the patch.

    def _line(self, at: int) -> str:
        return self._lines[at] if at < len(self._lines) else ""

    def _is_header(self, at: int) -> bool:
        return self._line(at).startswith("--- ") and self._line(at + 1).startswith("+++ ")

    def _take_names(self) -> tuple[str, str]:
        old, new = (_name(self._line(self._at + step)[4:]) for step in (0, 1))
        self._at += 2
        return old, new

    def _read_git_header(self) -> None:
        section = _GitSection(*_git_names(self._line(self._at)[len("diff --git ") :]))
        self.sections.append(section)
        self._at += 1
        while not self.is_done and not self._is_header(self._at) and section.take(self._line(self._at)):
            self._at += 1
        if self._is_header(self._at):
            section.old, section.new = self._take_names()
            section.is_bare = False

    def _read_hunk(self) -> None:
        head = self._line(self._at)
        match = _HEAD.fullmatch(head)
        if not self.sections or match is None:
            raise Invalid(
                "patch_invalid", f"line {self._at + 1} of the patch, {head[:80]!r}, is no hunk of a file: {_FORM}"
            )
        section = self.sections[-1]
        if len(section.hunks) >= HUNKS_MAX:
            raise Invalid("patch_too_large", f"a file has more than {HUNKS_MAX} hunks; split the patch")
        self._at += 1
        line, before_count, line_after, after_count = (int(each) if each else None for each in match.groups())
        body = _Body()
        end = None
        if line is not None:
            counts = (1 if before_count is None else before_count, 1 if after_count is None else after_count)
            end = self._counted(body, counts)
        if end is None:
            body = _Body()
            end = self._until_header(body)
        self._at = end
        # A hunk with no lines on one side names the line before it.
        section.hunks.append(body.hunk(len(section.hunks) + 1, line or 0, line_after or 0))

    def _counted(self, body: "_Body", counts: tuple[int, int]) -> int | None:
        """Returns where the hunk ends by its counts; None if the lines that follow show that the counts are wrong."""
        at = self._at
        while (body.before_count, body.after_count) != counts:
            is_over = body.before_count > counts[0] or body.after_count > counts[1]
            if at >= len(self._lines) or is_over or not body.take(self._lines[at]):
                return None
            at += 1
        if self._line(at).startswith("\\"):
            body.take(self._line(at))
            at += 1
        following = at
        while following < len(self._lines) and not self._lines[following].strip():
            following += 1
        return at if self._is_boundary(following) else None

    def _until_header(self, body: "_Body") -> int:
        end = self._at
        while not self._is_boundary(end):
            end += 1
        last = end
        while last > self._at and not self._lines[last - 1]:
            last -= 1
        for at in range(self._at, last):
            if not body.take(self._lines[at]):
                said = f"line {at + 1} of the patch begins with {self._lines[at][:1]!r}"
                raise Invalid("patch_invalid", f"{said}; lines of a hunk begin with a blank, + or -")
        return end

    def _is_boundary(self, at: int) -> bool:
        line = self._line(at)
        is_marked = line.startswith(("@@", "diff --git ", "Index: ", "```")) or line == "-- "
        return at >= len(self._lines) or is_marked or self._is_header(at)


class _GitSection(_Section):
    """A section that began with git's own header, which may be all there is."""

    def take(self, line: str) -> bool:
        """Tells whether the line belongs to the header."""
        if line.startswith(("new file mode ", "deleted file mode ", "new mode ")):
            self._take_mode(line)
        elif line.startswith("rename from "):
            self.old, self.is_bare = _name(line[len("rename from ") :]), True
        elif line.startswith("rename to "):
            self.new = _name(line[len("rename to ") :])
        elif line.startswith(("copy from ", "GIT binary patch", "Binary files ")):
            raise Invalid("patch_invalid", f"{self.new}: copies and binary files cannot be patched")
        return line.startswith(
            ("index ", "old mode ", "new ", "deleted ", "rename ", "similarity index ", "dissimilarity index ")
        )

    def _take_mode(self, line: str) -> None:
        mode = line.rsplit(" ", 1)[1]
        if not mode.startswith("100"):
            raise Invalid("patch_invalid", f"{self.new}: only plain files can be patched, no links and no submodules")
        if line.startswith("new file "):
            self.old, self.is_executable = _NOWHERE, mode == "100755"
        elif line.startswith("deleted "):
            self.new = _NOWHERE


class _Body:
    """The lines of a hunk while they are read."""

    def __init__(self) -> None:
        self._before: list[str] = []
        self._after: list[str] = []
        self._first = self._last = ""
        self._has_added = False
        self._has_end_mark = False

    @property
    def before_count(self) -> int:
        return len(self._before)

    @property
    def after_count(self) -> int:
        return len(self._after)

    def take(self, line: str) -> bool:
        """Tells whether the line belongs to a hunk. A quite empty line is an empty context line."""
        kind = line[:1] or " "
        if kind == "\\":
            return self._end()
        if kind in " -":
            self._before.append(line[1:] + "\n")
        if kind in " +":
            self._after.append(line[1:] + "\n")
        self._first, self._last = self._first or kind, kind
        self._has_added |= kind == "+"
        return kind in " -+"

    def _end(self) -> bool:
        """Notes that the line before, if there is one, has no line feed at its end."""
        sides = {" ": (self._before, self._after), "-": (self._before,), "+": (self._after,)}.get(self._last, ())
        for side in sides:
            side[-1] = side[-1].removesuffix("\n")
        self._has_end_mark = True
        return bool(sides)

    def hunk(self, number: int, line: int, line_after: int) -> Hunk:
        if any(not each.endswith("\n") for side in (self._before, self._after) for each in side[:-1]):
            raise Invalid("patch_invalid", f"in hunk {number} a line without line feed is followed by more lines")
        return Hunk(
            number=number,
            line=line,
            line_after=line_after,
            before="".join(self._before),
            after="".join(self._after),
            has_end_mark=self._has_end_mark,
            is_open_before=self._first != " ",
            is_open_after=self._last != " ",
            is_removal=not self._has_added,
        )


def _git_names(rest: str) -> tuple[str, str]:
    """Splits `a/x b/x`, where the names may hold blanks but are the same."""
    if rest.startswith('"'):
        old, _, new = rest[1:].partition('" ')
        return _name(f'"{old}"'), _name(new)
    half = len(rest) // 2
    if rest[half : half + 1] == " " and rest[2:half] == rest[half + 3 :]:
        return rest[:half], rest[half + 1 :]
    old, _, new = rest.partition(" ")
    return old, new


def _name(written: str) -> str:
    written = written.rstrip("\r")
    if not written.startswith('"'):
        return written.split("\t")[0].rstrip(" ")
    inner = written[1:].rsplit('"', 1)[0]
    raw = _ESCAPE.sub(lambda found: chr(_code(found[1])), inner)
    try:
        # Octal escapes stand for bytes; other letters were written as they are.
        return raw.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        return raw


def _code(escape: str) -> int:
    return _LETTERS.get(escape) or (ord(escape) if escape in '"\\' else int(escape, 8) & 0xFF)


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Removes git's `a/` and `b/`, if both are there."""
    is_git = old.startswith("a/") or old == _NOWHERE, new.startswith("b/") or new == _NOWHERE
    if not all(is_git):
        return old, new
    return (old if old == _NOWHERE else old[2:]), (new if new == _NOWHERE else new[2:])
