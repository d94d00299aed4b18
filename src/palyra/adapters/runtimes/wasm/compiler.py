"""Compiles a module: the one engine configuration, and a program that compiles within its own limits.

Does not own: running modules (module_call).
Run as a program, it reads the module from standard input and writes its machine code to standard output. A module of
200 KB can make the compiler take a gigabyte or minutes. So compiling happens in a process, where memory and time end
with it.
Exit codes: 0 means compiled. 3 means that the module is not valid; the reason is on standard output. Any other code
means that it took too much.
This file imports nothing of ours, so that the program starts quickly.
"""

import resource
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wasmtime import Engine

WASM_BYTES_MAX = 16 * 1024 * 1024
COMPILED_BYTES_MAX = 64 * 1024 * 1024  # The daemon holds the result in memory for as long as the plugin is in use.
# Limits address space. Python and the compiler themselves need about 300 MiB.
COMPILE_MEMORY_BYTES_MAX = 1024 * 1024 * 1024
COMPILE_CPU_S_MAX = 20
STACK_BYTES_MAX = 512 * 1024  # A thread has 8 MiB. Recursion ends at this limit as a trap.
INVALID_EXIT_CODE = 3
REASON_LENGTH_MAX = 500


def make_engine() -> "Engine":
    """Makes an engine that is deterministic if nothing is granted.

    It has no threads, one pattern for NaN, and relaxed SIMD as on every machine. The code checks for traps, instead of
    catching them as signals, so that the daemon's own signals stay its own.
    """
    from wasmtime import Config, Engine

    config = Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.max_wasm_stack = STACK_BYTES_MAX
    config.wasm_threads = False
    config.shared_memory = False
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    config.wasm_stack_switching = False
    config.wasm_gc = False  # What it allocates would not be part of the limited memory.
    config.wasm_function_references = False
    config.wasm_exceptions = False
    config.wasm_relaxed_simd_deterministic = True
    config.cranelift_nan_canonicalization = True
    config.parallel_compilation = False
    config.signals_based_traps = False
    config.memory_reservation = 0
    config.memory_guard_size = 0
    return Engine(config)


def main() -> int:
    _limit()
    from wasmtime import Module, WasmtimeError

    wasm = sys.stdin.buffer.read(WASM_BYTES_MAX + 1)
    if len(wasm) > WASM_BYTES_MAX:
        return _refuse(f"it is larger than {WASM_BYTES_MAX} bytes")
    if not wasm.startswith(b"\0asm"):
        return _refuse("it does not begin as a WebAssembly module does")
    try:
        compiled = bytes(Module(make_engine(), wasm).serialize())
    except WasmtimeError as cause:
        return _refuse(" ".join(str(cause).split()))
    if len(compiled) > COMPILED_BYTES_MAX:
        return _refuse(f"its machine code is larger than {COMPILED_BYTES_MAX} bytes")
    sys.stdout.buffer.write(compiled)
    sys.stdout.buffer.flush()
    return 0


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (COMPILE_MEMORY_BYTES_MAX, COMPILE_MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (COMPILE_CPU_S_MAX, COMPILE_CPU_S_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _refuse(reason: str) -> int:
    sys.stdout.buffer.write(reason[:REASON_LENGTH_MAX].encode("utf-8", "replace"))
    return INVALID_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
