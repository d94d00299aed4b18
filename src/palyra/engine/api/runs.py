"""Runs of one principal (L11).

Owns: starting, steering, cancelling and following them. Does not own: driving them (engine.session).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.caller_tools import require_caller_tools
from palyra.core.errors import Conflict, Invalid, NotFound, Unavailable
from palyra.core.events import Event
from palyra.core.events.run import MessageUser, RunAccepted, RunCancelled, RunDone, RunFailed
from palyra.core.events.session import SessionCreated, TaintSource
from palyra.core.ids import Principal, RunId, SessionId, agent_principal
from palyra.core.origins import can_ask
from palyra.core.projections.rows import RunRow
from palyra.core.run.states import is_terminal
from palyra.core.service_runs import refuse_service
from palyra.core.trust import Trust
from palyra.core.typed import require_typed
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.kept_changes import KeptChangeService
from palyra.engine.api.objectives import ObjectiveIntake
from palyra.engine.api.processes import ProcessService
from palyra.engine.api.requests import (
    KEY_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    RunRecord,
    RunRequest,
    RunsQuery,
    SessionRequest,
    StartedRun,
)
from palyra.engine.api.run_changes import RunChangeService
from palyra.engine.api.run_records import make_listed
from palyra.engine.api.sessions import SessionService
from palyra.engine.hub import Follower, Frame, Frames, Hub, NoFrames, Tap
from palyra.engine.new_ids import IdSource
from palyra.engine.session.attachments import AttachmentIntake
from palyra.engine.session.commands import ON_REQUEST, CancelRun, Command, SendInput, StartRun
from palyra.engine.session.given_messages import take_given
from palyra.engine.session.reference_judge import ReferenceSender
from palyra.engine.session.session_loops import SessionLoops
from palyra.engine.setup import EngineSettings
from palyra.ports.journal import Journal
from palyra.ports.schemas import SchemaCheck
from palyra.ports.tools import Catalog
from palyra.ports.views import RunFilter, RunViews

PAGE_MAX = 500
DRAINING = "draining"
TERMINAL_TYPES = frozenset({RunDone.TYPE, RunFailed.TYPE, RunCancelled.TYPE})


@dataclass(slots=True, kw_only=True)
class RunService:
    sessions: SessionService
    views: RunViews
    journal: Journal
    hub: Hub
    loops: SessionLoops
    agents: AgentDirectory
    ids: IdSource
    attachments: AttachmentIntake
    schemas: SchemaCheck
    catalog: Catalog
    objectives: ObjectiveIntake
    processes: ProcessService
    changes: RunChangeService
    kept: KeptChangeService
    settings: EngineSettings
    tools_begun: Callable[[], Awaitable[None]]
    is_draining: bool = False

    async def start(self, principal: Principal, request: RunRequest) -> RunRecord:
        """Starts a run; it is accepted and durable when this returns. The same idempotency key returns the same run."""
        known = await self._known(principal, request)
        if known is not None:
            return await make_listed(self.journal, known)
        session_id, command = await self._command(principal, request)
        started = await self._post(principal, session_id, command)
        # In a shared session a message may have steered another's run, which the session's owner sees.
        return await self.get(request.owner or principal, started.id)

    async def start_and_follow(self, principal: Principal, request: RunRequest) -> tuple[StartedRun, Frames]:
        """Starts a run and follows it from its first event. A follower that keeps up does not read the tape."""
        known = await self._known(principal, request)
        if known is not None:
            there = StartedRun(id=known.id, session_id=known.session_id)
            return there, await self.follow(principal, known.id, None)
        session_id, command = await self._command(principal, request)
        follower = self.hub.attach(session_id)
        started: StartedRun | None = None
        try:
            started = await self._post(principal, session_id, command)
        finally:
            # The command may have been refused, or its answer is a run in another session or from before.
            is_here = started == StartedRun(id=command.run_id, session_id=session_id)
            if not is_here:
                follower.close()
        if not is_here:
            return started, await self.follow(principal, started.id, None)
        # The first event in the buffer is the first since the follower was attached.
        return started, RunFrames(follower.follow(follower.first_seq() - 1), started.id)

    async def get(self, principal: Principal, run_id: RunId) -> RunRecord:
        return await make_listed(self.journal, await self._row(principal, run_id))

    async def list(self, principal: Principal | None, query: RunsQuery) -> tuple[RunRecord, ...]:
        """Lists runs; None lists everyone's. The caller checks that this is allowed."""
        wanted = RunFilter(
            session_id=query.session_id,
            state=query.state,
            has_services=query.has_services,
            has_delegated=query.has_delegated,
            after=query.after,
            limit=min(query.limit, PAGE_MAX),
        )
        rows = await self.views.list_runs(principal, wanted)
        return tuple([await make_listed(self.journal, row) for row in rows])

    async def send_input(
        self,
        principal: Principal,
        run_id: RunId,
        text: str,
        trust: Trust,
        typed: str | None = None,
        client: str | None = None,
    ) -> RunRecord:
        """Tells a run more. `typed` are the words a person typed of it; `client` is the program that speaks, if any."""
        _require_text(text)
        require_typed(text, typed)
        row = await self._row(principal, run_id)
        self._require_open(row)
        message = MessageUser(text=text, typed=typed, client=client)
        await self._tell(row, SendInput(run_id=run_id, principal=principal, trust=trust, message=message))
        return await self.get(principal, run_id)

    async def cancel(
        self, principal: Principal, run_id: RunId, *, by: Principal | None = None, message: str = ON_REQUEST
    ) -> RunRecord:
        """Cancels a run, durable when this returns. Cancelling a run that is over changes nothing and is no error.

        `by` acts with the permissions of `principal`. The caller checks that this is allowed.
        """
        row = await self._row(principal, run_id)
        if not is_terminal(row.state):
            await self._tell(row, CancelRun(run_id=run_id, principal=by or principal, message=message))
        return await self.get(principal, run_id)

    async def follow(self, principal: Principal, run_id: RunId, after_seq: int | None) -> Frames:
        row = await self._row(principal, run_id)
        cursor = row.accepted_seq - 1 if after_seq is None else max(after_seq, row.accepted_seq - 1)
        if row.ended_seq is not None and cursor >= row.ended_seq:
            return NoFrames()
        head = await self.journal.head(row.session_id)
        if head is not None and cursor > head.seq:
            raise Invalid("cursor_invalid", f"the cursor {cursor} lies beyond the tape's end, {head.seq}")
        return RunFrames(self.hub.attach(row.session_id).follow(cursor), run_id)

    async def _command(self, principal: Principal, request: RunRequest) -> tuple[SessionId, StartRun]:
        if self.is_draining:
            raise Unavailable(DRAINING, "the daemon is stopping; try again in a moment")
        _require_text(request.text)
        require_typed(request.text, request.typed)
        _require_length("instructions", request.instructions)
        self._require_demands(request)
        owner = request.owner or principal
        session = await self._session(owner, request)
        if session is not None:
            refuse_service(*session)
        agent = self.agents.find(request.agent or (session[1] if session else None))
        # Without this, a run of the first second after a start would be told that its tools do not exist.
        await self.tools_begun()
        wish = SessionRequest(key=request.session_key, agent=request.agent)
        session_id = session[0] if session else request.session_id or self.ids.session_id()
        sender = ReferenceSender(
            principal=principal, agent=agent, session_id=session_id, trust=request.trust, channel=request.origin
        )
        self.objectives.require(request, sender)
        attachments = await self.attachments.take(principal, request.attachments, request.text)
        accepted = RunAccepted(
            agent=agent.name,
            origin=request.origin,
            can_ask=self._can_ask(request),
            limits=self.settings.limits,
            idempotency_key=request.idempotency_key,
            model=request.model,
            must_call=request.must_call,
            objectives=request.objectives,
            answer_schema=request.answer_schema,
            caller_tools=request.caller_tools,
            instructions=request.instructions,
            output_tokens_max=request.output_tokens_max,
            reply=request.reply,
            client=request.client,
        )
        command = StartRun(
            run_id=self.ids.run_id(),
            principal=principal,
            # Below `local` the accepted run is a source by itself, so that a session that exists is tainted too.
            trust=Trust.EXTERNAL if request.taint else request.trust,
            accepted=accepted,
            message=MessageUser(
                text=request.text,
                attachments=attachments,
                via=request.via,
                typed=request.typed,
                client=request.client,
                leaves_questions=request.leaves_questions,
            ),
            when_busy=request.when_busy,
            opening=_tainted(self.sessions.opening(owner, wish), request.taint) if session is None else None,
            speaker=agent_principal(agent.name) if request.taint else None,
            given=(
                await take_given(self.attachments, principal, request.given, request.client) if session is None else ()
            ),
            writes=request.writes,
        )
        return session_id, command

    async def _session(self, owner: Principal, request: RunRequest) -> tuple[SessionId, str] | None:
        """Returns the owner's session and its agent; None for one that this run begins.

        A running loop of the owner's session knows both, so nothing is read again.
        """
        if request.session_id is not None:
            known = self.loops.known_state(request.session_id)
            if known is not None and known.owner == owner:
                return request.session_id, known.agent
            row = await self.sessions.find_or_new(owner, request.session_id)
            return (row.id, row.agent) if row is not None else None
        if request.session_key is None:
            return None
        found = await self.sessions.views.session_by_key(request.session_key, owner)
        return (found.id, found.agent) if found is not None else None

    async def _post(self, principal: Principal, session_id: SessionId, command: StartRun) -> StartedRun:
        """Posts a command. If another command took the key at the same moment, its run is the answer."""
        try:
            run_id = await self.loops.post(session_id, command)
        except Conflict as conflict:
            known = await self._taken_by(principal, command, conflict)
            if known is not None:
                return known
            beside = await self._session_beside(command, conflict)
            return await self._post(principal, beside, replace(command, opening=None))
        return StartedRun(id=run_id or command.run_id, session_id=session_id)

    async def _taken_by(self, principal: Principal, command: StartRun, conflict: Conflict) -> StartedRun | None:
        key = command.accepted.idempotency_key
        if conflict.code != "idempotency_key_taken" or key is None:
            return None
        row = await self.views.run_by_idempotency_key(key, principal)
        return None if row is None else StartedRun(id=row.id, session_id=row.session_id)

    async def _session_beside(self, command: StartRun, conflict: Conflict) -> SessionId:
        """Returns the session that got the key first. Any other conflict is raised to the caller."""
        opening = command.opening
        is_taken = conflict.code == "session_key_taken" and opening is not None and opening.key is not None
        views = self.sessions.views
        row = await views.session_by_key(opening.key, opening.owner) if is_taken and opening and opening.key else None
        if row is None:
            raise conflict
        return row.id

    async def _known(self, principal: Principal, request: RunRequest) -> RunRow | None:
        key = request.idempotency_key
        if key is None:
            return None
        if not 1 <= len(key) <= KEY_LENGTH_MAX:
            raise Invalid("idempotency_key_length", f"an idempotency key has 1 to {KEY_LENGTH_MAX} characters")
        return await self.views.run_by_idempotency_key(key, principal)

    async def _row(self, principal: Principal, run_id: RunId) -> RunRow:
        row = await self.views.run(run_id, principal)
        if row is None:
            raise NotFound("run_unknown", f"there is no run {run_id}")
        return row

    async def _tell(self, row: RunRow, command: Command) -> None:
        """Sends a command to a run.

        A run that ended at the same moment is a Conflict for input, and nothing for cancel.
        """
        try:
            await self.loops.post(row.session_id, command)
        except NotFound as error:
            if not isinstance(command, CancelRun):
                raise Conflict(
                    "run_ended", f"run {row.id} is over; start a new one in its session", is_retryable=False
                ) from error

    def _can_ask(self, request: RunRequest) -> bool:
        if request.can_ask is not None:
            return request.can_ask
        return can_ask(request.origin, waits_headless=self.settings.waits_headless)

    def _require_demands(self, request: RunRequest) -> None:
        """Refuses demands that no answer could meet now, rather than after all turns are spent."""
        schema = request.answer_schema
        errors = self.schemas.schema_errors(schema) if schema is not None else ()
        if errors:
            raise Invalid("answer_schema_invalid", f"answer_schema is no usable JSON Schema: {errors[0]}")
        require_caller_tools(request.caller_tools, (spec.name for spec in self.catalog.specs()))
        callers = {tool.name for tool in request.caller_tools}
        missing = [tool for tool in request.must_call if tool not in callers and self.catalog.find(tool) is None]
        if missing:
            raise Invalid(
                "must_call_unknown", f"must_call names unknown tools: {', '.join(missing)}; palyra tools lists them"
            )

    def _require_open(self, row: RunRow) -> None:
        if is_terminal(row.state):
            raise Conflict(
                "run_ended", f"run {row.id} is {row.state.value}; start a new one in its session", is_retryable=False
            )


class RunFrames(Frames):
    """One run's frames, up to its terminal event."""

    def __init__(self, follower: Follower, run_id: RunId) -> None:
        super().__init__()
        self._follower = follower
        self._run_id = run_id

    async def take(self) -> Sequence[Frame]:
        if self.is_over:
            return ()
        frames = [frame for frame in await self._follower.take() if frame.run_id == self._run_id]
        for count, frame in enumerate(frames, 1):
            if isinstance(frame, Event) and frame.type in TERMINAL_TYPES:
                self.is_over = True
                self.close()
                return frames[:count]
        return frames

    def tap(self, tap: Tap) -> None:
        run_id = self._run_id
        self._follower.tap(lambda frame: frame.run_id == run_id and tap(frame))

    def wake(self) -> None:
        self._follower.wake()

    def close(self) -> None:
        self._follower.close()


def _tainted(opening: SessionCreated, taint: tuple[str, ...]) -> SessionCreated:
    return replace(opening, taint=tuple(TaintSource(source=source, since_seq=1) for source in taint))


def _require_text(text: str) -> None:
    if not text.strip():
        raise Invalid("text_empty", "there is nothing to do: the text is empty")
    _require_length("text", text)


def _require_length(noun: str, text: str) -> None:
    if len(text) > TEXT_LENGTH_MAX:
        raise Invalid("text_length", f"{len(text)} characters of {noun}, the most is {TEXT_LENGTH_MAX}")
