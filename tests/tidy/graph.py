"""Rules about all modules together.

Owns: class names that are unique, modules that are not gerunds, imports without cycles. Does not own: one file's rules.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.tidy.source import Fault, Source

# Nouns that only look like gerunds.
NOUNS_IN_ING = frozenset({"healing", "keyring", "learning", "routing", "spelling", "string"})


def check_classes_unique(sources: Iterable[Source]) -> list[Fault]:
    """A search for a class finds one class. Private classes are their module's own business."""
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((source.module, node.lineno))
    return [
        Fault(module, line, "class_twice", name)
        for name, found in places.items()
        if len(found) > 1
        for module, line in found
    ]


def check_module_nouns(sources: Iterable[Source]) -> list[Fault]:
    return [
        Fault(source.module, 1, "gerund", source.parts[-1])
        for source in sources
        if source.parts[-1].endswith("ing") and source.parts[-1] not in NOUNS_IN_ING
    ]


def check_cycles(sources: Iterable[Source]) -> list[Fault]:
    """Imports under TYPE_CHECKING and inside functions count: whoever needs each other belongs together."""
    known = {source.module: source for source in sources}
    graph = {module: frozenset(_imported(source, known)) for module, source in known.items()}
    return [Fault(min(cycle), 1, "cycle", " <-> ".join(sorted(cycle))) for cycle in _cycles(graph)]


def _imported(source: Source, known: dict[str, Source]) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from [name for name in (whole, node.module) if name in known][:1]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def _cycles(graph: dict[str, frozenset[str]]) -> Iterator[frozenset[str]]:
    """Groups of modules that reach each other."""
    reach = {module: _reached(graph, module) for module in graph}
    seen: set[str] = set()
    for module in sorted(graph):
        group = frozenset(other for other in reach[module] if module in reach[other])
        if group and module not in seen:
            seen |= group
            yield group


def _reached(graph: dict[str, frozenset[str]], start: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph[waiting.pop()] - found:
            found.add(module)
            waiting.append(module)
    return frozenset(found)
