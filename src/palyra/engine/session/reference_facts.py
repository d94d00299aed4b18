"""Turns resolved references into facts of a run: one `reference.resolved` each, and the secrets behind their markers.

Does not own: resolving (reference_resolver), the commit (commit_builder).
Invariant: the event has the trust of what it holds, so that a run which saw it is no more trusted than that (L8).
"""

from collections.abc import Iterable

from palyra.core.events import Draft
from palyra.core.ids import MemoryId, RunId, SessionId
from palyra.core.references.model import ResolvedReference
from palyra.core.references.prompt import record_of
from palyra.core.writes import MentionMemory, SealSecret, Write
from palyra.engine.session.drafts import ENGINE
from palyra.ports.sealer import Sealer


def reference_facts(
    resolved: Iterable[ResolvedReference], run_id: RunId, session_id: SessionId, sealer: Sealer, now_ms: int
) -> tuple[tuple[Draft, ...], tuple[Write, ...]]:
    """The secrets are sealed for this run, as those of a tool's output are. Only its executor gets them back (L5)."""
    known = tuple(resolved)
    drafts = tuple(
        Draft(data=record_of(each), actor=ENGINE, trust=each.trust, at_ms=now_ms, run_id=run_id) for each in known
    )
    by_id = {secret.id: secret for each in known for secret in each.secrets}
    context = run_id.encode()
    sealed: tuple[Write, ...] = tuple(
        SealSecret(run_id, secret.id, sealer.seal(secret.value.encode(), context)) for secret in by_id.values()
    )
    shown = tuple(MemoryId(memory_id) for each in known for memory_id in each.memory_ids)
    return drafts, (*sealed, MentionMemory(shown, session_id)) if shown else sealed
