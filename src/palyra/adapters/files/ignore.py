"""Matches paths against the rules of `.gitignore` and `.ignore`, as git reads them.

Does not own: finding the files (search_child).
Invariants: a linear engine matches the rules, so no rule in a workspace can hold up a search. A rule that git never
matches (an open bracket, a backslash at the end) matches nothing here either. Paths are bytes, relative to the folder
of the ignore file. A folder's path ends with a slash.
"""

from typing import Protocol, cast

RULES_MAX = 10_000  # Limits one ignore file. The largest in use have some hundreds.
IGNORE_BYTES_MAX = 1024 * 1024
# Limits all rules of a file in one expression. Above that they are matched one by one.
_PATTERN_BYTES_MAX = 1024 * 1024
_GLOB_SPECIAL = b"*?[\\"
_BRACES_MAX = 64  # Limits how many globs one with braces may stand for.
_SLASH = ord("/")
_FOLDERS = b"(?:[^\\x00]*/)?"


class Expression(Protocol):
    """A compiled expression. The engine has no types of its own."""

    def search(self, text: bytes, pos: int | None = None) -> "Found | None": ...

    def fullmatch(self, text: bytes) -> "Found | None": ...


class Found(Protocol):
    def start(self) -> int: ...


class IgnoreRules:
    def __init__(self, body: bytes) -> None:
        rules = [rule for line in _lines(body) if (rule := _parse(line)) is not None][:RULES_MAX]
        self._rules = [(compile_bytes(expression), is_negated) for expression, is_negated in reversed(rules)]
        whole = b"|".join(expression for expression, _ in rules)
        self._any = compile_bytes(whole) if rules and len(whole) <= _PATTERN_BYTES_MAX else None

    def verdict(self, path: bytes) -> bool | None:
        """Tells whether the path is ignored; None if no rule matches it. The last rule that matches decides."""
        key = keyed(path)
        if self._any is not None and self._any.fullmatch(key) is None:
            return None
        return next((not is_negated for rule, is_negated in self._rules if rule.fullmatch(key) is not None), None)


def keyed(path: bytes) -> bytes:
    """Returns the path as expressions see it. A folder ends with a NUL, which no wildcard matches and no path holds."""
    return path[:-1] + b"\x00" if path.endswith(b"/") else path


def compile_bytes(expression: bytes) -> Expression:
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 64 * 1024 * 1024
    return cast(Expression, re2.compile(expression, options))


def compile_glob(glob: str) -> tuple[Expression | None, bool]:
    """Compiles a glob as in ignore files, with braces besides, for keyed paths; None if it can match nothing.

    The flag tells whether the glob excludes.
    """
    is_negated = glob.startswith("!")
    found = [_parse(each) for each in _spread(glob.removeprefix("!").encode())]
    expressions = [rule[0] for rule in found if rule is not None]
    return (compile_bytes(b"|".join(expressions)) if expressions else None), is_negated


def _spread(glob: bytes) -> list[bytes]:
    """Expands braces: `*.{a,b}` is `*.a` and `*.b`. Braces do not nest, and an unpaired one stays as it is."""
    done: list[bytes] = []
    left = [glob]
    while left and len(done) + len(left) <= _BRACES_MAX:
        head, opened, rest = left.pop(0).partition(b"{")
        inner, closed, tail = rest.partition(b"}")
        if opened and closed and b"," in inner:
            left += [head + each + tail for each in inner.split(b",")]
        else:
            done.append(head + opened + rest)
    return done + left


def _lines(body: bytes) -> list[bytes]:
    lines = body.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [
        _trimmed(line.removesuffix(b"\r").split(b"\x00")[0]) for line in lines if line and not line.startswith(b"#")
    ]


def _trimmed(line: bytes) -> bytes:
    """Returns the line without the blanks at its end, unless a backslash keeps them."""
    end = len(line)
    while end and line[end - 1] == ord(" "):
        end -= 1
    before = line[:end]
    backslashes_count = len(before) - len(before.rstrip(b"\\"))
    return line[: end + 1] if backslashes_count % 2 and end < len(line) else before


def _parse(line: bytes) -> tuple[bytes, bool] | None:
    is_negated = line.startswith(b"!")
    pattern = line[1:] if is_negated else line
    is_folder_only = pattern.endswith(b"/")
    pattern = pattern[:-1] if is_folder_only else pattern
    if not pattern:
        return None
    expression = _anchored(pattern) if b"/" in pattern else _translate(pattern)
    if expression is None:
        return None
    anywhere = b"" if b"/" in pattern else _FOLDERS
    return b"(?:" + anywhere + expression + (b"\\x00" if is_folder_only else b"\\x00?") + b")", is_negated


def _anchored(pattern: bytes) -> bytes | None:
    """Translates a pattern.

    Git compares the part before the first wildcard by itself, and the rest as a pattern from there.
    """
    pattern = pattern.removeprefix(b"/")
    length = next((at for at, letter in enumerate(pattern) if letter in _GLOB_SPECIAL), len(pattern))
    rest = _translate(pattern[length:])
    return None if rest is None else _quoted(pattern[:length]) + rest


def _translate(pattern: bytes) -> bytes | None:
    """Translates a wildmatch pattern whose wildcards do not match slashes; None if it can match nothing."""
    out, at = bytearray(), 0
    while at < len(pattern):
        letter = pattern[at : at + 1]
        if letter == b"*":
            piece, at = _stars(pattern, at)
        elif letter == b"?":
            piece, at = b"[^/\\x00]", at + 1
        elif letter == b"[":
            members, at = _bracket(pattern, at + 1)
            if members is None:
                return None
            piece = _any_of(members)
        else:
            at += letter == b"\\"
            if at == len(pattern):
                return None
            piece, at = _quoted(pattern[at : at + 1]), at + 1
        out += piece
    return bytes(out)


def _stars(pattern: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    is_whole_part = end - at > 1 and (at == 0 or pattern[at - 1] == _SLASH)
    after = pattern[end : end + 2]
    if is_whole_part and after[:1] == b"/":
        return _FOLDERS, end + 1
    if is_whole_part and (not after or after == b"\\/"):
        return b"[^\\x00]*", end
    return b"[^/\\x00]*", end


def _bracket(pattern: bytes, at: int) -> tuple[frozenset[int] | None, int]:
    """Returns the letters of a set, and where it ends; None for one that is not closed or names an unknown class."""
    is_negated = pattern[at : at + 1] in (b"!", b"^")
    at += is_negated
    members: set[int] = set()
    previous, is_first = -1, True
    while is_first or pattern[at : at + 1] != b"]":
        is_first = False
        found = _member(pattern, at, previous)
        if found is None:
            return None, at
        letters, previous, at = found
        members |= letters
    every = frozenset(range(1, 256)) - {_SLASH}
    return (every - members if is_negated else every & members), at + 1


def _member(pattern: bytes, at: int, previous: int) -> tuple[frozenset[int], int, int] | None:
    """Returns what a member of a set adds, the letter a range could begin with (-1: none), and where the next is."""
    letter, after = pattern[at : at + 1], pattern[at + 1 : at + 2]
    if letter == b"-" and previous > 0 and after and after != b"]":
        at += 2 if after == b"\\" else 1
        last = pattern[at : at + 1]
        return (frozenset(range(previous, last[0] + 1)), -1, at + 1) if last else None
    if letter == b"[" and after == b":":
        end = pattern.find(b"]", at + 2)
        if end < 0:
            return None
        if end > at + 2 and pattern[end - 1 : end] == b":":
            members = _CLASSES.get(pattern[at + 2 : end - 1])
            return None if members is None else (members, -1, end + 1)
    at += letter == b"\\"
    member = pattern[at : at + 1]
    return (frozenset(member), member[0], at + 1) if member else None


def _any_of(members: frozenset[int]) -> bytes:
    return b"[" + b"".join(b"\\x%02x" % each for each in sorted(members)) + b"]" if members else b"[^\\x00-\\xff]"


def _quoted(literal: bytes) -> bytes:
    return b"".join(b"\\x%02x" % letter for letter in literal)


def _letters(is_member: str) -> frozenset[int]:
    return frozenset(at for at in range(128) if getattr(chr(at), is_member)())


_ALNUM, _PRINT = _letters("isalnum"), frozenset(range(0x20, 0x7F))
_SPACE = frozenset(b" \t\n\r")
_CLASSES = {
    b"alnum": _ALNUM,
    b"alpha": _letters("isalpha"),
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset(range(0x20)) | {0x7F},
    b"digit": _letters("isdigit"),
    b"graph": _PRINT - {0x20},
    b"lower": _letters("islower"),
    b"print": _PRINT,
    b"punct": _PRINT - _ALNUM - {0x20},
    b"space": _SPACE,
    b"upper": _letters("isupper"),
    b"xdigit": frozenset(b"0123456789abcdefABCDEF"),
}
