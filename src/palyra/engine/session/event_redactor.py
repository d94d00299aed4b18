"""Redaction on the way in. Owns: the one place where facts lose their secrets before anything is decided or stored (L5).

Not: what a secret is (core.redaction). Digests, effect ids and attestations are over the redacted form, because every
fact passes here before `decide` sees it.
"""

from typing import cast

import msgspec
from msgspec.structs import replace

from palyra.core.events import Data, Draft
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ModelFailed, ModelOutput, ToolCall
from palyra.core.events.run import Attachment, CancelRequested, MessageUser
from palyra.core.events.session import (
    PinAdded,
    SessionBranched,
    SessionCreated,
    SessionLabelled,
    SourceDistrusted,
    SourceTrusted,
)
from palyra.core.events.tool import ApprovalResolved, ToolFinished, ToolJudged
from palyra.core.ids import RunId
from palyra.core.redaction import Json, Redactor, Secret
from palyra.core.writes import SealSecret, Write
from palyra.ports.sealer import Sealer

_TEXT_FIELDS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    MessageUser: ("text",),
    ModelOutput: ("text", "reasoning", "cause"),
    ModelFailed: ("message",),
    ToolJudged: ("preview",),
    ToolFinished: ("output",),
    CancelRequested: ("message",),
    ApprovalResolved: ("reason",),
    SessionCreated: ("label",),
    SessionBranched: ("label",),
    SessionLabelled: ("label",),
    SourceTrusted: ("reason",),
    SourceDistrusted: ("reason",),
    PinAdded: ("text",),
}


_OPAQUE_KEYS = frozenset({"signature", "encrypted_content", "data", "extra_content"})


class EventRedactor:
    def __init__(self, redactor: Redactor, sealer: Sealer) -> None:
        self._redactor = redactor
        self._sealer = sealer

    def clean(self, draft: Draft) -> tuple[Draft, tuple[Write, ...]]:
        """The draft without secrets, and the sealed values for the executor of its run alone."""
        data, secrets = self._clean_data(draft.data)
        if not secrets:
            return (draft, ()) if data is draft.data else (replace(draft, data=data), ())
        return replace(draft, data=data), self._seal(draft.run_id, secrets)

    def _clean_data(self, data: Data) -> tuple[Data, list[Secret]]:
        changes: dict[str, object] = {}
        found: list[Secret] = []
        for name in _TEXT_FIELDS.get(type(data), ()):
            text = getattr(data, name)
            if text:
                redacted = self._redactor.text(text)
                found += redacted.secrets
                changes[name] = redacted.text
        if isinstance(data, MessageUser) and data.attachments:
            changes["attachments"] = tuple(self._clean_name(attachment, found) for attachment in data.attachments)
        if isinstance(data, ModelOutput) and data.tool_calls:
            changes["tool_calls"] = tuple(self._clean_call(call, found) for call in data.tool_calls)
        if isinstance(data, ModelOutput) and data.provider_state is not None and self._is_telling(data.provider_state):
            changes["provider_state"] = None
        if isinstance(data, ToolFinished) and data.error is not None:
            message = self._redactor.text(data.error.message)
            found += message.secrets
            changes["error"] = replace(data.error, message=message.text)
        return (replace(data, **changes) if changes else data), found

    def _is_telling(self, state: JsonObject) -> bool:
        """A provider's own state is sent back as it came or not at all: a marker in it would break its signature.

        What is opaque in it (signatures, encrypted reasoning) looks like a secret and is none of ours.
        """
        whole = msgspec.json.encode(state).decode()
        return self._redactor.knows(whole) or bool(self._redactor.value(cast(Json, _without_opaque(state))).secrets)

    def _clean_name(self, attachment: Attachment, found: list[Secret]) -> Attachment:
        name = self._redactor.text(attachment.name)
        found += name.secrets
        return replace(attachment, name=name.text)

    def _clean_call(self, call: ToolCall, found: list[Secret]) -> ToolCall:
        tool = self._redactor.text(call.tool)
        found += tool.secrets
        call = replace(call, tool=tool.text) if tool.secrets else call
        if isinstance(call.arguments, str):
            text = self._redactor.text(call.arguments)
            found += text.secrets
            return replace(call, arguments=text.text)
        value = self._redactor.value(cast(Json, call.arguments))
        found += value.secrets
        return replace(call, arguments=cast(JsonObject, value.value))

    def _seal(self, run_id: RunId | None, secrets: list[Secret]) -> tuple[Write, ...]:
        if run_id is None:
            return ()
        by_id = {secret.id: secret for secret in secrets}
        context = run_id.encode()
        return tuple(
            SealSecret(run_id, secret.id, self._sealer.seal(secret.value.encode(), context))
            for secret in by_id.values()
        )


def _without_opaque(value: object) -> object:
    match value:
        case dict():
            return {key: _without_opaque(member) for key, member in value.items() if key not in _OPAQUE_KEYS}
        case list() | tuple():
            return [_without_opaque(member) for member in value]
        case _:
            return value
