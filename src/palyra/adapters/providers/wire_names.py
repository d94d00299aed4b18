"""Tool names on the wire: the two-way table between our names and those a provider accepts.

Does not own: which tools there are.
A wire name has letters, digits, `_` and `-`, at most 64 of them. A longer or unfit name is shortened to its beginning
and a digest of the whole. So the same tool has the same wire name in every request, and the table leads back.
"""

import hashlib
import re
from collections.abc import Iterable

from palyra.core.context.messages import AssistantMessage, Message
from palyra.core.tools import WIRE_NAME_LENGTH_MAX, ToolSpec, wire_name
from palyra.ports.provider import ModelRequest

_DIGEST_LENGTH = 10
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


class WireNames:
    """The names of one request: its tools, and those that earlier calls in it used."""

    def __init__(self, tools: Iterable[str]) -> None:
        self._wire: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        for tool in tools:
            self._add(tool)

    def wire(self, tool: str) -> str:
        return self._wire.get(tool) or self._add(tool)

    def tool(self, wire: str) -> str:
        """Returns our name.

        A name that the request did not hold is still read as ours, so that its refusal names it.
        """
        return self._tools.get(wire, wire.replace("__", "."))

    def _add(self, tool: str) -> str:
        if tool in self._wire:
            return self._wire[tool]
        plain = wire_name(tool)
        fitting = _UNFIT.sub("_", plain) or "_"
        if fitting != plain or len(fitting) > WIRE_NAME_LENGTH_MAX or fitting in self._tools:
            digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:_DIGEST_LENGTH]
            fitting = f"{fitting[: WIRE_NAME_LENGTH_MAX - _DIGEST_LENGTH - 1]}_{digest}"
        self._wire[tool] = fitting
        self._tools[fitting] = tool
        return fitting

    def and_past(self, request: ModelRequest) -> "WireNames":
        """Returns these names and those of earlier calls in the conversation.

        The result is a new table, so that nothing of one request stays for another.
        """
        names = WireNames(())
        names._wire, names._tools = dict(self._wire), dict(self._tools)
        for tool in _past_tools(request.messages):
            names._add(tool)
        return names


def names_of_tools(tools: Iterable[ToolSpec]) -> WireNames:
    return WireNames(spec.name for spec in tools)


def names_of(request: ModelRequest) -> WireNames:
    return names_of_tools(request.tools).and_past(request)


def _past_tools(messages: Iterable[Message]) -> list[str]:
    return [call.tool for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
