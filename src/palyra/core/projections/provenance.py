"""The taints and files projections: a session's sources, and which bytes were written under taint.

Does not own: the rules of the fold (core.taint).
A file's row comes with the verdict that lets the call go on, so the row exists before the bytes can. The outcome adds
files that only the tool could know.
Invariant: rows are never removed. The same bytes written again without taint keep their row (L8).
"""

import hashlib
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from palyra.core.events import Event
from palyra.core.events.draft import DraftJudged, FileSet
from palyra.core.events.session import DocumentChanged
from palyra.core.events.tool import FileBytes, ToolFinished, ToolJudged, Verdict
from palyra.core.ids import SessionId, StreamId, length_prefixed
from palyra.core.projections.rows import FileRow, TaintRow
from palyra.core.taint import decode_taint, encode_taint, fold_taint

FILE_TYPES = frozenset({ToolJudged.TYPE, DraftJudged.TYPE, ToolFinished.TYPE, DocumentChanged.TYPE})


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
    """Returns rows for the tainted files that this event names and that have no row yet."""
    return tuple(
        FileRow(
            id=tainted.id,
            session_id=SessionId(event.stream),
            root=tainted.file.root,
            path=full_path(tainted.file),
            sha256=tainted.file.sha256,
            sources=msgspec.json.encode(tainted.sources).decode(),
            seq=event.seq,
            members=tainted.members,
        )
        for tainted in _tainted_files(event)
        if tainted.id not in known
    )


def full_path(file: FileBytes) -> str:
    """Returns the path by which a file is known, whatever root it was reached from."""
    return f"{file.root.rstrip('/')}/{file.path}"


class _Tainted(NamedTuple):
    id: str
    file: FileBytes
    sources: tuple[str, ...]
    members: str = ""


def _tainted_files(event: Event) -> tuple[_Tainted, ...]:
    match event.data:
        case ToolJudged(writes=writes, taint=taint, verdict=verdict) if taint and verdict is not Verdict.DENY:
            found = [(file, taint) for file in writes]
        case DraftJudged(write_sets=sets, verdict=verdict) if sets and verdict is not Verdict.DENY:
            return tuple(_tainted_set(event.stream, each) for each in sets)
        case DraftJudged(writes=writes, verdict=verdict) if verdict is not Verdict.DENY:
            found = [(file, file.taint) for file in writes if file.taint]
        case ToolFinished(written=written):
            found = [(file, file.taint) for file in written if file.taint]
        case DocumentChanged(written=written) if written.taint:
            found = [(written, written.taint)]
        case _:
            return ()
    by_id = {_file_id(event.stream, file): (file, taint) for file, taint in found}
    return tuple(_Tainted(file_id, file, taint) for file_id, (file, taint) in by_id.items())


def _tainted_set(stream: StreamId, written: FileSet) -> _Tainted:
    """Returns a set as a file with an empty name: its path is the root and a slash, which is no file's path."""
    sha256 = hashlib.sha256(written.members.encode()).hexdigest()
    file = FileBytes(root=written.root, path="", sha256=sha256)
    return _Tainted(_file_id(stream, file), file, written.taint, written.members)


def _file_id(stream: StreamId, file: FileBytes) -> str:
    """Returns a hash, because ids are shown where paths should not be."""
    parts = (stream, full_path(file), file.sha256)
    return hashlib.sha256(length_prefixed(*(part.encode("utf-8", "surrogatepass") for part in parts))).hexdigest()
