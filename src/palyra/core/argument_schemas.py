"""JSON Schemas of what a tool takes, written short. Does not own: checking arguments against them (ports.schema)."""

from palyra.core.events.base import JsonObject


def arguments_schema(properties: JsonObject, required: list[str] | None = None) -> JsonObject:
    """Returns the schema of a tool's arguments. No other argument is taken."""
    needed: JsonObject = {} if required is None else {"required": required}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def text_schema(length_max: int, description: str) -> JsonObject:
    """Returns the schema of a text that is not empty."""
    return {"type": "string", "minLength": 1, "maxLength": length_max, "description": description}


def integer_schema(minimum: int, maximum: int, description: str) -> JsonObject:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description}
