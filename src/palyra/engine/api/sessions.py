"""Sessions of one principal (L11).

Owns: finding, creating, labelling, branching, restoring, resetting and deleting them.
Does not own: runs (api.runs), checkpoints and pins (api.marks).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events import Event
from palyra.core.events.session import (
    Parent,
    SessionBranched,
    SessionCreated,
    SessionLabelled,
    SessionReset,
    SessionRestored,
)
from palyra.core.ids import Principal, SessionId
from palyra.core.projections.rows import SessionRow
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.requests import KEY_LENGTH_MAX, LABEL_LENGTH_MAX, Checkpoint, SessionRequest
from palyra.engine.hub import Hub
from palyra.engine.new_ids import IdSource
from palyra.engine.session.commands import OpenSession, RecordSessionEvent
from palyra.engine.session.session_loader import SessionLoader
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.journal import Erasure, Journal
from palyra.ports.state import State
from palyra.ports.views import SessionViews

PAGE_MAX = 500
FAMILY_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionService:
    """`forget` ends everything that tools keep of a deleted session; `forget_layers` removes what commands left in it."""

    views: SessionViews
    state: State
    journal: Journal
    loader: SessionLoader
    loops: SessionLoops
    hub: Hub
    agents: AgentDirectory
    ids: IdSource
    artifacts: Artifacts
    clock: Clock
    forget: Callable[[SessionId], Awaitable[None]]
    forget_layers: Callable[[SessionId], Awaitable[None]]

    async def resolve(self, principal: Principal, request: SessionRequest) -> SessionRow:
        """Returns the session asked for. It is created if its key or label is new, or if nothing names it."""
        found = await self._find(principal, request)
        if found is None:
            found = await self._create(principal, request)
        elif request.reset:
            found = await self.reset(principal, found.id)
        return found

    async def get(self, principal: Principal, session_id: SessionId) -> SessionRow:
        row = await self.views.session(session_id, principal)
        if row is None or row.is_erased:
            raise NotFound("session_unknown", f"there is no session {session_id}")
        return row

    async def find_or_new(self, principal: Principal, session_id: SessionId) -> SessionRow | None:
        """Returns the session, or None if nobody has it yet. Somebody else's is answered as before: there is none."""
        row = await self.views.session(session_id, principal)
        if row is None and await self.journal.head(session_id) is None:
            return None
        return await self.get(principal, session_id)

    async def list(
        self, principal: Principal | None, after: str, limit: int, *, has_delegated: bool = False
    ) -> tuple[SessionRow, ...]:
        return await self.views.sessions(principal, after, min(limit, PAGE_MAX), has_delegated=has_delegated)

    async def reset(self, principal: Principal, session_id: SessionId, *, by: Principal | None = None) -> SessionRow:
        """Starts over. `by` acts with the permissions of `principal`. The caller checks that this is allowed."""
        await self.get(principal, session_id)
        await self.loops.post(session_id, RecordSessionEvent(principal=by or principal, data=SessionReset()))
        await self.forget_layers(session_id)
        return await self.get(principal, session_id)

    async def label(self, principal: Principal, session_id: SessionId, label: str | None) -> SessionRow:
        await self.get(principal, session_id)
        _require_length("label", label, LABEL_LENGTH_MAX)
        await self.loops.post(session_id, RecordSessionEvent(principal=principal, data=SessionLabelled(label=label)))
        return await self.get(principal, session_id)

    async def branch(self, principal: Principal, session_id: SessionId, at_seq: int, label: str | None) -> SessionRow:
        """Creates a session that shares this one's history up to `at_seq`; nothing is copied."""
        parent = await self.get(principal, session_id)
        _require_length("label", label, LABEL_LENGTH_MAX)
        origin = await self._origin(session_id, at_seq)
        taint = await self.loader.taint_at(parent, at_seq)
        opening = SessionBranched(owner=principal, agent=parent.agent, parent=origin, label=label, taint=taint)
        return await self._open(principal, opening)

    async def restore(
        self, principal: Principal, session_id: SessionId, checkpoint: Checkpoint, label: str | None
    ) -> SessionRow:
        """Creates a session that goes on from a checkpoint of this one. This session stays as it is."""
        parent = await self.get(principal, session_id)
        _require_length("label", label, LABEL_LENGTH_MAX)
        origin = await self._origin(session_id, checkpoint.seq)
        opening = SessionRestored(
            owner=principal,
            agent=parent.agent,
            parent=origin,
            checkpoint_id=checkpoint.id,
            label=label,
            taint=await self.loader.taint_at(parent, checkpoint.seq),
        )
        return await self._open(principal, opening)

    async def delete(self, principal: Principal, session_id: SessionId) -> None:
        """Erases the texts of the session, its branches and its delegated sessions. The hash chain stays."""
        await self.get(principal, session_id)
        family = await self._family(principal, session_id)
        await self.erase_family(family, "delete", principal)

    async def erase_family(
        self, family: Sequence[SessionId], reason: str, actor: Principal, idle_before_ms: int | None = None
    ) -> None:
        """Erases sessions that belong together, in one transaction; then what tools and artifacts hold of them.

        With `idle_before_ms` this is a Conflict if one of them has been used since then.

        A crash in between leaves files that nothing refers to, and so does a body that somebody has just put once more.
        Session cleanup removes them.
        """
        now_ms = self.clock.now_ms()
        artifacts = [item for member in family for item in await self.state.artifacts_of(member)]
        whole = Erasure(
            stream=family[0], seqs=None, reason=reason, actor=actor, at_ms=now_ms, idle_before_ms=idle_before_ms
        )
        erasures = [replace(whole, stream=member) for member in family]
        self.hub.publish(await self.journal.erase(erasures))
        for member in family:
            self.loops.drop(member)
            await self.forget(member)
            await self.forget_layers(member)
        for artifact_id in await self.state.unlinked(tuple(artifacts)):
            await self.artifacts.remove(artifact_id)

    async def tape(self, principal: Principal, session_id: SessionId, after_seq: int, limit: int) -> tuple[Event, ...]:
        await self.get(principal, session_id)
        return await self.journal.read(session_id, after_seq, min(limit, PAGE_MAX))

    async def _find(self, principal: Principal, request: SessionRequest) -> SessionRow | None:
        if request.session_id is not None:
            return await self.find_or_new(principal, request.session_id)
        if request.key is not None:
            return await self.views.session_by_key(request.key, principal)
        if request.label is not None:
            return await self.views.session_by_label(request.label, principal)
        return None

    async def _create(self, principal: Principal, request: SessionRequest) -> SessionRow:
        opening = self.opening(principal, request)
        try:
            return await self._open(principal, opening, request.session_id)
        except Conflict:
            # Somebody created it at the same moment: a key names one session, and the first one counts.
            found = await self._find(principal, request)
            if found is None:
                raise
            return found

    def opening(self, principal: Principal, request: SessionRequest) -> SessionCreated:
        _require_length("key", request.key, KEY_LENGTH_MAX)
        _require_length("label", request.label, LABEL_LENGTH_MAX)
        agent = self.agents.find(request.agent)
        return SessionCreated(owner=principal, agent=agent.name, key=request.key, label=request.label)

    async def _origin(self, session_id: SessionId, at_seq: int) -> Parent:
        events = await self.journal.read(session_id, at_seq - 1, 1) if at_seq >= 1 else ()
        if not events or events[0].seq != at_seq:
            raise Invalid(
                "seq_unknown",
                f"session {session_id} has no event {at_seq} to branch at; palyra sessions tape shows its events",
            )
        return Parent(session_id=session_id, seq=at_seq, hash=events[0].hash)

    async def _open(
        self,
        principal: Principal,
        opening: SessionCreated | SessionBranched | SessionRestored,
        session_id: SessionId | None = None,
    ) -> SessionRow:
        session_id = session_id or self.ids.session_id()
        await self.loops.post(session_id, OpenSession(principal=principal, opening=opening))
        return await self.get(principal, session_id)

    async def _family(self, principal: Principal, session_id: SessionId) -> tuple[SessionId, ...]:
        family = [session_id]
        for member in family:
            if len(family) > FAMILY_MAX:
                raise Conflict("too_many_branches", f"session {session_id} has over {FAMILY_MAX} branches")
            for branch in await self.views.dependents(member):
                if branch.owner != principal and not branch.is_erased:
                    raise Conflict("has_branches", f"session {session_id} has branches of somebody else")
                family.append(branch.id)
        return tuple(family)


def _require_length(noun: str, text: str | None, length_max: int) -> None:
    if text is not None and not 1 <= len(text) <= length_max:
        raise Invalid(f"{noun}_length", f"a {noun} has 1 to {length_max} characters")
