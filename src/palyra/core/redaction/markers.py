"""Markers. Owns: the form `‹secret:kind:id›`, the records around it, and putting real values back. Not: finding secrets (scan).

A forged marker, that is text that already looked like one when it came in, passes through unchanged: redaction must leave its
own output alone, so it cannot tell the two apart. That is safe because an id is a keyed hash nobody outside can compute, and
`restore` knows only the values sealed for the run at hand: a made-up id restores to itself. What remains is a marker copied
from the same run into another call. That is how a model is meant to use a secret, so it is a matter for the verdict: the gate
judges the call with the real value in its place. Nothing is rewritten silently.
Restoring is one pass: a value that itself holds a marker is not looked into again.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from palyra.core.errors import Invalid

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

ID_CHARS = 12  # 48 bits: two secrets of one run collide with odds far below a disk error's.
KIND_CHARS_MAX = 32
DEPTH_MAX = 200  # Deeper than any arguments a person could judge, well inside the interpreter's own stack limit.

MARKER = re.compile(rf"‹secret:[a-z0-9_\-]{{1,{KIND_CHARS_MAX}}}:([0-9a-f]{{{ID_CHARS}}})›")


class Secret(msgspec.Struct, frozen=True):
    """One secret that was found: what it is called in the text, and the exact characters it stands for."""

    kind: str
    id: str
    value: str


def seal(key: bytes, kind: str, value: str) -> Secret:
    """The secret's record. The id depends on the key and the value alone, so the same secret always gives the same id."""
    # Text from a careless decoder may hold lone surrogates; they must not stop redaction.
    digest = hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return Secret(kind=kind, id=digest.hexdigest()[:ID_CHARS], value=value)


def marker_of(secret: Secret) -> str:
    """The text that takes the secret's place."""
    return f"‹secret:{secret.kind}:{secret.id}›"


def find_markers(text: str) -> tuple[str, ...]:
    """The ids of all markers in the text, in order, repeats included."""
    if "‹" not in text:
        return ()
    return tuple(MARKER.findall(text))


def restore(value: Json, values: Mapping[str, str]) -> Json:
    """The value with each known marker replaced by its secret, in strings and in keys. An unknown id is left as it is."""

    def put_back(match: re.Match[str]) -> str:
        return values.get(match.group(1), match.group())

    def restore_text(text: str) -> str:
        return MARKER.sub(put_back, text) if "‹" in text else text

    return map_strings(value, restore_text)


def map_strings(value: Json, change: Callable[[str], str], depth: int = 0) -> Json:
    """The same JSON value with every string, keys included, replaced by what `change` makes of it."""
    refuse_depth(depth)
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): map_strings(item, change, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change, depth + 1) for item in value]
    return value


def refuse_depth(depth: int) -> None:
    """Fail closed on values too deep to walk: they are refused, never passed on unredacted."""
    if depth > DEPTH_MAX:
        raise Invalid("json_depth", f"the value nests deeper than {DEPTH_MAX} levels; send it flatter or as text")
