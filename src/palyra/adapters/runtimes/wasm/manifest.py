"""Parses plugin.toml, the manifest of a plugin, and names everything that is wrong with it.

Does not own: reading files (plugin_folder).
Invariant: any text gives a PluginManifest or at least one problem, never another exception.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import fields

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass

MANIFEST_BYTES_MAX = 256 * 1024
PROBLEMS_MAX = 50  # People can read a list of this length.
FUNCTIONS_MAX = 64
FUEL_MAX = 1_000_000_000_000
MEMORY_MIB_MAX = 256
TIMEOUT_S_MAX = 60.0
NAME_LENGTH_MAX = 32

Name = Annotated[str, Meta(pattern=rf"^[a-z0-9][a-z0-9_-]{{0,{NAME_LENGTH_MAX - 1}}}\Z")]
Sentence = Annotated[str, Meta(min_length=1, max_length=2_000)]
_LINE = re.compile(r"\(at (line \d+), column \d+\)")


class HostGrant(Enum):
    """What a plugin may be granted. Each is one host function; none of them reaches files, programs or the network."""

    LOG = "log"
    CLOCK = "clock"
    RANDOM = "random"


class AnswerForm(Enum):
    """The form of a function's answer."""

    TEXT = "text"
    JSON = "json"


class PluginLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call. A unit of fuel is about one instruction; the default allows about a second at most."""

    fuel: Annotated[int, Meta(ge=1_000, le=FUEL_MAX)] = 5_000_000_000
    memory_mib: Annotated[int, Meta(ge=1, le=MEMORY_MIB_MAX)] = 32
    timeout_s: Annotated[float, Meta(ge=0.1, le=TIMEOUT_S_MAX)] = 10.0


class PluginFunction(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    description: Sentence
    input_schema: JsonObject
    effect_class: EffectClass = EffectClass.ONCE
    output: AnswerForm = AnswerForm.TEXT


class PluginManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`sha256` is the hash of the wasm file. An author may leave it out; an installed plugin always has it."""

    name: Name
    version: Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+-]{0,31}\Z")]
    description: Sentence
    wasm: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.wasm\Z")]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None = None
    capabilities: frozenset[HostGrant] = frozenset()
    limits: PluginLimits = PluginLimits()
    function: tuple[PluginFunction, ...] = ()


class ManifestInvalid(Invalid):
    """`problems` is everything that is wrong with the manifest."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("manifest_invalid", "; ".join(problems))
        self.problems = problems


SchemaErrors = Callable[[JsonObject], tuple[str, ...]]


def read_manifest(text: str, schema_errors: SchemaErrors) -> PluginManifest:
    """Parses a manifest. Raises ManifestInvalid. `schema_errors` tells what is wrong with a JSON Schema."""
    document = _parse(text)
    problems: list[str] = []
    members = _members(PluginManifest, document, "", problems)
    members["limits"] = _table(PluginLimits, document.get("limits", {}), "limits", problems)
    members["function"] = _functions(document.get("function", []), schema_errors, problems)
    if problems:
        raise ManifestInvalid(tuple(problems[:PROBLEMS_MAX]))
    return PluginManifest(**members)


def _parse(text: str) -> dict[str, Any]:
    if len(text.encode("utf-8", "replace")) > MANIFEST_BYTES_MAX:
        raise ManifestInvalid((f"plugin.toml is larger than {MANIFEST_BYTES_MAX} bytes; shorten its descriptions",))
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except RecursionError as cause:
        raise ManifestInvalid(("plugin.toml: lists or tables lie too deep in each other",)) from cause
    except ValueError as cause:
        match = _LINE.search(str(cause))
        place = f"plugin.toml, {match[1]}" if match else "plugin.toml"
        raise ManifestInvalid((f"{place}: is not TOML: {str(cause).partition(' (at ')[0]}",)) from cause


def _members(kind: type[msgspec.Struct], table: Mapping[str, object], where: str, problems: list[str]) -> Any:
    """Returns the values of a table, each checked by itself. The caller checks nested ones."""
    known = {field.name: field for field in fields(kind)}
    values: dict[str, Any] = {}
    for key, raw in table.items():
        place = f"{where}.{key}" if where else key
        if key not in known:
            near = get_close_matches(key, list(known), n=1)
            problems.append(f"{place}: there is no such key" + (f"; did you mean {near[0]}?" if near else ""))
        elif key not in ("limits", "function"):
            _convert(known[key].type, raw, place, values, problems)
    problems.extend(
        f"{where or 'plugin.toml'}: needs the key {field.name}"
        for field in known.values()
        if field.required and field.name not in table
    )
    return values


def _convert(kind: Any, raw: object, place: str, values: dict[str, Any], problems: list[str]) -> None:
    if isinstance(raw, int) and not isinstance(raw, bool) and kind is not int:
        raw = raw if abs(raw) < 2**63 else str(raw)  # Larger numbers are kept by no reader of JSON.
    try:
        values[place.rpartition(".")[2]] = msgspec.convert(raw, kind)
    except (msgspec.ValidationError, RecursionError) as cause:
        problems.append(f"{place}: {_worded(place, str(cause))}")


def _worded(place: str, said: str) -> str:
    key = place.rpartition(".")[2]
    hints = {
        "name": f"must be 1 to {NAME_LENGTH_MAX} of a-z 0-9 _ - and begin with a letter or digit",
        "version": "must be such as 1.0.0: up to 32 of letters, digits and . + -",
        "wasm": "must be the plain name of a file that ends with .wasm, without folders",
        "sha256": "must be the 64 hex digits of the wasm file; leave it out and it is filled in at install",
        "capabilities": f"must be a list of {', '.join(grant.value for grant in HostGrant)}, or empty",
        "effect_class": f"must be one of {', '.join(each.value for each in EffectClass)}",
        "output": "must be text or json",
        "fuel": f"must be a whole number from 1000 to {FUEL_MAX}",
        "memory_mib": f"must be a whole number from 1 to {MEMORY_MIB_MAX}",
        "timeout_s": f"must be a number from 0.1 to {TIMEOUT_S_MAX:g}",
        "input_schema": "must be a table that is a JSON Schema of type object",
        "description": "must be text of 1 to 2000 characters",
    }
    return hints.get(key, said)


def _table(kind: type[PluginLimits], table: object, where: str, problems: list[str]) -> PluginLimits:
    if not isinstance(table, dict):
        problems.append(f"{where}: is one table: write [{where}] and its keys below")
        return PluginLimits()
    before = len(problems)
    members = _members(kind, table, where, problems)
    return PluginLimits(**members) if len(problems) == before else PluginLimits()


def _functions(tables: object, schema_errors: SchemaErrors, problems: list[str]) -> tuple[PluginFunction, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.append("function: is a list of tables: write [[function]] before the keys of each")
        return ()
    if not 1 <= len(tables) <= FUNCTIONS_MAX:
        problems.append(f"function: a plugin has 1 to {FUNCTIONS_MAX} functions; write [[function]] for each")
        return ()
    found: list[PluginFunction] = []
    for number, table in enumerate(tables, 1):
        where, before = f"function {number}", len(problems)
        members = _members(PluginFunction, table, where, problems)
        if len(problems) == before:
            function = PluginFunction(**{**members, "input_schema": _plain(members["input_schema"])})
            problems.extend(f"{where}.input_schema: {each}" for each in _schema_problems(function, schema_errors))
            if any(other.name == function.name for other in found):
                problems.append(f"{where}.name: {function.name} stands there twice; rename one")
            found.append(function)
    return tuple(found)


def _plain(schema: JsonObject) -> JsonObject:
    """Returns the schema as JSON.

    TOML's dates become text. A value that no reader keeps exactly becomes one that no schema may hold.
    """
    try:
        plain: JsonObject = msgspec.json.decode(msgspec.json.encode(schema))
    except (ValueError, OverflowError, RecursionError):
        return {}
    return plain


def _schema_problems(function: PluginFunction, schema_errors: SchemaErrors) -> tuple[str, ...]:
    if function.input_schema.get("type") != "object":
        return ('needs type = "object": arguments of a tool are an object',)
    return schema_errors(function.input_schema)
