"""Helpers for tests of checkpoints, pins and restored sessions."""

import msgspec

from palyra.adapters.providers.scripted import Script
from palyra.core.context.prompt import render
from palyra.core.context.window import Window
from palyra.core.events import Draft, Event
from palyra.core.events.model import ContextAssembled
from palyra.core.events.session import SessionLabelled
from palyra.core.ids import SessionId
from palyra.core.trust import Trust
from palyra.engine.engine import Engine
from palyra.ports.journal import Append
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER
from tests.support.waiting import until

LABELS_A_COMMIT = 500
READS = [Script(turns=(calls("mark.read", text="a"), says("It is done.")))]


async def say(engine: Engine, text: str, session_id: SessionId | None = None) -> tuple[SessionId, list[Event]]:
    record = await engine.runs.start(OWNER, ask(text, session_id=session_id))
    events = await finished(engine, record)
    # Followers see what is recorded a moment before the loop has it in memory.
    await until(lambda: _has_seen(engine, record.session_id, events[-1].seq))
    return record.session_id, events


def _has_seen(engine: Engine, session_id: SessionId, seq: int) -> bool:
    known = engine._parts.loops.known_state(session_id)
    return known is None or known.head_seq >= seq


def shown(window: Window) -> bytes:
    """Returns what a model would be sent, byte for byte."""
    return msgspec.json.encode(render(window))


async def loaded(engine: Engine, session_id: SessionId) -> bytes:
    """Returns what a restarted daemon would send."""
    return shown((await engine._parts.loader.load(session_id)).window)


def live(engine: Engine, session_id: SessionId) -> bytes:
    state = engine._parts.loops.known_state(session_id)
    assert state is not None
    return shown(state.window)


def context_in(events: list[Event]) -> ContextAssembled:
    return next(event.data for event in events if isinstance(event.data, ContextAssembled))


async def head_seq(engine: Engine, session_id: SessionId) -> int:
    head = await engine._setup.journal.head(session_id)
    assert head is not None
    return head.seq


async def add_labels(engine: Engine, session_id: SessionId, count: int) -> None:
    """Makes the tape longer by events that no model is told of."""
    journal = engine._setup.journal
    for begin in range(0, count, LABELS_A_COMMIT):
        drafts = [
            Draft(data=SessionLabelled(label=f"label {number}"), actor=OWNER, trust=Trust.OPERATOR, at_ms=number)
            for number in range(begin, min(begin + LABELS_A_COMMIT, count))
        ]
        await journal.commit([Append(session_id, await head_seq(engine, session_id), tuple(drafts))])
