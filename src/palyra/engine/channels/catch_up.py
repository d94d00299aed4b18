"""Reads what people wrote while a channel was not connected, where the platform lists it.

Owns: that missed messages of a conversation are taken before live ones, oldest first, and how reading is tried again.
Does not own: the limits (core.channels.missed), what becomes of a message (intake), the platform (adapters.channels).
Invariants: only conversations that the channel took a message of are read, from the last one that was heard. A live
message of such a conversation waits until they are read, so that no crash puts the position behind one that is missing.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from palyra.core.channels.bursts import MESSAGES_MAX as BATCH_MAX
from palyra.core.channels.missed import AGE_MAX_MS, CONVERSATIONS_MAX, MESSAGES_MAX, ReadPosition, is_later
from palyra.core.channels.model import InboundMessage
from palyra.core.channels.unread import UnreadMessage
from palyra.core.errors import NotFound, PalyraError, Unavailable
from palyra.engine.channels.dead_letters import DeadLetters
from palyra.engine.channels.intake import WAITING_MAX, ChannelIntake, Receipt
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.channels import Arrival, ChannelHistory, Complete, PastMessage, PositionViews
from palyra.ports.clock import Clock

AT_ONCE_MAX = 4  # Conversations; one whose files are slow holds up no others.
WAITS_S = (2.0, 10.0, 30.0)  # Before a page or a message is tried again. A longer outage ends the connection.

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Held:
    """A live message that waits. `place` is what the intake returned for it."""

    message: InboundMessage
    complete: Complete | None
    place: "asyncio.Future[asyncio.Future[Receipt]]"


@dataclass(slots=True)
class _Missed:
    """What a conversation's history held. `left_count` were too old or too many; with `has_more` there are others.

    `read_count` counts also what nobody said to us: a robot that writes day and night holds nothing up.
    """

    arrivals: list[Arrival] = field(default_factory=list)
    read_count: int = 0
    left_count: int = 0
    has_more: bool = False


@dataclass(slots=True, kw_only=True)
class CatchUp:
    """For one channel. `left_count` is how many messages the last reading left, at least."""

    channel: str
    intake: ChannelIntake
    letters: DeadLetters
    views: PositionViews
    tasks: TaskSupervisor
    clock: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    left_count: int = 0
    _held: dict[str, list[_Held]] = field(default_factory=dict)
    _unread: set[str] = field(default_factory=set)
    _is_looking: bool = False
    _task: "asyncio.Task[None] | None" = None

    async def receive(self, message: InboundMessage | UnreadMessage, complete: Complete | None = None) -> Receipt:
        """Takes a live message, once the missed ones of its conversation are taken. Raises only Unavailable."""
        return await self.letters.settled(message, lambda plain: self._receive(plain, complete))

    async def _receive(self, message: InboundMessage, complete: Complete | None) -> Receipt:
        conversation_id = message.conversation_id
        if not message.is_listed or not (self._is_looking or conversation_id in self._unread):
            return await self.intake.receive(message, complete)
        waiting = self._held.setdefault(conversation_id, [])
        if len(waiting) >= WAITING_MAX:
            raise Unavailable("conversation_busy", f"{WAITING_MAX} messages of this conversation wait already")
        held = _Held(message, complete, asyncio.get_running_loop().create_future())
        waiting.append(held)
        return await (await held.place)

    def begin(self, history: ChannelHistory) -> None:
        """Starts to read. Live messages wait from now on, those of an earlier reading too."""
        earlier, self._is_looking, self.left_count = self._task, True, 0
        self._task = self.tasks.spawn(self._read(history), f"catch up {self.channel}")
        if earlier is not None:
            earlier.cancel()

    def end(self) -> None:
        """Stops. What waits is refused; it is read when the channel connects again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        held = [each for waiting in self._held.values() for each in waiting]
        self._held, self._unread, self._is_looking = {}, set(), False
        for each in held:
            if not each.place.done():
                each.place.set_exception(Unavailable("connection_lost", "the channel is not connected any more"))

    async def _read(self, history: ChannelHistory) -> None:
        try:
            positions = deque(await self.views.positions(self.channel, CONVERSATIONS_MAX))
            self._unread, self._is_looking = {each.conversation_id for each in positions}, False
            for conversation_id in self._held.keys() - self._unread:
                self._release(conversation_id)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE_MAX, len(positions))):
                    group.create_task(self._read_next(positions, history))
        finally:
            if self._task is asyncio.current_task():
                self._task, self._unread, self._is_looking = None, set(), False
                for conversation_id in tuple(self._held):
                    self._release(conversation_id)

    async def _read_next(self, positions: deque[ReadPosition], history: ChannelHistory) -> None:
        while positions:
            position = positions.popleft()
            try:
                await self._read_on(position, history)
            except NotFound:
                log.info("channel_history_closed", channel=self.channel, conversation=position.conversation_id)
            except PalyraError as error:
                log.warning("channel_history_unread", channel=self.channel, code=error.code, why=error.message)
            self._unread.discard(position.conversation_id)
            self._release(position.conversation_id)

    async def _read_on(self, position: ReadPosition, history: ChannelHistory) -> None:
        """Hands over what a conversation holds since that position."""
        missed = await self._missed(position, history)
        for number in range(0, len(missed.arrivals), BATCH_MAX):
            await self._hand_over(missed.arrivals[number : number + BATCH_MAX])
        if missed.arrivals:
            log.info("channel_caught_up", channel=self.channel, count=len(missed.arrivals))
        if missed.left_count or missed.has_more:
            self.left_count += max(missed.left_count, 1)
            log.warning(
                "channel_messages_left", channel=self.channel, count=missed.left_count, has_more=missed.has_more
            )

    async def _missed(self, position: ReadPosition, history: ChannelHistory) -> _Missed:
        """Reads backwards, so that the newest messages are those that are taken, and returns them oldest first."""
        found, oldest_ms, before, is_within = _Missed(), self.clock.now_ms() - AGE_MAX_MS, None, True
        while is_within:
            page = await self._page(history, position.conversation_id, before)
            fresh = [each for each in page if is_later(each.message_id, position.message_id)]
            for past in fresh:
                is_within = is_within and past.at_ms >= oldest_ms and found.read_count < MESSAGES_MAX
                found.read_count += 1
                if past.arrival is not None and is_within:
                    found.arrivals.append(past.arrival)
                elif past.arrival is not None:
                    found.left_count += 1
            if not fresh or len(fresh) < len(page):
                break
            found.has_more, before = not is_within, fresh[-1].message_id
        found.arrivals.reverse()
        return found

    async def _page(self, history: ChannelHistory, conversation_id: str, before: str | None) -> tuple[PastMessage, ...]:
        for wait_s in WAITS_S:
            try:
                return await history.page(conversation_id, before)
            except Unavailable as error:
                log.info("channel_history_deferred", channel=self.channel, code=error.code)
            await self.sleep(wait_s)
        return await history.page(conversation_id, before)

    async def _hand_over(self, arrivals: list[Arrival]) -> None:
        """Gives messages to the intake, in their order. Those that it cannot take now are given again."""
        for wait_s in (0.0, *WAITS_S):
            await self.sleep(wait_s)
            receiving = (self._take(each) for each in arrivals)
            outcomes = await asyncio.gather(*receiving, return_exceptions=True)
            refused = [(each, error) for each, error in zip(arrivals, outcomes, strict=True) if _is_error(error)]
            for _, error in refused:
                log.warning("channel_message_deferred", channel=self.channel, why=str(error)[:200])
            arrivals = [each for each, error in refused if isinstance(error, Unavailable)]
            if not arrivals:
                return
        log.error("channel_message_lost", channel=self.channel, count=len(arrivals))

    async def _take(self, arrival: Arrival) -> Receipt:
        return await self.letters.settled(arrival.message, lambda plain: self.intake.receive(plain, arrival.complete))

    def _release(self, conversation_id: str) -> None:
        """Gives the live messages of a conversation to the intake. Each has its place before another can come."""
        for held in self._held.pop(conversation_id, []):
            if held.place.done():
                continue
            try:
                held.place.set_result(self.intake.place(held.message, held.complete))
            except PalyraError as error:
                held.place.set_exception(error)


def _is_error(outcome: Receipt | BaseException) -> bool:
    return isinstance(outcome, BaseException)
