"""The catalog of tools: finds a tool by name, both our own and those of sources.

Does not own: whether an agent may use a tool (engine.session.gate).
Tools of sources (MCP servers, plugins) may appear and vanish. None of them can take a name that is already used.
"""

from collections.abc import Sequence

import structlog

from palyra.core.errors import Invalid
from palyra.core.tools import MissingTool, ToolSpec, wire_name
from palyra.ports.tools import Tool, ToolSource

log = structlog.get_logger()


class ToolCatalog:
    """Names are unique, on the wire too: a call must mean one tool.

    Providers shorten long names (adapters.providers).
    """

    def __init__(
        self, tools: Sequence[Tool], sources: Sequence[ToolSource] = (), missing: Sequence[MissingTool] = ()
    ) -> None:
        self._own = tuple(tools)
        self._sources = tuple(sources)
        self._missing = tuple(missing)
        wire_names: set[str] = set()
        for tool in tools:
            name = tool.spec.name
            if wire_name(name) in wire_names:
                raise Invalid("tool_duplicate", f"two tools are named {name}, or are the same on the wire; rename one")
            wire_names.add(wire_name(name))
        self._seen: tuple[tuple[Tool, ...], ...] = ()
        self._tools: dict[str, Tool] = {}
        self._specs: tuple[ToolSpec, ...] = ()
        self._gather(())

    def specs(self) -> tuple[ToolSpec, ...]:
        self._refresh()
        return self._specs

    def find(self, name: str) -> Tool | None:
        self._refresh()
        return self._tools.get(name)

    def missing(self) -> tuple[MissingTool, ...]:
        return (*self._missing, *(each for source in self._sources for each in source.missing()))

    def _refresh(self) -> None:
        """Asks the sources again. They return the same tuple until something changes, so this costs nothing."""
        if not self._sources:
            return
        found = tuple([source.tools() for source in self._sources])
        if found != self._seen:
            self._gather(found)

    def _gather(self, found: tuple[tuple[Tool, ...], ...]) -> None:
        self._seen = found
        by_wire: dict[str, Tool] = {}
        for tool in (*self._own, *(tool for tools in found for tool in tools)):
            taken = by_wire.setdefault(wire_name(tool.spec.name), tool)
            if taken is not tool:
                log.warning("tool_name_taken", tool=tool.spec.name, by=taken.spec.name)
        self._tools = {tool.spec.name: tool for tool in by_wire.values()}
        self._specs = tuple(tool.spec for tool in self._tools.values())
