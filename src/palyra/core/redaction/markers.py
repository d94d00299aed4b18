"""Markers of the form `‹secret:kind:id›`, the records around them, and putting real values back.

Does not own: finding secrets (scan).
A forged marker is text that already looked like a marker when it came in. It passes through unchanged: redaction must
leave its own output alone, so it cannot tell the two apart. That is safe because an id is a keyed hash that nobody
outside can compute. Also, `restore` knows only the values sealed for the run at hand: a made-up id restores to itself.
What remains is a marker copied from the same run into another call. That is how a model is meant to use a secret, so
the verdict deals with it. The gate judges the call with the real value in its place. Nothing is rewritten silently.
Restoring is one pass: a value that itself holds a marker is not searched again.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from palyra.core.errors import Invalid

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

ID_CHARS = 12  # 48 bits: the odds that two secrets of one run collide are far below those of a disk error.
KIND_CHARS_MAX = 32
DEPTH_MAX = 200  # Deeper than any arguments a person could judge, and well inside the interpreter's own stack limit.

MARKER = re.compile(rf"‹secret:[a-z0-9_\-]{{1,{KIND_CHARS_MAX}}}:([0-9a-f]{{{ID_CHARS}}})›")


class Secret(msgspec.Struct, frozen=True):
    """A found secret: its kind and id in the text, and the exact characters it stands for."""

    kind: str
    id: str
    value: str


def seal(key: bytes, kind: str, value: str) -> Secret:
    """Returns the secret's record. The id depends on the key and the value alone: the same secret gives the same id."""
    # Text from a careless decoder may hold lone surrogates, which must not stop redaction.
    digest = hmac.new(key, value.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return Secret(kind=kind, id=digest.hexdigest()[:ID_CHARS], value=value)


def marker_of(secret: Secret) -> str:
    """Returns the text that takes the secret's place."""
    return f"‹secret:{secret.kind}:{secret.id}›"


def find_markers(text: str) -> tuple[str, ...]:
    """Returns the ids of all markers in the text, in order, repeats included."""
    if "‹" not in text:
        return ()
    return tuple(MARKER.findall(text))


def restore(value: Json, values: Mapping[str, str]) -> Json:
    """Replaces each known marker by its secret, in strings and in keys. An unknown id stays as it is."""

    def put_back(match: re.Match[str]) -> str:
        return values.get(match.group(1), match.group())

    def restore_text(text: str) -> str:
        return MARKER.sub(put_back, text) if "‹" in text else text

    return map_strings(value, restore_text)


def map_strings(value: Json, change: Callable[[str], str], depth: int = 0) -> Json:
    """Returns the same JSON value with every string, keys included, replaced by the result of `change`."""
    refuse_depth(depth)
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): map_strings(item, change, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change, depth + 1) for item in value]
    return value


def refuse_depth(depth: int) -> None:
    """Fails closed on values too deep to walk: they are refused, never passed on unredacted."""
    if depth > DEPTH_MAX:
        raise Invalid("json_depth", f"the value nests deeper than {DEPTH_MAX} levels; send it flatter or as text")
