"""A conversation as a caller sends it, in the words of neither endpoint.

Owns: splitting it into what came before, what is asked now, and results of the caller's own tools.
Does not own: the wire forms (chat_messages, response_items), starting runs (exchange).
"""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from palyra.core.caller_tools import CALLER_TOOLS_MAX
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.run import CallerTool, GivenCall, GivenRole
from palyra.core.ids import CallId, RunId, make_call_id
from palyra.engine.api.requests import GivenAttachment, GivenMessage
from palyra.engine.session.commands import CallerResult

GO_ON = "[The results of your calls are above. Go on.]"
CALL_ID_LENGTH_MAX = 256
PIECES_MAX = 20_000  # Of one conversation: reading one takes 2 microseconds, in which the daemon does nothing else.
_CALL_ID = re.compile(r"call_([0-9A-Z]{26})_([0-9]{1,6})")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.-]+)*;base64,", re.IGNORECASE | re.ASCII)


class CallerConversation(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` are all messages in order; `instructions` are those of system and developer."""

    instructions: str = ""
    messages: tuple[GivenMessage, ...] = ()


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked now. `given` came before it."""

    text: str
    attachments: tuple[GivenAttachment, ...] = ()
    given: tuple[GivenMessage, ...] = ()


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """Results of calls of one run, and what the caller says besides."""

    run_id: RunId
    results: tuple[CallerResult, ...]
    text: str = ""
    attachments: tuple[GivenAttachment, ...] = ()


def wire_call_id(run_id: RunId, index: int) -> str:
    """Names a call by its run, so that a result finds it, whatever was lost in between."""
    return f"call_{run_id}_{index}"


def returned_in(messages: Sequence[GivenMessage]) -> Returned | None:
    """Returns the results at the end of a conversation, if they are all of calls of one of our runs."""
    tail = _since_assistant(messages)
    results = [message for message in tail if message.role is GivenRole.TOOL]
    found = [_CALL_ID.fullmatch(message.call_id or "") for message in results]
    runs = {match.group(1) for match in found if match is not None}
    if len(runs) != 1 or not all(found):
        return None
    run_id = RunId(runs.pop())
    said = [message for message in tail if message.role is GivenRole.USER]
    return Returned(
        run_id=run_id,
        results=tuple(
            CallerResult(call_id=_our_id(run_id, message.call_id or ""), output=message.text) for message in results
        ),
        text="\n\n".join(message.text for message in said),
        attachments=tuple(each for message in said for each in message.attachments),
    )


def ask_in_session(messages: Sequence[GivenMessage]) -> Ask:
    """Returns what is new to a session that has the rest: everything after the last answer."""
    said = [message for message in _since_assistant(messages) if message.role is GivenRole.USER]
    if not said:
        raise Invalid("messages_invalid", "the last message is not the user's: there is nothing to answer")
    return Ask(
        text="\n\n".join(message.text for message in said),
        attachments=tuple(each for message in said for each in message.attachments),
    )


def ask_alone(messages: Sequence[GivenMessage]) -> Ask:
    """Returns the last message as what is asked, and all before it as given."""
    if not messages or messages[-1].role is GivenRole.ASSISTANT:
        raise Invalid("messages_invalid", "the last message is not the user's: there is nothing to answer")
    last = messages[-1]
    if last.role is GivenRole.TOOL:
        return Ask(text=GO_ON, given=tuple(messages))
    return Ask(text=last.text, attachments=last.attachments, given=tuple(messages[:-1]))


def read_data_url(url: str, name: str) -> GivenAttachment:
    """Reads an image or a file out of a data: URL. Nothing is fetched for a caller."""
    match = _DATA_URL.match(url)
    if match is None:
        raise Invalid(
            "image_invalid", "send it as a data: URL with base64; this server fetches no address for a caller"
        )
    return GivenAttachment(name=name, media_type=match.group(1).lower(), body=read_base64(url[match.end() :]))


def read_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as cause:
        raise Invalid("image_invalid", "the data is no base64 (RFC 4648 with padding, no line breaks)") from cause


def read_arguments(text: str) -> JsonObject | str:
    """Returns the arguments of an earlier call as an object, or as they came if they are none."""
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def require_call_id(call_id: str) -> str:
    if not 1 <= len(call_id) <= CALL_ID_LENGTH_MAX:
        raise Invalid("messages_invalid", f"the id of a call has 1 to {CALL_ID_LENGTH_MAX} characters")
    return call_id


def read_tool(name: str, description: str | None, parameters: JsonObject | None) -> CallerTool:
    return CallerTool(name=name, description=description or "", parameters=parameters or {})


def require_readable(counts: Iterable[int]) -> None:
    """Refuses a conversation of more messages, parts and calls than are read in a moment."""
    count = sum(counts)
    if count > PIECES_MAX:
        what = f"{count} messages, parts and calls; the most is {PIECES_MAX}: name a session and send what is new"
        raise Invalid("messages_too_many", what)


def require_few(count: int) -> None:
    if count > CALLER_TOOLS_MAX:
        raise Invalid("tools_too_many", f"a request takes at most {CALLER_TOOLS_MAX} tools, not {count}")


def join_calls(messages: Sequence[GivenMessage]) -> tuple[GivenMessage, ...]:
    """Joins calls that stand by themselves with the assistant's message before them."""
    groups: list[list[GivenMessage]] = []
    for message in messages:
        is_bare = message.role is GivenRole.ASSISTANT and bool(message.calls) and not message.text
        if is_bare and groups and groups[-1][0].role is GivenRole.ASSISTANT:
            groups[-1].append(message)
        else:
            groups.append([message])
    return tuple(map(_joined, groups))


def _joined(group: list[GivenMessage]) -> GivenMessage:
    first = group[0]
    return replace(first, calls=tuple(call for each in group for call in each.calls)) if len(group) > 1 else first


def past_call(call_id: str, name: str, arguments: str) -> GivenCall:
    return GivenCall(
        call_id=require_call_id(call_id), tool=name[:CALL_ID_LENGTH_MAX], arguments=read_arguments(arguments)
    )


def _since_assistant(messages: Sequence[GivenMessage]) -> Sequence[GivenMessage]:
    last = max((at for at, message in enumerate(messages) if message.role is GivenRole.ASSISTANT), default=-1)
    return messages[last + 1 :]


def _our_id(run_id: RunId, wire: str) -> CallId:
    return make_call_id(run_id, int(wire.rpartition("_")[2]))
