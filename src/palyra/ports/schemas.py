"""The SchemaCheck port: tells whether a value fits a JSON Schema.

Does not own: which schemas are used (tools, callers).
"""

from typing import Protocol

from palyra.core.events.base import JsonObject


class SchemaCheck(Protocol):
    def errors(self, schema: JsonObject, value: object) -> tuple[str, ...]:
        """Returns what does not fit, each with its place in the value; empty if all fits.

        A broken schema is an error too.
        """
        ...

    def text_errors(self, schema: JsonObject, text: str) -> tuple[str, ...]:
        """Does the same for text that has to be JSON."""
        ...

    def schema_errors(self, schema: JsonObject) -> tuple[str, ...]:
        """Returns what is wrong with the schema itself; empty if it can be used."""
        ...
