"""What one server offers now. Owns: its tools by name, which are left out or changed, and why. Not: asking it (server)."""

from collections.abc import Sequence

import msgspec

from palyra.adapters.runtimes.mcp.definitions import NAME_LENGTH_MAX, Definition, LeftOut, make_spec, read_definitions
from palyra.adapters.runtimes.mcp.pins import Pins
from palyra.adapters.runtimes.mcp.settings import ServerSettings
from palyra.core.tools import MissingTool, ToolSpec
from palyra.ports.schemas import SchemaCheck

_MARK_LENGTH = 8


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as the catalog has it."""

    spec: ToolSpec
    raw_name: str


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """Of one look at the server's lists. `changed` names tools that are not what they first were."""

    offered: tuple[Offered, ...] = ()
    missing: tuple[MissingTool, ...] = ()
    changed: tuple[str, ...] = ()
    has_resources: bool = False
    has_prompts: bool = False


class Offering:
    """Makes offers of lists."""

    def __init__(self, settings: ServerSettings, schemas: SchemaCheck, pins: Pins) -> None:
        self._settings = settings
        self._schemas = schemas
        self._pins = pins

    def read(self, listed: list[object]) -> Offers:
        definitions, left_out = read_definitions(listed, self._schemas)
        taken = {each.name for each in definitions}
        offered: list[Offered] = []
        missing = [self._missing(each) for each in left_out]
        changed: list[str] = []
        for definition in definitions:
            first = self._pins.first_seen(self._settings.name, definition.raw_name, definition.digest)
            if first == definition.digest:
                offered.append(self._offered(definition, definition.name, is_changed=False))
                continue
            name = _changed_name(definition)
            changed.append(self._full(definition.name))
            missing.append(MissingTool(self._full(definition.name), _changed_reason(self._full(name))))
            if name not in taken:
                offered.append(self._offered(definition, name, is_changed=True))
        return Offers(offered=tuple(offered), missing=tuple(missing), changed=tuple(changed))

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


def _changed_name(definition: Definition) -> str:
    return f"{definition.name[: NAME_LENGTH_MAX - _MARK_LENGTH - 1]}-{definition.digest[:_MARK_LENGTH]}"


def _changed_reason(name: str) -> str:
    return (
        f"its server changed its description or arguments since it was first seen; what it is now is {name}, "
        "which no earlier approval covers; to accept it under its old name, remove its line from the file of pins and restart"
    )
