"""The tools that one MCP server offers now, by name, and why others are left out or changed.

Does not own: asking the server (server).
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from palyra.adapters.runtimes.mcp.acceptances import Acceptances
from palyra.adapters.runtimes.mcp.definitions import (
    Definition,
    LeftOut,
    hints_of,
    make_spec,
    read_definitions,
    version_of,
)
from palyra.adapters.runtimes.mcp.pins import Pins
from palyra.adapters.runtimes.mcp.settings import ServerSettings
from palyra.core.taint import label
from palyra.core.tools import MissingTool, ToolSpec
from palyra.ports.schemas import SchemaCheck

# This character is in no name made from a server's name (own_name), so no server can list a tool by such a name.
HINTS_MARK = "#"


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as the catalog has it."""

    spec: ToolSpec
    raw_name: str


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look at the server's lists. `changed` names tools that are not what they first were."""

    offered: tuple[Offered, ...] = ()
    missing: tuple[MissingTool, ...] = ()
    changed: tuple[str, ...] = ()
    has_resources: bool = False
    has_prompts: bool = False


class Offering:
    """Makes offers from the server's lists.

    A definition that was accepted is offered as it is. One that nobody accepted is offered while it is what it first
    was, and its text counts as the server's. One that changed is not shown to a model until a person accepts it.
    """

    def __init__(
        self, settings: ServerSettings, schemas: SchemaCheck, pins: Pins, acceptances: Acceptances | None = None
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        self._pins = pins
        self._acceptances = acceptances or Acceptances()

    def read(self, listed: list[object]) -> Offers:
        definitions, left_out = read_definitions(listed, self._schemas)
        offered: list[Offered] = []
        missing = [self._missing(each) for each in left_out]
        changed: list[str] = []
        for definition in definitions:
            is_accepted = self._is_accepted(definition)
            if is_accepted:
                self._pin_again(definition)
            if is_accepted or (is_accepted is None and self._is_as_it_was(definition)):
                offered.append(self._offered(definition, is_accepted=bool(is_accepted)))
                continue
            if is_accepted is None and self._pins.fault:
                missing.append(MissingTool(self._full(definition.name), self._pins.fault))
                continue
            changed.append(self._full(definition.name))
            missing.append(MissingTool(self._full(definition.name), _changed_reason(self._settings.name)))
        return Offers(offered=tuple(offered), missing=tuple(missing), changed=tuple(changed))

    def _is_accepted(self, definition: Definition) -> bool | None:
        """Returns whether this version was accepted; None if none of that name ever was."""
        accepted = self._acceptances.version(self._settings.name, definition.name)
        return None if accepted is None else accepted == version_of(definition, self._settings)

    def _pin_again(self, definition: Definition) -> None:
        """A person accepted what the name means now, so from now on that is what it first meant."""
        self._pins.put(self._settings.name, definition.name, definition.digest)
        if self._settings.trust_annotations:
            self._pins.put(self._settings.name, f"{definition.name}{HINTS_MARK}hints", hints_of(definition))

    def _is_as_it_was(self, definition: Definition) -> bool:
        """Tells whether a tool is unchanged.

        Hints are pinned apart: an operator who begins to trust a server changes no tool.
        """
        server, name = self._settings.name, definition.name
        if not self._pins.is_first(server, name, definition.digest):
            return False
        is_believed = self._settings.trust_annotations
        return not is_believed or self._pins.is_first(server, f"{name}{HINTS_MARK}hints", hints_of(definition))

    def _offered(self, definition: Definition, *, is_accepted: bool) -> Offered:
        spec = make_spec(definition, self._full(definition.name), self._settings)
        source = "" if is_accepted else label("mcp", self._settings.name)
        return Offered(spec=replace(spec, described_by=source), raw_name=definition.raw_name)

    def _missing(self, left_out: LeftOut) -> MissingTool:
        reason = f"{left_out.reason}; tell whoever makes the MCP server {self._settings.name}"
        return MissingTool(self._full(left_out.name), reason)

    def _full(self, name: str) -> str:
        return f"mcp.{self._settings.name}.{name}"


def withdrawn(offered: Sequence[Offered], reason: str) -> tuple[MissingTool, ...]:
    return tuple(MissingTool(each.spec.name, reason) for each in offered)


def _changed_reason(server: str) -> str:
    return (
        "its server changed its description, arguments or hints, and nobody has accepted that; "
        f"palyra mcp accept {server} shows what it says now"
    )
