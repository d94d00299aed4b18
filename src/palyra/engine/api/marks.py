"""Checkpoints and pins of a session (L11).

Owns: making, listing and restoring checkpoints; adding, listing and removing pins.
Does not own: the rows (core.projections.marks), the limit on pins (engine.session.pins).
"""

from dataclasses import dataclass

from palyra.core.caller_trust import trust_of_caller
from palyra.core.context.pins import PIN_CHARS_MAX
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events import Event
from palyra.core.events.model import ModelOutput
from palyra.core.events.run import MessageAssistant, MessageUser
from palyra.core.events.session import PinAdded, PinRemoved, SessionCheckpointed
from palyra.core.events.tool import ToolFinished
from palyra.core.ids import Principal, SessionId
from palyra.core.projections.rows import MarkKind, MarkRow, SessionRow
from palyra.core.trust import lowest
from palyra.engine.api.requests import LABEL_LENGTH_MAX, Checkpoint, PinRecord
from palyra.engine.api.sessions import PAGE_MAX, SessionService
from palyra.engine.new_ids import IdSource
from palyra.engine.session.commands import RecordSessionEvent
from palyra.engine.session.session_loader import SessionLoader
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.journal import Journal
from palyra.ports.marks import MarkViews

CHECKPOINTS_MAX = 1_000  # Those of compactions count, but are made beyond it.


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkService:
    sessions: SessionService
    views: MarkViews
    journal: Journal
    loader: SessionLoader
    loops: SessionLoops
    ids: IdSource

    async def checkpoint(
        self, principal: Principal, session_id: SessionId, at_seq: int | None, label: str | None
    ) -> Checkpoint:
        """Makes a checkpoint by hand: at an event, or at the newest one."""
        await self.sessions.get(principal, session_id)
        if label is not None and not 1 <= len(label) <= LABEL_LENGTH_MAX:
            raise Invalid("label_length", f"a label has 1 to {LABEL_LENGTH_MAX} characters")
        if await self.views.count_made(session_id, MarkKind.CHECKPOINT) >= CHECKPOINTS_MAX:
            message = f"session {session_id} has {CHECKPOINTS_MAX} checkpoints already; branch at an event instead"
            raise Conflict("checkpoints_full", message)
        head = await self.journal.head(session_id)
        last_seq = head.seq if head is not None else 0
        seq = last_seq if at_seq is None else at_seq
        if not 1 <= seq <= last_seq:
            raise Invalid("seq_unknown", f"session {session_id} has no event {seq}; its last one is {last_seq}")
        data = SessionCheckpointed(checkpoint_id=self.ids.mark_id(), at_seq=seq, label=label)
        await self.loops.post(session_id, RecordSessionEvent(principal=principal, data=data))
        return await self._checkpoint(session_id, data.checkpoint_id)

    async def checkpoints(
        self, principal: Principal, session_id: SessionId, after_seq: int, limit: int
    ) -> tuple[tuple[int, Checkpoint], ...]:
        """Lists checkpoints, the oldest first, each with the seq of the event that made it."""
        await self.sessions.get(principal, session_id)
        rows = await self.views.made(session_id, MarkKind.CHECKPOINT, after_seq, min(limit, PAGE_MAX))
        found = [(row.made_seq, await self._read_checkpoint(row)) for row in rows]
        return tuple((seq, checkpoint) for seq, checkpoint in found if checkpoint is not None)

    async def restore(
        self, principal: Principal, session_id: SessionId, checkpoint_id: str, label: str | None
    ) -> SessionRow:
        """Returns a new session that goes on from the checkpoint."""
        await self.sessions.get(principal, session_id)
        checkpoint = await self._checkpoint(session_id, checkpoint_id)
        return await self.sessions.restore(principal, session_id, checkpoint, label)

    async def pin(
        self, principal: Principal, session_id: SessionId, text: str | None, source_seq: int | None
    ) -> PinRecord:
        """Pins words. Without words, it pins the text of the event `source_seq`."""
        row = await self.sessions.get(principal, session_id)
        source = await self._source(session_id, source_seq) if source_seq is not None else None
        words = _text_of(source) if text is None and source is not None else text
        if not words or not words.strip():
            raise Invalid("pin_empty", "a pin has no words; give a text, or the seq of an event that has one")
        if len(words) > PIN_CHARS_MAX:
            raise Invalid("pin_too_long", f"a pin has at most {PIN_CHARS_MAX} characters, this has {len(words)}")
        # A pin is at most as trusted as the event its words are from (L8).
        trust = lowest((trust_of_caller(principal), *(() if source is None else (source.trust,))))
        data = PinAdded(pin_id=self.ids.mark_id(), text=words, source_seq=source_seq)
        await self.loops.post(session_id, RecordSessionEvent(principal=principal, data=data, trust=trust))
        return _found(await self._pins(row), data.pin_id)

    async def pins(self, principal: Principal, session_id: SessionId) -> tuple[PinRecord, ...]:
        """Lists the pins that the session has now, the oldest first, inherited ones included."""
        return await self._pins(await self.sessions.get(principal, session_id))

    async def unpin(self, principal: Principal, session_id: SessionId, pin_id: str) -> None:
        await self.sessions.get(principal, session_id)
        await self.loops.post(session_id, RecordSessionEvent(principal=principal, data=PinRemoved(pin_id=pin_id)))

    async def _checkpoint(self, session_id: SessionId, checkpoint_id: str) -> Checkpoint:
        row = await self.views.mark(session_id, checkpoint_id)
        found = await self._read_checkpoint(row) if row is not None and row.kind is MarkKind.CHECKPOINT else None
        if found is None:
            raise NotFound("checkpoint_unknown", f"session {session_id} has no checkpoint {checkpoint_id}")
        return found

    async def _read_checkpoint(self, row: MarkRow) -> Checkpoint | None:
        """Reads the event. An erased one makes no checkpoint."""
        events = await self.journal.read(row.session_id, row.made_seq - 1, 1)
        data = events[0].data if events else None
        if not isinstance(data, SessionCheckpointed):
            return None
        return Checkpoint(
            id=data.checkpoint_id, seq=data.at_seq, label=data.label, reason=data.reason, at_ms=row.created_at_ms
        )

    async def _source(self, session_id: SessionId, seq: int) -> Event:
        events = await self.journal.read(session_id, seq - 1, 1) if seq >= 1 else ()
        if not events or events[0].seq != seq or _text_of(events[0]) is None:
            raise Invalid("pin_source", f"event {seq} of session {session_id} has no text that can be pinned")
        return events[0]

    async def _pins(self, row: SessionRow) -> tuple[PinRecord, ...]:
        events = await self.loader.pins(row)
        return tuple(_record(event, event.data) for event in events if isinstance(event.data, PinAdded))


def _text_of(event: Event | None) -> str | None:
    """Returns the words that a person can pin: what was said, and what a tool answered."""
    match event.data if event is not None else None:
        case MessageUser(text=text) | MessageAssistant(text=text) | ModelOutput(text=text):
            return text
        case ToolFinished(output=output):
            return output
        case _:
            return None


def _record(event: Event, data: PinAdded) -> PinRecord:
    return PinRecord(
        id=data.pin_id,
        session_id=SessionId(event.stream),
        text=data.text,
        trust=event.trust.value,
        source_seq=data.source_seq,
        at_ms=event.at_ms,
    )


def _found(pins: tuple[PinRecord, ...], pin_id: str) -> PinRecord:
    for pin in pins:
        if pin.id == pin_id:
            return pin
    raise NotFound("pin_unknown", f"the pin {pin_id} was removed at once")
