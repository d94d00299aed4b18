"""Messages of an earlier conversation that a caller brings along to a new session.

Owns: checking and storing what is attached to them, and recording them before the run begins.
Does not own: how a model is shown them (core.context.given), which of them a protocol sends (gateway).
Invariant: what an assistant or a tool is said to have said is below `local`, because nobody here saw it (L8).
"""

import secrets

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events import Draft
from palyra.core.events.run import GivenRole, MessageGiven, MessageUser
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.core.ids import Principal
from palyra.core.taint import label
from palyra.core.trust import Trust
from palyra.engine.api.requests import TEXT_LENGTH_MAX, GivenMessage
from palyra.engine.session.attachments import AttachmentIntake, link_attached
from palyra.engine.session.commands import StartRun
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.session.pending_commit import PendingCommit, add_drafts

GIVEN_MAX = 1_000  # One commit records them all; a longer conversation belongs in a session.
GIVEN_CHARS_MAX = 2_000_000  # All together, with the arguments of calls: more than the window of any model.
SOURCE = label("caller", "history")


async def take_given(
    intake: AttachmentIntake, principal: Principal, given: tuple[GivenMessage, ...], client: str | None
) -> tuple[MessageGiven, ...]:
    """Returns the messages as they will be recorded; Invalid if they are too many or too long.

    `client` names the program that brought them along, if no person did.
    """
    if len(given) > GIVEN_MAX:
        raise Invalid("messages_too_many", f"{len(given)} messages; the most is {GIVEN_MAX}: name a session instead")
    if sum(map(_chars_of, given)) > GIVEN_CHARS_MAX:
        raise Invalid(
            "messages_too_long", f"the messages have over {GIVEN_CHARS_MAX} characters: name a session instead"
        )
    return tuple([await _take(intake, principal, each, client) for each in given])


async def add_given(pending: PendingCommit, command: StartRun, redactor: EventRedactor, now_ms: int) -> PendingCommit:
    """Adds the messages to the commit that begins the session."""
    for data in command.given:
        trust = command.trust if data.role is GivenRole.USER else Trust.EXTERNAL
        draft = Draft(data=data, actor=command.principal, trust=trust, at_ms=now_ms)
        cleaned, writes = await redactor.clean_off_loop(draft)
        pending = add_drafts(replace(pending, writes=(*pending.writes, *writes)), (cleaned,))
        if data.attachments:
            said = replace(command, message=MessageUser(text=data.text, attachments=data.attachments))
            pending = link_attached(pending, said, now_ms)
    return pending


def _chars_of(given: GivenMessage) -> int:
    return len(given.text) + (len(msgspec.json.encode(given.calls)) if given.calls else 0)


async def _take(
    intake: AttachmentIntake, principal: Principal, given: GivenMessage, client: str | None
) -> MessageGiven:
    if len(given.text) > TEXT_LENGTH_MAX:
        raise Invalid("text_length", f"a message has {len(given.text)} characters, the most is {TEXT_LENGTH_MAX}")
    return MessageGiven(
        role=given.role,
        text=given.text,
        attachments=await intake.take(principal, given.attachments, given.text),
        calls=given.calls,
        call_id=given.call_id,
        source=client if given.role is GivenRole.USER else SOURCE,
        fence_id=secrets.token_hex(FENCE_ID_LENGTH // 2) if given.role is GivenRole.TOOL else None,
    )
