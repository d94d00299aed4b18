"""Reads runs and sessions for references: what was said in them (L11).

Does not own: whether the reference may be read (reference_judge).
Invariants: a principal reads only what the views show to that principal. A thing of somebody else and a thing that does
not exist are answered alike. The text has the lowest trust of its messages (L8).
"""

from dataclasses import dataclass

from palyra.core.errors import Invalid, NotFound
from palyra.core.events import Event
from palyra.core.events.run import MessageAssistant, MessageUser
from palyra.core.ids import Principal, SessionId, parse_run_id, parse_session_id
from palyra.core.references.caps import cut_text
from palyra.core.taint import label
from palyra.core.trust import lowest
from palyra.ports.journal import Journal
from palyra.ports.references import ReferenceText, TextPart
from palyra.ports.views import RunViews, SessionViews

EVENTS_READ_MAX = (
    400  # A window of as many items holds a conversation. Earlier messages would not fit into the reference anyway.
)
MESSAGE_CHARS_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReader:
    sessions: SessionViews
    runs: RunViews
    journal: Journal

    async def read_run(self, target: str, principal: Principal, chars_max: int) -> ReferenceText:
        try:
            run = await self.runs.run(parse_run_id(target), principal)
        except Invalid:
            run = None
        if run is None:
            raise NotFound("not_found", "there is no such run, or it is not yours")
        events = await self.journal.read(run.session_id, run.accepted_seq - 1, EVENTS_READ_MAX)
        said = [event for event in events if event.run_id == run.id]
        if run.answer_seq is not None and run.answer_seq not in {event.seq for event in said}:
            said += await self.journal.read(run.session_id, run.answer_seq - 1, 1)
        head = f"run {run.id}, {run.state.value}, agent {run.agent}"
        return _told(head, said, run.session_id, chars_max)

    async def read_session(self, target: str, principal: Principal, chars_max: int) -> ReferenceText:
        try:
            session = await self.sessions.session(parse_session_id(target), principal)
        except Invalid:
            session = None
        if session is None or session.is_erased:
            raise NotFound("not_found", "there is no such session, or it is not yours")
        events = await self.journal.read_last(session.id, EVENTS_READ_MAX)
        since = [event for event in events if event.seq > session.reset_seq]
        return _told(f"session {session.id}, agent {session.agent}", since, session.id, chars_max)


def _told(head: str, events: list[Event], session_id: SessionId, chars_max: int) -> ReferenceText:
    """Returns the last messages that fit, in their order."""
    messages = [event for event in events if isinstance(event.data, MessageUser | MessageAssistant)]
    shown: list[tuple[Event, str]] = []
    left = chars_max - len(head) - 100
    for event in reversed(messages):
        line = _line(event)
        left -= len(line) + 2
        if left < 0:
            break
        shown.append((event, line))
    is_whole = len(shown) == len(messages) and len(events) < EVENTS_READ_MAX
    notes = [] if is_whole else ["[Earlier messages are left out.]"]
    empty = [] if messages else ["[Nothing was said.]"]
    text = "\n\n".join((head, *notes, *empty, *(line for _, line in reversed(shown))))
    trust = lowest(event.trust for event, _ in shown)
    return ReferenceText(parts=(TextPart(text=text),), trust=trust, source=label("session", session_id))


def _line(event: Event) -> str:
    match event.data:
        case MessageUser(text=text):
            return f"{event.actor}: {cut_text(text, MESSAGE_CHARS_MAX)[0]}"
        case MessageAssistant(text=text):
            return f"answer: {cut_text(text, MESSAGE_CHARS_MAX)[0]}"
        case _:
            return ""
