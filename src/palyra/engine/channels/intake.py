"""Takes messages in: drops duplicates, joins quick words, and starts or steers runs.

Owns: the order of a conversation's messages, and that a delivery and what came of it are one commit (L3).
Does not own: rules (core.channels), commands (commands), pairing (pairing), sending (sender).
Invariants: a delivery that was reported as taken is recorded. The same delivery twice does nothing the second time.
Messages of one conversation are taken one after another.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from msgspec.structs import replace

from palyra.core.channels.bursts import Burst, joined
from palyra.core.channels.commands import unknown_command_text
from palyra.core.channels.identity import Place, Speaker, as_earlier, is_linked, place_of, speaker_of
from palyra.core.channels.model import (
    ChannelBusy,
    ChannelKind,
    InboundMessage,
    with_attachments,
)
from palyra.core.channels.router import (
    CodeGiven,
    CommandGiven,
    CommandUnproven,
    Ignored,
    PairingNeeded,
    Routed,
    UnknownCommandGiven,
    WordsGiven,
    route,
)
from palyra.core.channels.unread import require_plain
from palyra.core.errors import Conflict, Invalid, PalyraError, Unavailable
from palyra.core.events.run import ReplyAddress
from palyra.core.ids import RunId
from palyra.core.writes import Write
from palyra.engine.api.requests import GivenAttachment, RunRequest, WhenBusy
from palyra.engine.api.runs import RunService
from palyra.engine.channels.commands import ChannelCommands, CommandCase
from palyra.engine.channels.directory import ChannelDirectory, ConfiguredChannel
from palyra.engine.channels.heard_positions import HeardPositions
from palyra.engine.channels.notices import notice_writes, taken
from palyra.engine.channels.pairing_service import PairingService
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.channels import ChannelViews, Complete
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal

WAITING_MAX = 100  # Messages of one conversation that wait at once; beyond this the platform is asked to come again.
CONVERSATIONS_MAX = 10_000
FILES_S = 30.0  # How long a message may hold up its conversation while its files are read.
PAIRING_HINT = "I do not know this account. Ask the operator for a pairing code, and send it to me here."
COMMAND_UNPROVEN = "I take a command only in an answer to a message of mine. Please answer this one with it."
CODE_WRONG = "That code does not work. Ask the operator for a new one."
CODE_TAKEN = "Thank you. The operator was asked to link your account; you will hear from me."
HINT_EVERY_MS = 3_600_000
HINTS_REMEMBERED_MAX = 4_096

log = structlog.get_logger()
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a delivery. `reason` is for the log, and never for the sender."""

    is_accepted: bool
    is_duplicate: bool = False
    run_id: RunId | None = None
    reason: str = ""


PLAIN_TYPES = ("application/octet-stream", "text/plain")
DUPLICATE = Receipt(is_accepted=True, is_duplicate=True)
ATTACHMENT_INVALID = "attachment_invalid"  # The engine's word for a file that is not what it says.
ENVELOPE_TAKEN = "envelope_taken"  # The journal's word for a delivery that another commit has.


@dataclass(slots=True, eq=False)
class _Waiting:
    message: InboundMessage
    reply: "asyncio.Future[Receipt]"
    complete: Complete | None = None


@dataclass(slots=True, eq=False)
class _Conversation:
    waiting: list[_Waiting] = field(default_factory=list)
    serving: list[_Waiting] = field(default_factory=list)
    hurried: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """A message, who said it, and what it is taken for."""

    waiting: _Waiting
    speaker: Speaker
    place: Place
    routed: Routed


@dataclass(slots=True, kw_only=True)
class ChannelIntake:
    directory: ChannelDirectory
    views: ChannelViews
    pairing: PairingService
    commands: ChannelCommands
    heard: HeardPositions
    runs: RunService
    journal: Journal
    tasks: TaskSupervisor
    clock: Clock
    wake_jobs: asyncio.Event
    _conversations: dict[tuple[str, str], _Conversation] = field(default_factory=dict)
    _hinted: "OrderedDict[tuple[str, str], int]" = field(default_factory=OrderedDict)

    async def receive(self, message: InboundMessage, complete: Complete | None = None) -> Receipt:
        """Takes a message; what came of it is durable when this returns. Unavailable asks for another delivery."""
        return await self.place(message, complete)

    def place(self, message: InboundMessage, complete: Complete | None = None) -> "asyncio.Future[Receipt]":
        """Gives a message its place in the conversation, and returns what will come of it."""
        channel = self.directory.get(message.channel)
        require_plain(message)
        key = (message.channel, message.conversation_id)
        conversation = self._conversations.get(key)
        if conversation is None:
            if len(self._conversations) >= CONVERSATIONS_MAX:
                raise Unavailable("channels_busy", "too many conversations are under way; try again in a moment")
            conversation = self._conversations[key] = _Conversation()
            self.tasks.spawn(self._work(key, conversation, channel), f"channel {message.channel}")
        if len(conversation.waiting) >= WAITING_MAX:
            raise Unavailable("conversation_busy", f"{WAITING_MAX} messages of this conversation wait already")
        waiting = _Waiting(message, asyncio.get_running_loop().create_future(), complete)
        conversation.waiting.append(waiting)
        if message.text.startswith("/") or message.pressed is not None:
            conversation.hurried.set()
        return waiting.reply

    async def _work(self, key: tuple[str, str], conversation: _Conversation, channel: ConfiguredChannel) -> None:
        """Takes what waits in a conversation, until nothing does."""
        try:
            while conversation.waiting:
                await self._pause(conversation, channel.rules.coalesce_ms)
                conversation.serving, conversation.waiting = conversation.waiting, []
                await self._take(conversation.serving, channel)
        finally:
            self._conversations.pop(key, None)
            # Only a bug or the end of the daemon leaves some without an answer.
            for left in (*conversation.serving, *conversation.waiting):
                _fail(left, Unavailable("stopping", "the daemon is stopping; the message was not taken"))

    async def _pause(self, conversation: _Conversation, coalesce_ms: int) -> None:
        """Waits for further words. A command does not wait."""
        if coalesce_ms and not conversation.hurried.is_set():
            try:
                async with asyncio.timeout(coalesce_ms / 1000):
                    await conversation.hurried.wait()
            except TimeoutError:
                pass
        conversation.hurried.clear()

    async def _take(self, waiting: list[_Waiting], channel: ConfiguredChannel) -> None:
        """Takes messages in their order. One that fails takes nothing from the others."""
        words: list[_Heard] = []
        for one in waiting:
            heard = await _tried([one], self._hear(one, channel))
            if heard is None:
                continue
            if isinstance(heard.routed, WordsGiven):
                await _read_files(one)
                words.append(heard)
                continue
            await self._say(words, channel)
            words = []
            await _tried([one], self._settle(heard, channel))
        await self._say(words, channel)
        self.heard.note(one.message for one in waiting if _is_ignored(one))

    async def _hear(self, waiting: _Waiting, channel: ConfiguredChannel) -> _Heard | None:
        message, rules, now_ms = waiting.message, channel.rules, self.clock.now_ms()
        if await self.views.is_paused(message.channel):
            raise Unavailable("channel_paused", f"channel {message.channel} is paused")
        if await self._is_taken(message):
            _answer(waiting, DUPLICATE)
            return None
        link = await self.pairing.views.link(message.channel, message.sender_id)
        speaker = speaker_of(message, rules.kind, link, self.directory.may_approve(link, now_ms), now_ms)
        is_known = is_linked(link, now_ms)
        if is_known:  # Should the link end, the sender is told again how to pair.
            self._hinted.pop((message.channel, message.sender_id), None)
        routed = route(message, rules, is_known)
        if isinstance(routed, Ignored):
            log.info("channel_message_ignored", channel=rules.name, reason=routed.reason)
            await self._forgo(message, channel)
            _answer(waiting, Receipt(is_accepted=False, reason=routed.reason))
            return None
        earlier = as_earlier(message)
        if earlier is not None:
            before = speaker_of(earlier, rules.kind, link, self.directory.may_approve(link, now_ms), now_ms)
            place = place_of(earlier, rules, before)
            if place != place_of(message, rules, speaker) and await self.commands.has_session(place):
                speaker = speaker if speaker.via is not None else before
                return _Heard(waiting=waiting, speaker=speaker, place=place, routed=routed)
        return _Heard(waiting=waiting, speaker=speaker, place=place_of(message, rules, speaker), routed=routed)

    async def _settle(self, heard: _Heard, channel: ConfiguredChannel) -> None:
        """Performs a command, uses a code, or tells a stranger how to pair."""
        message = heard.waiting.message
        match heard.routed:
            case CommandGiven(command=command):
                written_at_ms = message.written_at_ms
                case = CommandCase(channel.rules, heard.speaker, heard.place, written_at_ms)
                text = await self.commands.perform(command, case)
                await self._commit(self._notice(message, text))
                _answer(heard.waiting, Receipt(is_accepted=True))
            case CommandUnproven():
                await self._commit(self._notice(message, COMMAND_UNPROVEN))
                _answer(heard.waiting, Receipt(is_accepted=False, reason="command_unproven"))
            case UnknownCommandGiven(word=word):
                await self._commit(self._notice(message, unknown_command_text(word)))
                _answer(heard.waiting, Receipt(is_accepted=True))
            case CodeGiven(code=code):
                _answer(heard.waiting, await self._use_code(message, code))
            case PairingNeeded():
                await self._hint(message)
                _answer(heard.waiting, Receipt(is_accepted=False, reason="pairing_needed"))
            case WordsGiven() | Ignored():
                return

    async def _use_code(self, message: InboundMessage, code: str) -> Receipt:
        def writes_after(is_right: bool) -> tuple[Write, ...]:
            return self._notice(message, CODE_TAKEN if is_right else CODE_WRONG)

        outcome = await self.pairing.consume(message, code, writes_after)
        if outcome is None:
            await self._forgo(message, self.directory.get(message.channel))
        self.wake_jobs.set()
        return Receipt(is_accepted=bool(outcome), reason="" if outcome else "code_refused")

    async def _hint(self, message: InboundMessage) -> None:
        """Tells a stranger how to pair, at most once an hour."""
        key, now_ms = (message.channel, message.sender_id), self.clock.now_ms()
        if now_ms - self._hinted.get(key, -HINT_EVERY_MS) < HINT_EVERY_MS:
            await self._forgo(message, self.directory.get(message.channel))
            return
        self._hinted[key] = now_ms
        self._hinted.move_to_end(key)
        if len(self._hinted) > HINTS_REMEMBERED_MAX:
            self._hinted.popitem(last=False)
        await self._commit(self._notice(message, PAIRING_HINT))

    async def _say(self, words: list[_Heard], channel: ConfiguredChannel) -> None:
        """Starts a run with the words of each burst, or steers the active one. One message spoils no burst."""
        by_envelope = {heard.waiting.message.envelope_id: heard for heard in words}
        bursts = deque(joined([heard.waiting.message for heard in words]))
        while bursts:
            burst = bursts.popleft()
            first = by_envelope[burst.first.envelope_id]
            own = {message.envelope_id for message in burst.messages}
            replies = [heard.waiting for heard in words if heard.waiting.message.envelope_id in own]
            started = await _outcome(self._start_fresh(burst, first, channel))
            if isinstance(started, Invalid) and len(burst.messages) > 1:
                bursts.extendleft(Burst(messages=(each,)) for each in reversed(burst.messages))
                continue
            if isinstance(started, Exception):
                for waiting in replies:
                    _fail(waiting, _told(started, waiting.message))
                continue
            run_id, fresh = started
            for waiting in replies:
                is_first = waiting.message.envelope_id in fresh
                fresh.discard(waiting.message.envelope_id)
                _answer(waiting, Receipt(is_accepted=True, run_id=run_id) if is_first else DUPLICATE)

    async def _start_fresh(
        self, burst: Burst, heard: _Heard, channel: ConfiguredChannel
    ) -> tuple[RunId | None, set[str]]:
        """Starts a run with the messages that were not taken before, and returns their envelopes.

        A delivery that comes to two conversations at once is looked for by both. The journal takes it from one.
        """
        while True:
            try:
                return await self._start(burst, heard, channel), {each.envelope_id for each in burst.messages}
            except Invalid as error:
                plainer = _with_plainer_files(burst) if error.code == ATTACHMENT_INVALID else burst
                if plainer == burst:
                    raise
                burst = plainer
                continue
            except Conflict as error:
                left = [each for each in burst.messages if not await self._is_taken(each)]
                if error.code != ENVELOPE_TAKEN or len(left) == len(burst.messages):
                    raise
            if not left:
                return None, set()
            burst = Burst(messages=tuple(left))

    async def _is_taken(self, message: InboundMessage) -> bool:
        return await self.views.envelope(message.channel, message.envelope_id) is not None

    async def _start(self, burst: Burst, heard: _Heard, channel: ConfiguredChannel) -> RunId:
        rules, now_ms, last = channel.rules, self.clock.now_ms(), burst.last
        request = RunRequest(
            text=burst.text or "(see the attachments)",
            origin=rules.origin,
            trust=heard.speaker.trust,
            can_ask=None if rules.kind is ChannelKind.WEBHOOK else await self._has_approver(rules.name, now_ms),
            session_key=heard.place.session_key,
            owner=heard.place.owner,
            attachments=tuple(
                GivenAttachment(
                    name=each.name, media_type=each.media_type, body=each.body, trust=each.trust, source=each.source
                )
                for message in burst.messages
                for each in message.attachments
            ),
            agent=rules.agent,
            idempotency_key=None,
            when_busy=WhenBusy.STEER if rules.when_busy is ChannelBusy.STEER else WhenBusy.QUEUE,
            via=heard.speaker.via,
            reply=_reply_to(last) if channel.adapter.traits.can_send and last.sender_verified else None,
            writes=tuple(write for message in burst.messages for write in taken(message, now_ms)),
            leaves_questions=not self.directory.answers_for(heard.speaker, heard.place.owner),
        )
        return (await self.runs.start(heard.speaker.principal, request)).id

    def _notice(self, message: InboundMessage, text: str) -> tuple[Write, ...]:
        """Returns the delivery as taken, and its answer where there is a way back to who is known to have sent it."""
        now_ms = self.clock.now_ms()
        if text and message.sender_verified and self.directory.get(message.channel).adapter.traits.can_send:
            return notice_writes(message, text, now_ms)
        return taken(message, now_ms)

    async def _forgo(self, message: InboundMessage, channel: ConfiguredChannel) -> None:
        """Records a signed delivery that nothing came of: replayed later, it would meet other rules.

        What strangers say on the other platforms costs no write; nobody but the platform can deliver it again.
        """
        if channel.rules.kind is ChannelKind.WEBHOOK:
            await self.journal.commit((), taken(message, self.clock.now_ms()))

    async def _has_approver(self, channel: str, now_ms: int) -> bool:
        """Tells whether anybody of the channel may answer a question."""
        links = await self.pairing.views.links(channel, "", 1_000)
        return any(self.directory.may_approve(link, now_ms) for link in links)

    async def _commit(self, writes: tuple[Write, ...]) -> None:
        await self.journal.commit((), writes)
        self.wake_jobs.set()


async def _read_files(waiting: _Waiting) -> None:
    """Reads the files of a message that is wanted, in its place: later ones of its conversation wait, no others do."""
    if waiting.complete is None:
        return
    message = waiting.message
    outcome = await _outcome(_completed(waiting.complete))
    if isinstance(outcome, Exception):
        log.warning("channel_files_unread", channel=message.channel, error=type(outcome).__name__)
        outcome = with_attachments(message, (), ("that was attached",))
    waiting.message = outcome


async def _completed(complete: Complete) -> InboundMessage:
    async with asyncio.timeout(FILES_S):
        message = await complete()
    require_plain(message)
    return message


def _with_plainer_files(burst: Burst) -> Burst:
    """Returns a message whose files promise nothing, as one was not what it said; or without them, if they promised none.

    The words count more than a picture that is broken.
    """
    if any(each.media_type not in PLAIN_TYPES for message in burst.messages for each in message.attachments):
        return Burst(messages=tuple(_plainer(message) for message in burst.messages))
    names = [[each.name for each in message.attachments] for message in burst.messages]
    bare = [with_attachments(message, (), missed) for message, missed in zip(burst.messages, names, strict=True)]
    return Burst(messages=tuple(bare))


def _plainer(message: InboundMessage) -> InboundMessage:
    files = (
        each if each.media_type in PLAIN_TYPES else replace(each, media_type=PLAIN_TYPES[0])
        for each in message.attachments
    )
    return replace(message, attachments=tuple(files))


def _reply_to(message: InboundMessage) -> ReplyAddress:
    return ReplyAddress(
        channel=message.channel,
        conversation_id=message.conversation_id,
        thread_id=message.thread_id,
        reply_to=message.message_id,
    )


def _is_ignored(waiting: _Waiting) -> bool:
    reply = waiting.reply
    return reply.done() and not reply.cancelled() and reply.exception() is None and not reply.result().is_accepted


def _answer(waiting: _Waiting, receipt: Receipt) -> None:
    if not waiting.reply.done():
        waiting.reply.set_result(receipt)


async def _tried(waiting: Sequence[_Waiting], step: Awaitable[Done]) -> Done | None:
    """Takes a step with messages. What the step fails with is their outcome, and nobody else's."""
    outcome = await _outcome(step)
    if not isinstance(outcome, Exception):
        return outcome
    for one in waiting:
        _fail(one, _told(outcome, one.message))
    return None


async def _outcome(step: Awaitable[Done]) -> Done | Exception:
    """Returns what a step raises as a value: a bug that one message meets ends nothing else."""
    (outcome,) = await asyncio.gather(step, return_exceptions=True)
    if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
        raise outcome
    return outcome


def _told(error: Exception, message: InboundMessage) -> PalyraError:
    """Only the kind of a foreign error is told: its words could hold those of the message. It may be tried again."""
    if isinstance(error, PalyraError):
        return error
    log.error("channel_message_failed", channel=message.channel, error=type(error).__name__)
    told = f"the message could not be taken: {type(error).__name__}"
    return Unavailable("message_failed", told) if isinstance(error, OSError) else Conflict("message_failed", told)


def _fail(waiting: _Waiting, error: PalyraError) -> None:
    if error.code == ENVELOPE_TAKEN:
        _answer(waiting, DUPLICATE)
    if not waiting.reply.done():
        waiting.reply.set_exception(error)
        # Whoever delivered may be gone, and then nobody reads this error.
        waiting.reply.exception()
