"""Host functions that a plugin may be granted, and the check of a module's imports against its grants.

Invariant: no host function raises. The binding keeps the last error of a host function in one place for all threads, so
one that raised could end another call. A wrong pointer is therefore answered with -1.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palyra.adapters.runtimes.wasm.manifest import HostGrant
from palyra.core.errors import Invalid

if TYPE_CHECKING:
    from wasmtime import Caller, Engine, Linker, Memory, Module

NAMESPACE = "palyra"
PIECE_BYTES_MAX = 64 * 1024  # Limits one host call, so that none takes long enough to delay a cancel.
LOG_BYTES_MAX = 64 * 1024  # Limits one call's log. Anything beyond is dropped.
LOG_LINES_MAX = 200
CALLS_MAX = 20_000  # Limits one call to under a second: while a host function works, the daemon's own Python waits.
OK, REFUSED = 0, -1
SIGNATURES: dict[str, tuple[HostGrant, tuple[str, ...], tuple[str, ...]]] = {
    "log": (HostGrant.LOG, ("i32", "i32"), ("i32",)),
    "now_ms": (HostGrant.CLOCK, (), ("i64",)),
    "random": (HostGrant.RANDOM, ("i32", "i32"), ("i32",)),
}
# The binding numbers host functions of all threads in one list that nothing guards.
_NUMBERING = threading.Lock()


class Host:
    """The host functions of one call."""

    def __init__(self, grants: frozenset[HostGrant], log: Callable[[str], None], stop: Callable[[], None]) -> None:
        self._grants = grants
        self._log_line = log
        self._log_bytes_left = LOG_BYTES_MAX
        self._log_lines_left = LOG_LINES_MAX
        self._calls_left = CALLS_MAX
        self._stop = stop

    def link(self, engine: "Engine") -> "Linker":
        from wasmtime import FuncType, Linker, ValType

        kinds = {"i32": ValType.i32, "i64": ValType.i64}
        bodies: dict[str, Callable[..., Any]] = {"log": self._log, "now_ms": self._now_ms, "random": self._random}
        linker = Linker(engine)
        for name, (grant, params, results) in SIGNATURES.items():
            if grant in self._grants:
                kind = FuncType([kinds[each]() for each in params], [kinds[each]() for each in results])
                with _NUMBERING:
                    linker.define_func(NAMESPACE, name, kind, self._counted(bodies[name]), access_caller=True)
        return linker

    def _counted(self, body: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            self._calls_left -= 1
            if self._calls_left < 0:
                self._stop()
            return body(*arguments)

        return called

    def _log(self, caller: "Caller", start: int, length: int) -> int:
        found = _room(caller, start, length)
        if found is None:
            return REFUSED
        memory, first, size = found
        taken = min(size, self._log_bytes_left)
        if taken and self._log_lines_left:
            self._log_bytes_left -= taken
            self._log_lines_left -= 1
            self._log_line(memory.read(caller, first, first + taken).decode("utf-8", "replace"))
        return OK

    def _now_ms(self, caller: "Caller") -> int:
        return time.time_ns() // 1_000_000

    def _random(self, caller: "Caller", start: int, length: int) -> int:
        found = _room(caller, start, length)
        if found is None:
            return REFUSED
        memory, first, size = found
        if size:
            memory.write(caller, os.urandom(size), first)
        return OK


def close_linked(*parts: Any) -> None:
    """Frees a store and a linker, with the numbers of their host functions."""
    with _NUMBERING:
        for part in parts:
            part.close()


def check_imports(module: "Module", grants: frozenset[HostGrant]) -> None:
    for each in module.imports:
        problem = _import_problem(each, grants)
        if problem is not None:
            raise Invalid(
                "import_missing", f"the module imports {_named(each.module)}.{_named(each.name or '')}, {problem}"
            )


def _import_problem(wanted: Any, grants: frozenset[HostGrant]) -> str | None:
    from wasmtime import FuncType

    if wanted.module.startswith("wasi"):
        return "and there is no WASI here: build for wasm32-unknown-unknown, without files, clocks and arguments"
    if wanted.module != NAMESPACE or wanted.name not in SIGNATURES:
        return f"which does not exist here; there are {', '.join(f'{NAMESPACE}.{name}' for name in SIGNATURES)}"
    grant, params, results = SIGNATURES[wanted.name]
    if grant not in grants:
        return f'which was not granted: add "{grant.value}" to capabilities in plugin.toml and install it again'
    kind = wanted.type
    if not isinstance(kind, FuncType) or kinds_of(kind) != (params, results):
        return f"which is ({', '.join(params)}) -> ({', '.join(results)}) here; declare it so"
    return None


def kinds_of(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(str(each) for each in kind.params), tuple(str(each) for each in kind.results)


def _named(text: str) -> str:
    """Returns a name from a foreign file, short and printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:64])


def _room(caller: "Caller", start: int, length: int) -> "tuple[Memory, int, int] | None":
    """Returns the memory, the start and the end of a range, if the range lies inside."""
    from wasmtime import Memory

    memory = caller.get("memory")
    first, size = start & 0xFFFFFFFF, length & 0xFFFFFFFF
    if not isinstance(memory, Memory) or size > PIECE_BYTES_MAX or first + size > memory.data_len(caller):
        return None
    return memory, first, size
