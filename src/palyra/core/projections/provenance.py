"""The taints and files projections. Owns: a session's sources, and which bytes were written under taint. Not: the fold's rules.

A file's row comes with the verdict that lets the call go on, so it is there before the bytes can be; the outcome adds what
only the tool could know. Rows are never taken back: the same bytes written again without taint stay what they were (L8).
"""

import hashlib
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from palyra.core.events import Event
from palyra.core.events.tool import FileBytes, ToolFinished, ToolJudged, Verdict
from palyra.core.ids import SessionId, StreamId, length_prefixed
from palyra.core.projections.rows import FileRow, TaintRow
from palyra.core.taint import decode_taint, encode_taint, fold_taint

FILE_TYPES = frozenset({ToolJudged.TYPE, ToolFinished.TYPE})


def project_taint(event: Event, row: TaintRow | None) -> tuple[TaintRow, ...]:
    before = decode_taint(row.sources) if row is not None else ()
    after = fold_taint(before, event, event.seq)
    if after == before:
        return ()
    session_id = SessionId(event.stream)
    return (TaintRow(id=session_id, session_id=session_id, sources=encode_taint(after), seq=event.seq),)


def file_ids(event: Event) -> tuple[str, ...]:
    return tuple(tainted.id for tainted in _tainted_files(event))


def project_files(event: Event, known: Collection[str]) -> tuple[FileRow, ...]:
    """Rows of the tainted files this event tells of that have none yet."""
    return tuple(
        FileRow(
            id=tainted.id,
            session_id=SessionId(event.stream),
            root=tainted.file.root,
            path=full_path(tainted.file),
            sha256=tainted.file.sha256,
            sources=msgspec.json.encode(tainted.sources).decode(),
            seq=event.seq,
        )
        for tainted in _tainted_files(event)
        if tainted.id not in known
    )


def full_path(file: FileBytes) -> str:
    """By which a file is known whatever root it was reached from."""
    return f"{file.root.rstrip('/')}/{file.path}"


class _Tainted(NamedTuple):
    id: str
    file: FileBytes
    sources: tuple[str, ...]


def _tainted_files(event: Event) -> tuple[_Tainted, ...]:
    match event.data:
        case ToolJudged(writes=writes, taint=taint, verdict=verdict) if taint and verdict is not Verdict.DENY:
            found = [(file, taint) for file in writes]
        case ToolFinished(written=written):
            found = [(file, file.taint) for file in written if file.taint]
        case _:
            return ()
    by_id = {_file_id(event.stream, file): (file, taint) for file, taint in found}
    return tuple(_Tainted(file_id, file, taint) for file_id, (file, taint) in by_id.items())


def _file_id(stream: StreamId, file: FileBytes) -> str:
    """A hash, since ids are shown where paths should not be."""
    parts = (stream, full_path(file), file.sha256)
    return hashlib.sha256(length_prefixed(*(part.encode("utf-8", "surrogatepass") for part in parts))).hexdigest()
