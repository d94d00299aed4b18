"""The catalog of tools. Owns: finding a tool by its name. Not: whether an agent may use it (core.agents, policy)."""

from collections.abc import Sequence

from palyra.core.errors import Invalid
from palyra.core.tools import WIRE_NAME_LENGTH_MAX, ToolSpec, wire_name
from palyra.ports.tools import Tool


class ToolCatalog:
    """Names are unique, on the wire too: a call must mean one tool."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        wire_names: set[str] = set()
        for tool in tools:
            name = tool.spec.name
            on_wire = wire_name(name)
            if on_wire in wire_names:
                raise Invalid("tool_duplicate", f"two tools are named {name}, or are the same on the wire; rename one")
            if len(on_wire) > WIRE_NAME_LENGTH_MAX:
                raise Invalid("tool_name_too_long", f"{name} has over {WIRE_NAME_LENGTH_MAX} characters on the wire")
            wire_names.add(on_wire)
            self._tools[name] = tool

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)
