"""The exchange behind one request: a run is started, or goes on with results, and its segment is followed.

Owns: which agent, model and session a request means, and finding the place where a repeated request continues.
Does not own: wire forms (chat, responses), following (segment), what a run does (engine).
"""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.events.run import CallerTool, MessageUser, RunWaiting
from palyra.core.events.tool import ToolFinished, ToolProposed
from palyra.core.ids import ApprovalId, CallId, RunId, SessionId, parse_session_id
from palyra.core.run.states import RunState
from palyra.engine.api.requests import KEY_LENGTH_MAX, RunRequest, RunsQuery, WhenBusy
from palyra.engine.engine import Engine
from palyra.engine.hub import Frames
from palyra.gateway.access.caller import Caller
from palyra.gateway.openai.conversation import (
    CallerConversation,
    Returned,
    ask_alone,
    ask_in_session,
    returned_in,
    wire_call_id,
)
from palyra.gateway.openai.segment import CallOut, SegmentFrames, Waits

ORIGIN = "v1"
PAGE_EVENTS = 500


class SessionName(msgspec.Struct, frozen=True, kw_only=True):
    """How a request names its session; empty for one that stands alone."""

    session_id: SessionId | None = None
    key: str | None = None

    @property
    def is_named(self) -> bool:
        return self.session_id is not None or self.key is not None


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants, in the words of neither endpoint."""

    model: str
    conversation: CallerConversation
    session: SessionName = SessionName()
    tools: tuple[CallerTool, ...] = ()
    must_call: tuple[str, ...] = ()
    hint: str = ""
    answer_schema: JsonObject | None = None
    output_tokens_max: int | None = None
    idempotency_key: str | None = None


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A followed segment. `after_seq` is 0 for the first of its run."""

    run_id: RunId
    session_id: SessionId
    after_seq: int
    frames: SegmentFrames


class ChosenModel(msgspec.Struct, frozen=True):
    agent: str | None
    model: str | None


class RunExchange:
    """For one caller. `base_url` is where this caller reaches the daemon, for links that a person opens."""

    def __init__(self, engine: Engine, caller: Caller, base_url: str) -> None:
        self._engine = engine
        self._caller = caller
        self._principal = caller.principal
        self._base_url = base_url

    async def begin(self, wish: Wish) -> Segment:
        """Gives results to the run that waits for them, or else starts a run."""
        returned = returned_in(wish.conversation.messages)
        if returned is not None:
            segment = await self._go_on(wish, returned)
            if segment is not None:
                return segment
        return await self._start(wish)

    async def reopen(self, run_id: RunId, after_seq: int, *, is_whole: bool = False) -> Segment:
        """Follows a segment that was begun before."""
        record = await self._engine.runs.get(self._principal, run_id)
        frames = await self._engine.runs.follow(self._principal, run_id, after_seq or None)
        return self._segment(run_id, record.session_id, after_seq, frames, is_whole=is_whole)

    def choose(self, name: str) -> ChosenModel:
        """An agent's name, or a model's with the default agent."""
        status = self._engine.status
        if name in {agent.name for agent in status.agents()}:
            return ChosenModel(name, None)
        if name in {card.name for card in status.models()}:
            return ChosenModel(None, name)
        raise NotFound("model_not_found", f"there is no agent and no model {name[:64]!r}; see GET /v1/models")

    async def _start(self, wish: Wish) -> Segment:
        chosen = self.choose(wish.model)
        messages = wish.conversation.messages
        asked = ask_in_session(messages) if wish.session.is_named else ask_alone(messages)
        said = [wish.conversation.instructions, wish.hint]
        request = RunRequest(
            text=asked.text or ("(see what is attached)" if asked.attachments else ""),
            origin=ORIGIN,
            trust=self._caller.trust,
            client=self._caller.client,
            session_id=wish.session.session_id,
            session_key=wish.session.key,
            attachments=asked.attachments,
            agent=chosen.agent,
            model=chosen.model,
            idempotency_key=wish.idempotency_key,
            answer_schema=wish.answer_schema,
            must_call=wish.must_call,
            caller_tools=wish.tools,
            instructions="\n\n".join(text for text in said if text),
            output_tokens_max=wish.output_tokens_max,
            given=asked.given,
        )
        return await self.start(request)

    async def start(self, request: RunRequest) -> Segment:
        """Starts a run and follows its first segment.

        A message to a session that waits for somebody takes the place of what it waits for. Others queue.
        """
        waiting = await self._waiting(SessionName(session_id=request.session_id, key=request.session_key))
        is_whole = request.answer_schema is not None
        if waiting is not None:
            request = replace(request, when_busy=WhenBusy.STEER)
        started, frames = await self._engine.runs.start_and_follow(self._principal, request)
        if waiting is not None and started.id == waiting[0]:
            frames.close()
            return await self.reopen(*waiting, is_whole=is_whole)
        return self._segment(started.id, started.session_id, 0, frames, is_whole=is_whole)

    async def _waiting(self, session: SessionName) -> tuple[RunId, int] | None:
        """Returns the run of a session that waits for somebody, and where its tape ends now."""
        session_id = session.session_id
        if session.key is not None:
            row = await self._engine.sessions.views.session_by_key(session.key, self._principal)
            session_id = row.id if row is not None else None
        if session_id is None:
            return None
        query = RunsQuery(session_id=session_id, state=RunState.WAITING, limit=1)
        runs = await self._engine.runs.list(self._principal, query)
        head = await self._engine.runs.journal.head(session_id) if runs else None
        return (runs[0].id, head.seq) if head is not None else None

    async def _go_on(self, wish: Wish, returned: Returned) -> Segment | None:
        """Returns None if the run cannot take the results any more: then the conversation starts a new run."""
        try:
            record = await self._engine.runs.get(self._principal, returned.run_id)
        except NotFound:
            return None
        try:
            await self._give(returned)
        except Conflict as conflict:
            if conflict.code not in ("run_ended", "call_not_waiting"):
                raise
        seq = await self._answered_seq(record.session_id, record.accepted_seq, returned)
        if seq is None:
            return None
        frames = await self._engine.runs.follow(self._principal, returned.run_id, seq)
        is_whole = wish.answer_schema is not None
        return self._segment(returned.run_id, record.session_id, seq, frames, is_whole=is_whole)

    async def _give(self, returned: Returned) -> None:
        message = None
        if returned.text or returned.attachments:
            attached = await self._engine.runs.attachments.take(self._principal, returned.attachments, returned.text)
            message = MessageUser(text=returned.text, attachments=attached, client=self._caller.client)
        await self._engine.caller_tools.give(self._principal, returned.run_id, returned.results, message)

    async def _answered_seq(self, session_id: SessionId, after_seq: int, returned: Returned) -> int | None:
        """Returns where the last of these results stands on the tape, or None if one is not there."""
        wanted = {result.call_id for result in returned.results}
        last_seq = after_seq
        while wanted and (
            page := await self._engine.sessions.tape(self._principal, session_id, after_seq, PAGE_EVENTS)
        ):
            for event in page:
                after_seq = event.seq
                data = event.data
                if isinstance(data, ToolFinished) and event.run_id == returned.run_id and data.call_id in wanted:
                    wanted.remove(CallId(data.call_id))
                    last_seq = event.seq
        return None if wanted else last_seq

    def _segment(
        self, run_id: RunId, session_id: SessionId, after_seq: int, frames: Frames, *, is_whole: bool
    ) -> Segment:
        waits = Waits(calls=self._calls_of(run_id), notice=self._notice_of(run_id))
        told = SegmentFrames(run_id, frames, waits, is_whole=is_whole)
        return Segment(run_id=run_id, session_id=session_id, after_seq=after_seq, frames=told)

    def _calls_of(
        self, run_id: RunId
    ) -> Callable[[RunWaiting, dict[str, ToolProposed]], Awaitable[tuple[CallOut, ...]]]:
        async def calls(waiting: RunWaiting, proposed: dict[str, ToolProposed]) -> tuple[CallOut, ...]:
            owed = {
                call.call_id: call.arguments for call in await self._engine.caller_tools.owed(self._principal, run_id)
            }
            found = [(call_id, proposed[call_id]) for call_id in waiting.call_ids if call_id in proposed]
            return tuple(
                CallOut(
                    id=wire_call_id(run_id, int(call_id[1:].partition("_")[0])),
                    name=data.tool,
                    arguments=_encoded(owed.get(CallId(call_id), data.arguments)),
                )
                for call_id, data in found
            )

        return calls

    def _notice_of(self, run_id: RunId) -> Callable[[RunWaiting], Awaitable[str | None]]:
        async def notice(waiting: RunWaiting) -> str | None:
            record = await self._engine.runs.get(self._principal, run_id)
            if record.state != RunState.WAITING.value:
                return None
            lines = [await self._card_line(approval_id) for approval_id in waiting.approval_ids]
            lines.append(f"The run {run_id} goes on in the background once this is answered.")
            return "\n".join(lines)

        return notice

    async def _card_line(self, approval_id: ApprovalId) -> str:
        card = await self._engine.approvals.get(self._principal, approval_id)
        what = f"The call of {card.tool}" if card.tool is not None else "Going beyond the budget"
        link = f"{self._base_url}/#/approvals/{approval_id}"
        return (
            f"{what} needs your approval. See it: palyra approvals show {approval_id}\n"
            f"Answer it: palyra approvals allow {approval_id} (or deny), or begin at {link}"
        )


def name_session(header: str | None, metadata: dict[str, str] | None, user: str | None) -> SessionName:
    """The header wins over the metadata, and the metadata over `user`."""
    given = metadata or {}
    named = header or given.get("session_id") or given.get("session_key")
    if named:
        return session_named(named)
    if user:
        return SessionName(key=_short(f"v1:{user}"))
    return SessionName()


def session_named(name: str) -> SessionName:
    """Names a session by its id if the name has that form, else by its key."""
    try:
        return SessionName(session_id=parse_session_id(name))
    except Invalid:
        return SessionName(key=_short(name))


def _short(key: str) -> str:
    if len(key) > KEY_LENGTH_MAX:
        raise Invalid("session_key_length", f"the name of a session has at most {KEY_LENGTH_MAX} characters")
    return key


def _encoded(arguments: JsonObject | str) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
