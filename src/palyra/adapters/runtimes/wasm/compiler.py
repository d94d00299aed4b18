"""Compiling a module. Owns: the one engine configuration, and the program that compiles within limits of its own.

Run as a program: the module comes on standard input, its machine code goes to standard output. A module of 200 KB can
make the compiler take a gigabyte or minutes, so compiling happens here, where memory and time end with the process.
Exit codes: 0 compiled, 3 the module is not valid (the reason is on standard output), anything else means it was too much.
Not: running anything. This file imports nothing of ours, so that the program starts quickly.
"""

import resource
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wasmtime import Engine

WASM_BYTES_MAX = 16 * 1024 * 1024
COMPILED_BYTES_MAX = 64 * 1024 * 1024  # Held in the daemon's memory for as long as the plugin is in use.
COMPILE_MEMORY_BYTES_MAX = 1024 * 1024 * 1024  # Address space; Python and the compiler themselves need about 300 MiB.
COMPILE_CPU_S_MAX = 20
STACK_BYTES_MAX = 512 * 1024  # Of a thread's 8 MiB: recursion ends here as a trap.
INVALID_EXIT_CODE = 3
REASON_LENGTH_MAX = 500


def make_engine() -> "Engine":
    """Deterministic where nothing is granted: no threads, one pattern for NaN, relaxed SIMD as on every machine.

    Traps are checked for in the code instead of caught as signals, so that the daemon's own signals stay its own.
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
    config.wasm_gc = False  # What it allocates would be no part of the memory that is limited.
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
