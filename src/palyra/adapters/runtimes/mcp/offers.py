"""The tools that one MCP server offers now, by name, and why others are left out or changed.

Does not own: asking the server (server).
"""

from collections.abc import Sequence

import msgspec

from palyra.adapters.runtimes.mcp.definitions import (
    NAME_LENGTH_MAX,
    Definition,
    LeftOut,
    hints_of,
    make_spec,
    read_definitions,
    version_of,
)
from palyra.adapters.runtimes.mcp.pins import Pins
from palyra.adapters.runtimes.mcp.settings import ServerSettings
from palyra.core.tools import MissingTool, ToolSpec
from palyra.ports.schemas import SchemaCheck

# Neither character is in any name made from a server's name (own_name), so no server can list a tool by such a name.
CHANGED_MARK = "."
HINTS_MARK = "#"
# A digest is short for the model's sake. A collision is noticed, because the name itself is pinned.
_DIGEST_LENGTH = 24
_NO_NAME_LEFT = (
    "its server changed it since it was first seen, and there is no name left for what it is now; "
    "if you trust that server, remove its section from the file of pins and restart"
)


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
    """Makes offers from the server's lists."""

    def __init__(self, settings: ServerSettings, schemas: SchemaCheck, pins: Pins) -> None:
        self._settings = settings
        self._schemas = schemas
        self._pins = pins

    def read(self, listed: list[object]) -> Offers:
        definitions, left_out = read_definitions(listed, self._schemas)
        offered: list[Offered] = []
        missing = [self._missing(each) for each in left_out]
        changed: list[str] = []
        for definition in definitions:
            if self._is_as_it_was(definition):
                offered.append(self._offered(definition, definition.name, is_changed=False))
                continue
            version = version_of(definition, self._settings)
            name = _changed_name(definition, version)
            is_usable = self._pins.is_first(self._settings.name, name, version)
            reason = _changed_reason(self._full(name)) if is_usable else _NO_NAME_LEFT
            changed.append(self._full(definition.name))
            missing.append(MissingTool(self._full(definition.name), reason))
            if is_usable:
                offered.append(self._offered(definition, name, is_changed=True))
        return Offers(offered=tuple(offered), missing=tuple(missing), changed=tuple(changed))

    def _is_as_it_was(self, definition: Definition) -> bool:
        """Tells whether a tool is unchanged.

        Hints are pinned apart: an operator who begins to trust a server changes no tool.
        """
        server, name = self._settings.name, definition.name
        if not self._pins.is_first(server, name, definition.digest):
            return False
        is_believed = self._settings.trust_annotations
        return not is_believed or self._pins.is_first(server, f"{name}{HINTS_MARK}hints", hints_of(definition))

    def _offered(self, definition: Definition, name: str, *, is_changed: bool) -> Offered:
        spec = make_spec(definition, self._full(name), self._settings, is_changed=is_changed)
        return Offered(spec=spec, raw_name=definition.raw_name)

    def _missing(self, left_out: LeftOut) -> MissingTool:
        reason = f"{left_out.reason}; tell whoever makes the MCP server {self._settings.name}"
        return MissingTool(self._full(left_out.name), reason)

    def _full(self, name: str) -> str:
        return f"mcp.{self._settings.name}.{name}"


def withdrawn(offered: Sequence[Offered], reason: str) -> tuple[MissingTool, ...]:
    return tuple(MissingTool(each.spec.name, reason) for each in offered)


def _changed_name(definition: Definition, version: str) -> str:
    return f"{definition.name[: NAME_LENGTH_MAX - _DIGEST_LENGTH - 1]}{CHANGED_MARK}{version[:_DIGEST_LENGTH]}"


def _changed_reason(name: str) -> str:
    return (
        f"its server changed its description, arguments or hints since it was first seen; what it is now is {name}, "
        "which no earlier approval covers; to accept it under its old name, remove its lines from the file of pins and restart"
    )
