"""The tool channel.send: queues a message to a conversation of a channel.

Does not own: sending (engine.channels.sender), the outbox (ports.channels).
The call is over when the message is durable in the outbox. Its id is made from the effect, so that one effect queues one
message. Secrets in the text are markers there: nothing that is stored holds one (L5).
A file that leaves is read as fs.read reads it, from the workspace, or is an artifact that the principal may read (L11).
"""

import asyncio
import mimetypes
import re

from palyra.adapters.files.text_file import FILE_BYTES_MAX, read_body
from palyra.adapters.files.workspace import PATH_LENGTH_MAX, locate
from palyra.adapters.tools.fs_read import paths_of
from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.channels.outbox import FILES_MAX
from palyra.core.errors import Invalid, NotFound, PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.ids import ArtifactId
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.artifacts import Artifacts
from palyra.ports.channels import MessageAddress, MessageQueue, MessageWish, OutgoingFile
from palyra.ports.state import State
from palyra.ports.tools import ToolCallContext

TEXT_LENGTH_MAX = 20_000
PREVIEW_LENGTH_MAX = 4 * 1024  # More than surfaces show at once, so that a cut text is known as one.
UNKNOWN_TYPE = "application/octet-stream"
_ARTIFACT = re.compile("[0-9a-f]{64}")

SPEC = ToolSpec(
    name="channel.send",
    description=(
        "Sends a message to a conversation of a configured channel, such as a Slack channel or a Telegram chat. Answers "
        "to the person you talk to need no tool: your final answer goes to their conversation by itself."
    ),
    input_schema=arguments_schema(
        {
            "channel": text_schema(64, "The channel's name."),
            "conversation_id": text_schema(256, "The platform's id of the conversation."),
            "text": text_schema(TEXT_LENGTH_MAX, "The message."),
            "attachments": {
                "type": "array",
                "maxItems": FILES_MAX,
                "items": {"type": "string", "minLength": 1, "maxLength": PATH_LENGTH_MAX},
                "description": "Files to send along: paths inside the workspace, or ids of your artifacts.",
            },
        },
        ["channel", "conversation_id", "text"],
    ),
    capabilities=frozenset({Capability.MESSAGE_SEND}),
    effect_class=EffectClass.ONCE,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.HIGH,
    output_trust=Trust.SYSTEM,
    timeout_s=60.0,
)


class ChannelSend:
    spec = SPEC

    def __init__(self, messages: MessageQueue, artifacts: Artifacts, state: State) -> None:
        self._messages = messages
        self._artifacts = artifacts
        self._state = state

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        """A call that sends files of the workspace also reads them, and is judged by their paths."""
        named = _attachments(arguments)
        found = [paths_of(each, workspace) for each in named if not _ARTIFACT.fullmatch(each)]
        shown = str(arguments.get("text", ""))[:PREVIEW_LENGTH_MAX]
        where = f"to {arguments.get('conversation_id')} of channel {arguments.get('channel')}:"
        return CallNature(
            effect_class=EffectClass.ONCE,
            parallel_class=ParallelClass.NEVER,
            paths=tuple(dict.fromkeys(path for paths, _ in found for path in paths)),
            is_in_workspace=all(is_inside for _, is_inside in found),
            capabilities=frozenset({Capability.FS_READ}) if found else frozenset(),
            preview="\n".join([where, shown, *(f"[with {each}]" for each in named)]),
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        channel, conversation_id, text = (arguments.get(key) for key in ("channel", "conversation_id", "text"))
        if not isinstance(channel, str) or not isinstance(conversation_id, str) or not isinstance(text, str):
            return failed("arguments_invalid", "channel, conversation_id and text are texts")
        try:
            files = [await self._file(each, context) for each in _attachments(arguments)]
            message = MessageWish(
                address=MessageAddress(channel, conversation_id),
                text=text,
                effect_id=context.effect_id,
                session_id=context.session_id,
                files=tuple(files),
            )
            named = await self._messages.send(message)
        except PalyraError as error:
            return failed(error.code, error.message)
        return ToolResult(outcome=Outcome.OK, output=f"Queued as message {named}; it is sent as soon as possible.")

    async def _file(self, named: str, context: ToolCallContext) -> OutgoingFile:
        if not _ARTIFACT.fullmatch(named):
            place = locate(named, context.workspace)
            body = await asyncio.to_thread(read_body, place)
            media_type = mimetypes.guess_type(place.name, strict=False)[0] or UNKNOWN_TYPE
            return OutgoingFile(name=place.name, media_type=media_type, body=body)
        link = await self._state.artifact_for(ArtifactId(named), context.principal)
        if link is None:
            raise NotFound("artifact_unknown", f"there is no artifact {named}")
        if link.bytes > FILE_BYTES_MAX:
            raise Invalid("file_too_large", f"artifact {named} is larger than {FILE_BYTES_MAX} bytes and is not sent")
        name = f"{named[:12]}{mimetypes.guess_extension(link.media_type) or ''}"
        body = await self._artifacts.get(link.artifact_id, 0, link.bytes)
        return OutgoingFile(name=name, media_type=link.media_type, body=body)


def _attachments(arguments: JsonObject) -> list[str]:
    given = arguments.get("attachments", [])
    return [each for each in given if isinstance(each, str)][:FILES_MAX] if isinstance(given, list) else []
