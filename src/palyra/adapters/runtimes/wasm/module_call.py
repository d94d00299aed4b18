"""One call of a module: a fresh instance, its limits, its arguments and its answer.

Does not own: threads (runtime).
The ABI: the module exports `memory`, `alloc(len: i32) -> i32` and each function as `(ptr: i32, len: i32) -> i64`.
Arguments are JSON at `ptr`. The upper half of the result is the answer's place and the lower half its length, both
unsigned. If the highest bit is set, the plugin refuses and the text says why.
Invariant: nothing of an instance is left after its call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from palyra.adapters.runtimes.wasm.compiler import STACK_BYTES_MAX, make_engine
from palyra.adapters.runtimes.wasm.host import CALLS_MAX, Host, check_imports, close_linked, kinds_of
from palyra.adapters.runtimes.wasm.manifest import HostGrant, PluginLimits
from palyra.core.errors import Invalid, PalyraError, Unavailable

if TYPE_CHECKING:
    from wasmtime import Instance, Memory, Module, Store, Trap

ANSWER_BYTES_MAX = 1024 * 1024
PAGE_BYTES = 64 * 1024
MIB = 1024 * 1024
TABLE_ELEMENTS_MAX = 100_000
TABLES_MAX = 8
TIMEOUT, CANCELLED, HOST_CALLS = "timeout", "cancelled", "host_calls"
_REFUSAL_BIT = 1 << 63
_ALLOC = (("i32",), ("i32",))
_FUNCTION = (("i32", "i32"), ("i64",))


class PluginProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled module and what it may use. Without a function it is only instantiated and checked."""

    compiled: bytes
    functions: tuple[str, ...]
    function: str | None
    grants: frozenset[HostGrant]
    limits: PluginLimits


class PluginAnswer(msgspec.Struct, frozen=True):
    """A plugin's answer. `fuel` is what it used."""

    text: bytes
    is_refusal: bool
    fuel: int


class ModuleCall:
    """`run` blocks, in a thread of its own; `stop` ends it from any other thread."""

    def __init__(self, program: PluginProgram, question: bytes, log: Callable[[str], None]) -> None:
        self._program = program
        self._question = question
        self._log = log
        self._stopped: str | None = None
        # Each call has its own engine, whose epoch stops this call and no other.
        self._engine = make_engine()

    def stop(self, reason: str) -> None:
        self._stopped = self._stopped or reason
        self._engine.increment_epoch()

    def run(self) -> PluginAnswer:
        """Runs the call. Raises Invalid or Unavailable with one of the stable codes."""
        from wasmtime import Module, Store

        module = Module.deserialize(self._engine, self._program.compiled)
        check_imports(module, self._program.grants)
        check_exports(module, self._program)
        host = Host(self._program.grants, self._log, lambda: self.stop(HOST_CALLS))
        store, linker = Store(self._engine), host.link(self._engine)
        try:
            self._limit(store)
            with self._explained(store, None):
                instance = linker.instantiate(store, module)
            with self._explained(store, instance):
                return self._answer(store, instance)
        finally:
            close_linked(store, linker)

    def _limit(self, store: "Store") -> None:
        limits = self._program.limits
        store.set_limits(limits.memory_mib * MIB, TABLE_ELEMENTS_MAX, 1, TABLES_MAX, 1)
        store.set_fuel(limits.fuel)
        store.set_epoch_deadline(1)
        # A stop before this line moved the epoch in vain; one after it does not.
        if self._stopped is not None:
            raise self._stopped_error()

    def _answer(self, store: "Store", instance: "Instance") -> PluginAnswer:
        if self._program.function is None:
            return PluginAnswer(b"", False, self._program.limits.fuel - store.get_fuel())
        exports: Any = instance.exports(store)
        memory = exports["memory"]
        start = exports["alloc"](store, len(self._question)) & 0xFFFFFFFF
        if start + len(self._question) > memory.data_len(store):
            raise Invalid("answer_invalid", "alloc gave a place outside the module's memory; mend the plugin")
        if self._question:
            memory.write(store, self._question, start)
        packed = exports[self._program.function](store, start, len(self._question))
        text = _answer(store, memory, packed & ~_REFUSAL_BIT & (2**64 - 1))
        return PluginAnswer(text, packed < 0, self._program.limits.fuel - store.get_fuel())

    @contextmanager
    def _explained(self, store: "Store", instance: "Instance | None") -> Iterator[None]:
        from wasmtime import Trap, WasmtimeError

        try:
            yield
        except Trap as trap:
            raise self._trap_error(trap, store, instance) from trap
        except WasmtimeError as cause:
            # Errors that reach this point are limits that the module's own declarations break.
            text = " ".join(str(cause).split())[:200]
            message = f"the module could not be brought to life within its limits ({text}); ask for less"
            raise Invalid("memory_limit" if "limit" in text else "module_invalid", message) from cause

    def _trap_error(self, trap: "Trap", store: "Store", instance: "Instance | None") -> PalyraError:
        from wasmtime import TrapCode

        limits, code = self._program.limits, trap.trap_code
        if code is TrapCode.OUT_OF_FUEL:
            message = (
                f"it used all its fuel ({limits.fuel}); ask for less at a time, or raise limits.fuel in plugin.toml"
            )
            return Invalid("fuel_exhausted", message)
        if code is TrapCode.INTERRUPT:
            return self._stopped_error()
        if code is TrapCode.STACK_OVERFLOW:
            message = f"it called itself too deeply (more than {STACK_BYTES_MAX // 1024} KiB of stack); mend the plugin"
            return Invalid("stack_overflow", message)
        used = _memory_bytes(store, instance)
        if used + PAGE_BYTES > limits.memory_mib * MIB:
            message = f"it used all its {limits.memory_mib} MiB of memory; ask for less, or raise limits.memory_mib"
            return Invalid("memory_limit", message)
        word = code.name.lower() if code is not None else "unknown"
        message = (
            f"it ended itself ({word}) with {used // 1024} KiB of at most {limits.memory_mib} MiB; mend the plugin"
        )
        return Invalid("trap", message)

    def _stopped_error(self) -> PalyraError:
        if self._stopped == CANCELLED:
            return Unavailable("cancelled", "the call was cancelled")
        if self._stopped == HOST_CALLS:
            return Invalid("fuel_exhausted", f"it called host functions more than {CALLS_MAX} times; mend the plugin")
        limit_s = self._program.limits.timeout_s
        return Unavailable(
            "timeout", f"it did not finish within {limit_s:g} s; ask for less, or raise limits.timeout_s"
        )


def check_exports(module: "Module", program: PluginProgram) -> None:
    from wasmtime import FuncType, MemoryType

    found = {each.name: each.type for each in module.exports}
    memory = found.get("memory")
    if not isinstance(memory, MemoryType):
        raise Invalid("module_invalid", "the module does not export its memory as `memory`; mend the plugin")
    wanted_bytes = memory.limits.min * PAGE_BYTES
    if wanted_bytes > program.limits.memory_mib * MIB:
        message = f"the module begins with {wanted_bytes // MIB} MiB of memory, more than limits.memory_mib; raise that"
        raise Invalid("memory_limit", message)
    for name, wanted in {"alloc": _ALLOC, **dict.fromkeys(program.functions, _FUNCTION)}.items():
        kind = found.get(name)
        if not isinstance(kind, FuncType) or kinds_of(kind) != wanted:
            shape = f"({', '.join(wanted[0])}) -> {wanted[1][0]}"
            raise Invalid("module_invalid", f"the module does not export the function {name} {shape}; mend the plugin")


def _answer(store: "Store", memory: "Memory", packed: int) -> bytes:
    start, length = packed >> 32, packed & 0xFFFFFFFF
    if length > ANSWER_BYTES_MAX:
        message = f"its answer has {length} bytes, at most {ANSWER_BYTES_MAX}; ask for less at a time"
        raise Invalid("answer_invalid", message)
    if start + length > memory.data_len(store):
        raise Invalid("answer_invalid", "its answer lies outside the module's memory; mend the plugin")
    return bytes(memory.read(store, start, start + length)) if length else b""


def _memory_bytes(store: "Store", instance: "Instance | None") -> int:
    exports: Any = instance.exports(store) if instance is not None else {}
    return int(exports["memory"].data_len(store)) if instance is not None else 0
