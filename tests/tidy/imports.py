"""Arrows. Owns: which layer may import which, what core may touch, and that only one SQLite is ever loaded.

core <- ports <- engine <- gateway <- app, and core <- ports <- adapters <- app; the CLI stands on app. Adapters are
packages (store, providers, ...) that never import each other, but for net (the guarded HTTP client) and files (durable files).
The generated messages of gRPC (gateway.v1, here "wire") are shared by the gateway and the client, which knows nothing else of
the daemon.
"""

import ast
import sys
from collections.abc import Iterator

from tests.tidy.source import Fault, Source

LAYERS: dict[str, frozenset[str]] = {
    "core": frozenset({"core"}),
    "ports": frozenset({"core", "ports"}),
    "engine": frozenset({"core", "ports", "engine"}),
    "gateway": frozenset({"core", "ports", "engine", "gateway", "wire"}),
    "wire": frozenset(),
    "client": frozenset({"core", "client", "wire"}),
    "adapters": frozenset({"core", "ports", "adapters"}),
    "config": frozenset({"core", "config"}),
    "app": frozenset({"core", "ports", "engine", "gateway", "adapters", "config", "app"}),
    "cli": frozenset({"core", "ports", "config", "app", "cli"}),
    "__main__": frozenset({"cli"}),
}
OUTSIDE_CORE = frozenset({"msgspec"})  # The one dependency that core and ports may have.
SHARED_ADAPTERS = frozenset({"net", "files", "extras"})
# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "contextvars", "ctypes", "fcntl", "getpass", "http", "locale", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "platform", "queue", "random", "sched", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib.request",
    "uuid",
})
# fmt: on
IMPURE_CALLS = frozenset({"open", "print", "input"})
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})  # Dates are values; asking what date it is, is not.


def check_imports(source: Source) -> list[Fault]:
    """Faults of a module of the package."""
    found = check_one_sqlite(source)
    for line, name in imported(source):
        found += [Fault(source.module, line, rule, f"imports {name}") for rule in _broken_rules(source, name)]
    if _layer(source.module) == "core":
        found += _impure_calls(source)
    return found


def check_one_sqlite(source: Source) -> list[Fault]:
    """apsw brings its own SQLite; the interpreter's beside it, in one process, can corrupt a database."""
    return [
        Fault(source.module, line, "one_sqlite", f"imports {name}")
        for line, name in imported(source)
        if name.partition(".")[0] == "sqlite3"
    ]


def imported(source: Source) -> list[tuple[int, str]]:
    """Line and full name of everything imported, at any depth; `from a import b` counts as a.b."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(source, node)
            found += [(node.lineno, f"{origin}.{alias.name}") for alias in node.names]
    return found


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    up = node.level - 1 if source.is_package else node.level
    base = source.parts[: len(source.parts) - up]
    return ".".join((*base, node.module) if node.module else base)


def _broken_rules(source: Source, name: str) -> Iterator[str]:
    own, target = _layer(source.module), _layer(name)
    if own not in LAYERS:
        if own:
            yield "unknown_layer"
        elif target:
            yield "arrow"
        return
    if target is None:
        yield from _outside_rules(own, name)
    elif target in LAYERS and target not in LAYERS[own]:
        yield "arrow"
    elif own == target == "adapters" and not _may_share(source.parts, name.split(".")):
        yield "adapters_apart"


def _outside_rules(own: str, name: str) -> Iterator[str]:
    if own not in ("core", "ports"):
        return
    package = name.partition(".")[0]
    if package not in sys.stdlib_module_names and package not in OUTSIDE_CORE:
        yield "foreign_package"
    if own == "core" and any(f"{name}.".startswith(f"{impure}.") for impure in IMPURE):
        yield "impure_core"


def _may_share(own: tuple[str, ...], target: list[str]) -> bool:
    return len(target) < 3 or target[2] in SHARED_ADAPTERS or target[2:3] == list(own[2:3])


def _layer(name: str) -> str | None:
    """The layer a dotted name lies in: "" for the package itself and its version, None outside of it."""
    parts = name.split(".")
    if parts[0] != "palyra":
        return None
    if parts[1:3] == ["gateway", "v1"]:
        return "wire"
    is_itself = len(parts) == 1 or parts[1] == "__version__"
    return "" if is_itself else parts[1]


def _impure_calls(source: Source) -> Iterator[Fault]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield Fault(source.module, node.lineno, "impure_core", f"calls {name}")
            case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCK_METHODS:
                yield Fault(source.module, node.lineno, "impure_core", f"calls {name}")
            case _:
                pass
