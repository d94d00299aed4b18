"""Parts of request bodies that every wire format shares: arguments, schemas and empty texts in a form all accept."""

import msgspec

from palyra.core.context.messages import PastCall
from palyra.core.events.base import JsonObject

NO_OUTPUT = "(no output)"  # Some providers refuse an empty result.
NO_TEXT = "(empty message)"

# What both vendors' strict modes understand. A schema with more is sent as a wish, and the engine checks it.
_STRICT_WORDS = frozenset(
    "type properties required additionalProperties items enum const description title anyOf $ref $defs".split()
)


def arguments_object(call: PastCall) -> JsonObject:
    """Wraps arguments that did not parse in an object, because providers accept nothing else."""
    return call.arguments if isinstance(call.arguments, dict) else {"unparsed": call.arguments}


def arguments_text(call: PastCall) -> str:
    return msgspec.json.encode(arguments_object(call)).decode()


def object_schema(schema: JsonObject) -> JsonObject:
    """Returns a tool's schema; an empty schema becomes an object without members."""
    return {"type": "object", "properties": {}, **schema}


def is_strict(schema: object) -> bool:
    """Tells whether every object in the schema is closed and requires all members, with strict modes' keywords only."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    if not _STRICT_WORDS.issuperset(schema):
        return False
    members = schema.get("properties", {})
    if "properties" in schema or "object" in str(schema.get("type")):
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or set(schema.get("required", ())) != set(members):
            return False
    inner = [*members.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    return all(is_strict(part) for part in (*inner, schema.get("items", True)))


def schema_wish(schema: JsonObject) -> str:
    """Returns the schema in words, for models whose provider cannot enforce it."""
    return f"Answer with JSON alone that fits this JSON Schema:\n{msgspec.json.encode(schema).decode()}"


def with_wish(instructions: str, schema: JsonObject | None) -> str:
    return instructions if schema is None else f"{instructions}\n\n{schema_wish(schema)}".lstrip()
