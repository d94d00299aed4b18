"""Previews the references of a text before it is sent (the preview_context_references of the first description).

Owns: for whom and in which session they are resolved, and the form of the answer.
Does not own: resolving (session.reference_resolver).
Invariant: nothing is recorded. The answer is redacted, as everything is that leaves the daemon (L5).
"""

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.model import ReferenceResolved
from palyra.core.ids import Principal, SessionId
from palyra.core.redaction import Redactor
from palyra.core.references.parser import parse_references
from palyra.core.references.prompt import record_of, render_references
from palyra.core.taint import labels
from palyra.core.trust import Trust
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.requests import TEXT_LENGTH_MAX
from palyra.engine.api.sessions import SessionService
from palyra.engine.api.taint import read_taint
from palyra.engine.new_ids import IdSource
from palyra.engine.session.reference_judge import ReferenceSender
from palyra.engine.session.reference_resolver import ReferenceResolver
from palyra.ports.views import ProvenanceViews

CHANNEL = "http"


class PreviewedReference(msgspec.Struct, frozen=True, kw_only=True):
    raw: str
    kind: str
    ok: bool
    code: str | None
    warning: str | None
    chars: int
    trust: str


class ContextPreview(msgspec.Struct, frozen=True, kw_only=True):
    """`rendered` is the block that a model would be shown; it is empty if the text has no references."""

    references: tuple[PreviewedReference, ...]
    rendered: str
    total_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPreviewer:
    sessions: SessionService
    agents: AgentDirectory
    provenance: ProvenanceViews
    resolver: ReferenceResolver
    redactor: Redactor
    ids: IdSource

    async def preview(self, principal: Principal, text: str, session_id: SessionId | None) -> ContextPreview:
        """Raises NotFound if the session is not the principal's. Without a session, a new one is assumed."""
        if len(text) > TEXT_LENGTH_MAX:
            raise Invalid("text_length", f"the text has {len(text)} characters, the most is {TEXT_LENGTH_MAX}")
        sender = await self._sender(principal, session_id)
        resolved = await self.resolver.resolve(parse_references(text), sender)
        records = [self._redacted(record_of(each)) for each in resolved]
        return ContextPreview(
            references=tuple(_shown(each) for each in records),
            rendered=render_references(records),
            total_chars=sum(each.chars for each in records),
        )

    async def _sender(self, principal: Principal, session_id: SessionId | None) -> ReferenceSender:
        row = await self.sessions.get(principal, session_id) if session_id is not None else None
        taint = labels(await read_taint(self.provenance, row.id)) if row is not None else ()
        return ReferenceSender(
            principal=principal,
            agent=self.agents.find(row.agent if row is not None else None),
            session_id=row.id if row is not None else self.ids.session_id(),
            trust=Trust.OPERATOR,
            taint=taint,
            channel=CHANNEL,
        )

    def _redacted(self, record: ReferenceResolved) -> ReferenceResolved:
        """The content is redacted already; what the person wrote, and what was said of it, is not."""
        warning = self.redactor.text(record.warning).text if record.warning is not None else None
        return replace(record, raw=self.redactor.text(record.raw).text, warning=warning)


def _shown(record: ReferenceResolved) -> PreviewedReference:
    return PreviewedReference(
        raw=record.raw,
        kind=record.kind,
        ok=record.ok,
        code=record.code,
        warning=record.warning,
        chars=record.chars,
        trust=record.trust.value,
    )
