"""The cost of checking a value against a JSON Schema, estimated before it is checked.

Owns: how many comparisons one place of a value can take, about how many places a value has, and what compiling the
patterns of a schema takes.
Does not own: checking (adapters.schema). A stranger may write the schema, and choose a value that makes the check take hours:
long lists of alternatives, and references that double at each level.
"""

from collections.abc import Iterator

from palyra.core.events.base import JsonObject

COST_MAX = 20_000  # A schema that compares one place with more than this is refused.
# Compiling a pattern takes about a millisecond, and 80 ns for each pair of its characters: 8,000 names of classes of
# characters took 41 seconds.
PATTERN_COST = 12_000
PATTERNS_COST_MAX = 1_000_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def schema_cost(schema: JsonObject) -> int:
    """Returns about how many comparisons one place of a value takes, at most COST_MAX."""
    return min(COST_MAX, _Costs(schema).of(schema))


def places_of(encoded: bytes) -> int:
    """Returns about how many places a value has, from its JSON. Commas in texts count too, so it errs upwards."""
    return 1 + encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")


def patterns_cost(schema: JsonObject) -> int:
    """Returns what compiling all patterns of a schema takes; 0 if it has none. It errs upwards."""
    return sum(PATTERN_COST + len(pattern) ** 2 for pattern in _patterns_in(schema))


def _patterns_in(schema: JsonObject) -> Iterator[str]:
    """Finds them wherever they stand, also where they have no effect. Any depth is walked."""
    parts: list[object] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts.extend(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
            pattern, by_pattern = part.get("pattern"), part.get("patternProperties")
            if isinstance(pattern, str):
                yield pattern
            if isinstance(by_pattern, dict):
                yield from by_pattern


class _Costs:
    """Costs of the parts of one schema. Each is computed once; a part that refers to itself counts once."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, part: object) -> int:
        if isinstance(part, list):
            return min(COST_MAX, sum(map(self.of, part)) + len(part))
        if not isinstance(part, dict):
            return 0
        known = self._known.get(id(part))
        if known is not None:
            return known
        self._known[id(part)] = 1
        cost = 1 + sum(self.of(member) for member in part.values())
        cost += sum(self._referred(part[name]) for name in _REFERENCES if name in part)
        self._known[id(part)] = min(COST_MAX, cost)
        return self._known[id(part)]

    def _referred(self, reference: object) -> int:
        """Returns the cost of what a reference within this schema points at. Others are refused elsewhere."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return 1
        found: object = self._root
        for step in reference.removeprefix("#/").split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return self.of(found)
