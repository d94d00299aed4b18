"""Authentication-Results headers (RFC 8601): what a mailbox's own server found out about who sent a mail.

Owns: reading one such header whole, and whether it says that DMARC passed for an address, or failed.
Does not own: which header of a mail is asked (core.channels.mail_trust), the server that must write it.
Invariants: comments and quoted strings never become results, whatever they hold. A header that cannot be read to its
end says nothing. So does one that tells two results of DMARC, for one of them may be somebody else's.
"""

import re
from collections.abc import Iterator

import msgspec

HEADER_LENGTH_MAX = 20_000
COMMENT_DEPTH_MAX = 16

_KEY = r"[A-Za-z][A-Za-z0-9_-]*"
_NOT_FAILED = ("pass", "bestguesspass", "none", "temperror")  # The last two say that nothing is known.
_QUOTED = "\x01"  # Stands for a quoted string while a header is taken apart. No header may hold it.
_ID = re.compile(rf"\s*({_QUOTED}|[^\s@;=,<>()/\[\]?:]+)(?:\s+([0-9]+))?\s*")
_METHOD = re.compile(rf"\s*({_KEY})(?:\s*/\s*([0-9]+))?\s*=\s*({_KEY})(?=\s|$)")
_PROPERTY = re.compile(rf"\s+({_KEY}(?:\s*\.\s*{_KEY})?)\s*=\s*(\S*)(?=\s|$)")


class MethodResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one method found. `properties` are pairs such as `header.from` and its value; quoted values are unquoted."""

    method: str
    version: int
    result: str
    properties: tuple[tuple[str, str], ...] = ()

    def values_of(self, name: str) -> tuple[str, ...]:
        return tuple(value for each, value in self.properties if each == name)


class AuthenticationResults(msgspec.Struct, frozen=True, kw_only=True):
    authserv_id: str
    results: tuple[MethodResult, ...] = ()


def parse_authentication_results(text: str) -> AuthenticationResults | None:
    """Reads the value of one header. None if it cannot be read to its end."""
    if len(text) > HEADER_LENGTH_MAX:
        return None
    bare = without_comments(text)
    if bare is None:
        return None
    shape, quoted = bare
    head, *parts = shape.split(";")
    named = _ID.fullmatch(head)
    if named is None or named[2] not in (None, "1"):
        return None
    strings = iter(quoted)
    authserv_id = _filled(named[1], strings)
    results: list[MethodResult] = []
    while parts and not parts[-1].strip():
        parts.pop()
    if [part.strip().lower() for part in parts] == ["none"]:
        return AuthenticationResults(authserv_id=authserv_id)
    for part in parts:
        found = _read_result(part, strings)
        if found is None:
            return None
        results.append(found)
    return AuthenticationResults(authserv_id=authserv_id, results=tuple(results)) if results else None


def says_dmarc_passed(text: str, authserv_id: str, address: str) -> bool:
    """Tells whether a header of that server says that DMARC passed for the domain of an address."""
    read = parse_authentication_results(text)
    if read is None or not authserv_id or read.authserv_id.lower() != authserv_id.lower():
        return False
    found = [each for each in read.results if each.method == "dmarc"]
    if len(found) != 1 or found[0].result != "pass" or found[0].version != 1:
        return False
    domain = address.rpartition("@")[2].lower()
    return bool(domain) and [each.lower() for each in found[0].values_of("header.from")] in (
        [domain],
        [address.lower()],
    )


def says_dmarc_failed(text: str, authserv_id: str) -> bool:
    """Tells whether a header of that server says that DMARC failed, or may say so because it cannot be read."""
    if not re.match(rf'\s*"?{re.escape(authserv_id)}(?![\w.-])', text, re.IGNORECASE):
        return False
    read = parse_authentication_results(text)
    found = () if read is None else tuple(each.result for each in read.results if each.method == "dmarc")
    return read is None or not all(result in _NOT_FAILED for result in found)


def without_comments(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Returns a structured header with comments as spaces and quoted strings as marks, and those strings.

    None if a comment or a string does not end, or if something stands outside of them that no header may hold.
    """
    kept: list[str] = []
    strings: list[str] = []
    at, depth = 0, 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and depth:
            at += 1
        elif letter == "(":
            depth += 1
            kept.append(" ")
        elif letter == ")":
            depth -= 1
        elif letter == '"' and not depth:
            end = _string_end(text, at)
            if end is None:
                return None
            strings.append(re.sub(r"\\(.)", r"\1", text[at + 1 : end], flags=re.DOTALL))
            kept.append(_QUOTED)
            at = end
        elif not depth:
            kept.append(" " if letter in " \t\r\n" else letter)
            if not " " <= kept[-1] <= "~":
                return None
        if not 0 <= depth <= COMMENT_DEPTH_MAX:
            return None
        at += 1
    return None if depth or at > len(text) else ("".join(kept), tuple(strings))


def _string_end(text: str, start: int) -> int | None:
    """Returns where the quoted string ends that begins there."""
    at = start + 1
    while at < len(text):
        if text[at] == '"':
            return at
        at += 2 if text[at] == "\\" else 1
    return None


def _read_result(part: str, strings: Iterator[str]) -> MethodResult | None:
    method = _METHOD.match(part)
    if method is None:
        return None
    at, properties = method.end(), []
    while part[at:].strip():
        found = _PROPERTY.match(part, at)
        if found is None:
            return None
        name = "".join(found[1].lower().split())
        properties.append((name, _filled(found[2], strings)))
        at = found.end()
    return MethodResult(
        method=method[1].lower(),
        version=int(method[2] or "1"),
        result=method[3].lower(),
        properties=tuple(properties),
    )


def _filled(value: str, strings: Iterator[str]) -> str:
    """Returns a value with its quoted strings, which come in the order of the header."""
    first, *rest = value.split(_QUOTED)
    return first + "".join(next(strings) + each for each in rest)
