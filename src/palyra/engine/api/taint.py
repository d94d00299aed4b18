"""A session's taint: where it came from, and the sources that a person trusts (L8).

Owns: showing it, and recording trust. Does not own: the fold (core.taint).
"""

from dataclasses import dataclass

from palyra.core.errors import Invalid, NotFound
from palyra.core.events.session import SourceDistrusted, SourceTrusted, TaintSource
from palyra.core.ids import Principal, SessionId
from palyra.core.taint import LABEL_LENGTH_MAX, Taint, decode_taint, find_source
from palyra.engine.api.requests import TaintOrigin, TaintRecord
from palyra.engine.api.sessions import SessionService
from palyra.engine.session.commands import RecordSessionEvent
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.views import ProvenanceViews

REASON_LENGTH_MAX = 2_000


@dataclass(frozen=True, slots=True)
class TaintService:
    sessions: SessionService
    provenance: ProvenanceViews
    loops: SessionLoops

    async def show(self, principal: Principal, session_id: SessionId) -> tuple[TaintRecord, ...]:
        """Returns the sources in the order they came in, including those that a person trusts."""
        await self.sessions.get(principal, session_id)
        return tuple(_record(each) for each in await read_taint(self.provenance, session_id))

    async def trust(
        self, principal: Principal, session_id: SessionId, source: str, reason: str
    ) -> tuple[TaintRecord, ...]:
        return await self._record_trust(principal, session_id, SourceTrusted(source=source, reason=reason))

    async def distrust(
        self, principal: Principal, session_id: SessionId, source: str, reason: str
    ) -> tuple[TaintRecord, ...]:
        return await self._record_trust(principal, session_id, SourceDistrusted(source=source, reason=reason))

    async def _record_trust(
        self, principal: Principal, session_id: SessionId, data: SourceTrusted | SourceDistrusted
    ) -> tuple[TaintRecord, ...]:
        """Records trust. Only the owner can trust a source, because it is the owner's agent that would act on it."""
        row = await self.sessions.get(principal, session_id)
        if row.owner != principal:
            raise NotFound("session_unknown", f"there is no session {session_id}")
        if not 1 <= len(data.source) <= LABEL_LENGTH_MAX:
            raise Invalid("source_length", f"a source has 1 to {LABEL_LENGTH_MAX} characters")
        if len(data.reason) > REASON_LENGTH_MAX:
            raise Invalid("reason_length", f"a reason has at most {REASON_LENGTH_MAX} characters")
        await self.loops.post(session_id, RecordSessionEvent(principal=principal, data=data))
        return tuple(_record(each) for each in await read_taint(self.provenance, session_id))


async def read_taint(provenance: ProvenanceViews, session_id: SessionId) -> Taint:
    row = await provenance.taint(session_id)
    return decode_taint(row.sources) if row is not None else ()


async def origins_of(
    provenance: ProvenanceViews, session_id: SessionId, sources: tuple[str, ...]
) -> tuple[TaintOrigin, ...]:
    """Returns where the sources of a question came in, as far as the session still knows."""
    taint = await read_taint(provenance, session_id) if sources else ()
    return tuple(_origin(source, find_source(taint, source)) for source in sources)


def _record(found: TaintSource) -> TaintRecord:
    return TaintRecord(
        source=found.source,
        since_seq=found.since_seq,
        call_id=found.call_id,
        tool=found.tool,
        is_trusted=found.is_trusted,
    )


def _origin(source: str, found: TaintSource | None) -> TaintOrigin:
    if found is None:
        return TaintOrigin(source=source, seq=None, tool=None)
    return TaintOrigin(source=source, seq=found.since_seq, tool=found.tool)
