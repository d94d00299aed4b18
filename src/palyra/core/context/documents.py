"""Project documents: the instruction files of a workspace, as a session's context holds them and a model is shown them.

Does not own: reading files (engine.session.instruction_files), where in a prompt they stand (prompt).
Invariants: the documents are ordered by path, so that they are the same however often an event is folded. The beginning
of the prompt stays the same, byte for byte, until a file changes. Text below `local` stands in a fence, and no text can close the
block: each look-alike gets a backslash.
"""

import re
from collections.abc import Sequence

import msgspec

from palyra.core.events.model import DocumentRead
from palyra.core.fences import fence, neutralise
from palyra.core.spelling import spell_out
from palyra.core.taint import UNNAMED
from palyra.core.trust import Trust, is_tainting

DOCUMENT_BYTES_MAX = 16 * 1024
TOTAL_BYTES_MAX = 32 * 1024
DOCUMENTS_MAX = 16  # More files than any project has at its roots. It bounds what a context and a load cost (L10).
LAYER = "project_docs"

_OPENING = (
    f"<{LAYER}>\n[palyra] These files of the workspace tell how to work in it. Follow them unless your user or your "
    "instructions say otherwise."
)
_CLOSING = f"</{LAYER}>"
_LOOK_ALIKE = re.compile(rf"<(\s*/?\s*)(\\*)({LAYER})", re.IGNORECASE | re.ASCII)


class WindowDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`place` is where the event that brought it stands in the whole conversation."""

    path: str
    sha256: str
    trust: Trust
    chars: int
    text: str
    is_cut: bool
    source: str | None
    fence_id: str | None
    place: int


def fold_document(documents: tuple[WindowDocument, ...], data: DocumentRead, place: int) -> tuple[WindowDocument, ...]:
    """Returns the documents after one more event. Beyond the maximum a new one is left out."""
    others = [each for each in documents if each.path != data.path]
    if data.is_gone:
        return tuple(others)
    document = WindowDocument(
        path=data.path,
        sha256=data.sha256,
        trust=data.trust,
        chars=data.chars,
        text=data.text,
        is_cut=data.is_cut,
        source=data.source,
        fence_id=data.fence_id,
        place=place,
    )
    return tuple(sorted((*others, document)[:DOCUMENTS_MAX], key=lambda each: each.path))


def document_texts(documents: Sequence[WindowDocument]) -> tuple[str, ...]:
    """Returns one text for each document. Joined by line ends, they are the block that a model is shown."""
    parts = [_part(document) for document in documents]
    if not parts:
        return ()
    parts[0] = f"{_OPENING}\n{parts[0]}"
    parts[-1] = f"{parts[-1]}\n{_CLOSING}"
    return tuple(parts)


def _part(document: WindowDocument) -> str:
    name = _escaped(neutralise(spell_out(document.path)))
    text = _escaped(document.text)
    if is_tainting(document.trust):
        text = fence(text, document.fence_id or document.sha256[:16], _escaped(document.source or UNNAMED))
    else:
        text = neutralise(text)
    return f"--- {name} ---\n{text}"


def _escaped(text: str) -> str:
    return _LOOK_ALIKE.sub(r"<\1\\\2\3", text)
