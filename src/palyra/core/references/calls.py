"""The tool call that a reference stands for. The reference is judged as that call, and no other.

Does not own: judging (engine.session.reference_judge).
A folder and a diff also show the content of files. Each of these files is judged as a call of fs.read by itself.
"""

from typing import assert_never

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.references.model import Reference, ReferenceKind

READ, LIST = "fs.read", "fs.list"
WHOLE = "."


class StandInCall(msgspec.Struct, frozen=True):
    tool: str
    arguments: JsonObject


def call_of(reference: Reference) -> StandInCall:
    target = reference.target or WHOLE
    match reference.kind:
        case ReferenceKind.FILE:
            return read_call(target)
        case ReferenceKind.FOLDER | ReferenceKind.DIFF | ReferenceKind.STAGED:
            return StandInCall(LIST, {"path": target})
        case ReferenceKind.URL:
            return StandInCall("http.fetch", {"url": target})
        case ReferenceKind.MEMORY:
            return StandInCall("memory.search", {"query": target})
        case ReferenceKind.RUN | ReferenceKind.SESSION:
            return StandInCall("session.search", {"query": target})
        case _:
            assert_never(reference.kind)


def read_call(path: str) -> StandInCall:
    return StandInCall(READ, {"path": path})
