"""The SchemaCheck port. Owns: asking whether a value fits a JSON Schema. Not: which schemas are asked (tools, callers)."""

from typing import Protocol

from palyra.core.events.base import JsonObject


class SchemaCheck(Protocol):
    def errors(self, schema: JsonObject, value: object) -> tuple[str, ...]:
        """What does not fit, each with its place in the value; empty when all does. A broken schema is an error too."""
        ...

    def text_errors(self, schema: JsonObject, text: str) -> tuple[str, ...]:
        """The same for text that has to be JSON."""
        ...

    def schema_errors(self, schema: JsonObject) -> tuple[str, ...]:
        """What is wrong with the schema itself; empty when it can be used."""
        ...
