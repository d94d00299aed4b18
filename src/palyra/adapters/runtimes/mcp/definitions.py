"""Reads the tool definitions that an MCP server lists, and gives each tool a name of ours.

Owns: refusing definitions that cannot be used.
Does not own: asking for the list (pages), executing tools.
A stranger wrote everything that is read here. Texts are cleaned, cut and marked as the server's. Schemas are bounded
and checked. Hints about effects count only where the operator says so.
"""

import hashlib
import re
from typing import cast

import msgspec

from palyra.adapters.runtimes.mcp.server_text import clean, clean_line
from palyra.adapters.runtimes.mcp.settings import ServerSettings, is_named
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, ParallelClass, Risk
from palyra.core.spelling import strip_unseen
from palyra.core.tools import Capability, Runtime, ToolSpec, Trait
from palyra.core.trust import Trust
from palyra.ports.schemas import SchemaCheck

TOOLS_MAX = 256  # The limit holds for each server. Each tool costs the model its description.
NAME_LENGTH_MAX = 64
RAW_NAME_LENGTH_MAX = 256
DESCRIPTION_LENGTH_MAX = 2_000
NOTE_LENGTH_MAX = 500  # Limits one description inside a schema.
SCHEMA_BYTES_MAX = 32 * 1024
SCHEMA_DEPTH_MAX = 24
_MARK_LENGTH = 16

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_NOTES = ("description", "title", "$comment")
_PARALLEL = {
    EffectClass.READ_ONLY: ParallelClass.READ_ONLY_SAFE,
    EffectClass.IDEMPOTENT: ParallelClass.IDEMPOTENT_NETWORK,
    EffectClass.ONCE: ParallelClass.NEVER,
}


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A usable tool. `raw_name` is the server's name for it; `digest` tells whether the tool is still the same.

    Hints that count only for a trusted server are not part of the digest (hints_of, version_of).
    """

    raw_name: str
    name: str
    description: str
    input_schema: JsonObject
    digest: str
    is_read_only_hint: bool = False
    is_idempotent_hint: bool = False
    is_destructive_hint: bool = False


class LeftOut(msgspec.Struct, frozen=True):
    """A tool that was listed and cannot be offered."""

    name: str
    reason: str


def own_name(raw_name: str) -> str:
    """Returns a name of letters that every provider takes.

    A changed name gets a hash, so that two names never become one.
    """
    if _PLAIN.fullmatch(raw_name) and len(raw_name) <= NAME_LENGTH_MAX:
        return raw_name
    mark = hashlib.sha256(raw_name.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_LENGTH]
    fitting = _UNFIT.sub("_", raw_name)[: NAME_LENGTH_MAX - len(mark) - 1]
    return f"{fitting}-{mark}"


def read_definitions(listed: list[object], schemas: SchemaCheck) -> tuple[tuple[Definition, ...], tuple[LeftOut, ...]]:
    """Returns the tools that can be offered, in the server's order, and why the others cannot."""
    read = [_read(raw, schemas) for raw in listed[:TOOLS_MAX]]
    left_out = [each for each in read if isinstance(each, LeftOut)]
    counts: dict[str, int] = {}
    for each in read:
        counts[each.name] = counts.get(each.name, 0) + 1
    usable = [each for each in read if isinstance(each, Definition) and counts[each.name] == 1]
    for name in (name for name, count in counts.items() if count > 1):
        left_out = [each for each in left_out if each.name != name]
        left_out.append(LeftOut(name, "the server lists more than one tool of this name"))
    if len(listed) > TOOLS_MAX:
        left_out.append(
            LeftOut("*", f"the server lists {len(listed)} tools; those after the first {TOOLS_MAX} are left out")
        )
    return tuple(usable), tuple(left_out)


def make_spec(definition: Definition, name: str, settings: ServerSettings) -> ToolSpec:
    """Makes the spec as the operator says."""
    effect_class = effect_of(definition, settings)
    return ToolSpec(
        name=name,
        description=attribute(settings.name, definition.description),
        input_schema=definition.input_schema,
        capabilities=frozenset({Capability.NETWORK}),
        effect_class=effect_class,
        parallel_class=_PARALLEL[effect_class],
        risk=Risk.HIGH if definition.is_destructive_hint else Risk.MEDIUM,
        output_trust=Trust.EXTERNAL,
        runtime=Runtime.MCP,
        timeout_s=settings.timeout_s,
        version=version_of(definition, settings),
        traits=frozenset({Trait.READS_OUTSIDE}),
    )


def effect_of(definition: Definition, settings: ServerSettings) -> EffectClass:
    is_believed = settings.trust_annotations
    if is_named(definition.raw_name, settings.read_only) or (is_believed and definition.is_read_only_hint):
        return EffectClass.READ_ONLY
    if is_named(definition.raw_name, settings.idempotent) or (is_believed and definition.is_idempotent_hint):
        return EffectClass.IDEMPOTENT
    return EffectClass.ONCE


def hints_of(definition: Definition) -> str:
    """Returns in one word what a trusted server says about a tool's effect."""
    if definition.is_read_only_hint:
        return "read_only"
    return "idempotent" if definition.is_idempotent_hint else "none"


def version_of(definition: Definition, settings: ServerSettings) -> str:
    """Returns everything of a definition that counts. For a trusted server that includes its hints."""
    if not settings.trust_annotations:
        return definition.digest
    return hashlib.sha256(f"{definition.digest} {hints_of(definition)}".encode()).hexdigest()


def attribute(server: str, text: str) -> str:
    """Marks a server's words as such, so that every reader knows that we did not write them."""
    if not text:
        return f"[The MCP server {server} gives no description.]"
    return f"[In the words of the MCP server {server}, not checked by anyone] {text}"


def _read(raw: object, schemas: SchemaCheck) -> Definition | LeftOut:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return LeftOut("?", "its definition is no object with a name")
    raw_name = raw["name"]
    if not 0 < len(raw_name) <= RAW_NAME_LENGTH_MAX:
        return LeftOut(own_name(raw_name[:RAW_NAME_LENGTH_MAX]), f"its name has {len(raw_name)} letters")
    name = own_name(raw_name)
    schema = raw.get("inputSchema")
    problem, cleaned = _schema_problem(schema, schemas)
    if problem is not None:
        return LeftOut(name, problem)
    said = raw.get("description")
    annotations = raw.get("annotations")
    hints = annotations if isinstance(annotations, dict) else {}
    is_destructive = hints.get("destructiveHint") is True
    return Definition(
        raw_name=raw_name,
        name=name,
        description=clean(said, DESCRIPTION_LENGTH_MAX) if isinstance(said, str) else "",
        input_schema=cleaned,
        digest=_digest([raw_name, said, schema, is_destructive]),
        is_read_only_hint=hints.get("readOnlyHint") is True,
        is_idempotent_hint=hints.get("idempotentHint") is True,
        is_destructive_hint=is_destructive,
    )


def _schema_problem(schema: object, schemas: SchemaCheck) -> tuple[str | None, JsonObject]:
    """Returns why the schema cannot be used, and the schema as a model may read it."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its input schema is not that of an object", {}
    if not _is_shallow(schema):
        return f"its input schema is nested deeper than {SCHEMA_DEPTH_MAX}", {}
    size = len(msgspec.json.encode(schema))
    if size > SCHEMA_BYTES_MAX:
        return f"its input schema has {size} bytes, at most {SCHEMA_BYTES_MAX}", {}
    cleaned = cast(JsonObject, _cleaned(schema))
    return ("its input schema is not valid" if schemas.schema_errors(cleaned) else None), cleaned


def _is_shallow(value: object) -> bool:
    """Tells whether a value is shallow. It does not recurse, because the value itself could exhaust the stack."""
    layer: list[object] = [value]
    for _ in range(SCHEMA_DEPTH_MAX + 1):
        inner: list[object] = []
        for each in layer:
            inner.extend(each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        if not inner:
            return True
        layer = inner
    return False


def _cleaned(value: object) -> object:
    """Cleans what a model reads like the description.

    Every text of a schema is read: names of members, choices, defaults, patterns. All lose what nobody sees, in the
    same way, so that they still name each other. Notes are cut too.
    """
    match value:
        case dict():
            return {
                strip_unseen(key): clean_line(each, NOTE_LENGTH_MAX)
                if key in _NOTES and isinstance(each, str)
                else _cleaned(each)
                for key, each in value.items()
            }
        case list():
            return [_cleaned(each) for each in value]
        case str():
            return strip_unseen(value)
        case _:
            return value


def _digest(said: list[object]) -> str:
    """Hashes the server's words before anything of them is cleaned or cut."""
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()
