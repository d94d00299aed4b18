"""Shows resolved references to a model (the render_context_reference_prompt of the first description).

Does not own: where in a prompt they stand (engine).
Each text stands in a fence of its own, whatever its trust. Nothing inside can close the block or the fence: each
look-alike gets a backslash.
"""

import re
from collections.abc import Iterable

from palyra.core.events.model import ReferenceResolved
from palyra.core.fences import fence, neutralise
from palyra.core.references.model import ResolvedReference
from palyra.core.spelling import spell_out

OPENING, CLOSING = "<context_references>", "</context_references>"
_LOOK_ALIKE = re.compile(r"<(\s*/?\s*)(\\*)(context_references)", re.IGNORECASE | re.ASCII)
_UNKNOWN = "unknown"
_NAME_LENGTH_MAX = 160


def render_references(resolved: Iterable[ReferenceResolved]) -> str:
    """Returns the block for one message; nothing if it has no references."""
    parts = [_part(each) for each in resolved]
    return "\n".join((OPENING, *parts, CLOSING)) if parts else ""


def join_references(block: str, resolved: ReferenceResolved) -> str:
    return f"{block.removesuffix(CLOSING)}{_part(resolved)}\n{CLOSING}"


def record_of(resolved: ResolvedReference) -> ReferenceResolved:
    """Returns the event that records a reference. Its text is redacted already, and the event's fields are again."""
    return ReferenceResolved(
        raw=resolved.reference.shown,
        kind=resolved.reference.kind.value,
        ok=resolved.ok,
        trust=resolved.trust,
        chars=resolved.chars,
        code=resolved.code,
        warning=resolved.warning,
        fence_id=resolved.fence_id,
        content=resolved.text if resolved.ok else None,
        source=resolved.source,
        is_cut=resolved.is_cut,
        memory_ids=resolved.memory_ids,
        sources=resolved.sources,
    )


def _part(resolved: ReferenceResolved) -> str:
    name = _one_line(resolved.raw[:_NAME_LENGTH_MAX])
    if not resolved.ok or resolved.content is None:
        return f"[palyra] {name} was not included ({resolved.code or _UNKNOWN}): {_one_line(resolved.warning or '')}"
    label = f"{resolved.source or resolved.kind} ({name})"
    return fence(_escaped(resolved.content), resolved.fence_id or _UNKNOWN, _escaped(label))


def _one_line(text: str) -> str:
    return _escaped(neutralise(spell_out(" ".join(text.split()))))


def _escaped(text: str) -> str:
    return _LOOK_ALIKE.sub(r"<\1\\\2\3", text)
