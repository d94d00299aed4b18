"""Keeps compiled modules, and runs the processes that compile them. Does not own: compiling itself (compiler)."""

import asyncio
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from palyra.adapters.runtimes.wasm import compiler
from palyra.core.errors import Invalid, Unavailable

COMPILE_WALL_S_MAX = 45.0  # The limit allows for a busy machine. COMPILE_CPU_S_MAX limits the processor's time.
KEPT_BYTES_MAX = 256 * 1024 * 1024
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG")


class CompiledModules:
    """Compiled modules by the SHA-256 of the module.

    The least recently used ones are dropped first if there are too many bytes.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        # Modules are compiled one at a time: two hostile modules shall not take both processors, and nobody compiles
        # the same twice.
        self._turn = asyncio.Lock()

    async def get(self, sha256: str, read_wasm: Callable[[], bytes]) -> bytes:
        """Returns the machine code.

        Raises what reading does, and Invalid(module_invalid). Cancelling it ends the process.
        """
        if sha256 in self._kept:
            self._kept.move_to_end(sha256)
            return self._kept[sha256]
        async with self._turn:
            if sha256 not in self._kept:
                self._keep(sha256, await compile_module(await asyncio.to_thread(read_wasm)))
            return self._kept[sha256]

    def _keep(self, sha256: str, compiled: bytes) -> None:
        self._kept[sha256] = compiled
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > KEPT_BYTES_MAX:
            self._kept.popitem(last=False)


async def compile_module(wasm: bytes) -> bytes:
    """Compiles a module in a process with its own limits. The result is machine code for `compiler.make_engine`."""
    if len(wasm) > compiler.WASM_BYTES_MAX:
        raise Invalid("module_invalid", f"the module is larger than {compiler.WASM_BYTES_MAX} bytes; build it smaller")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", compiler.__file__),
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
        env={"RUST_BACKTRACE": "0", **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}},
    )
    try:
        async with asyncio.timeout(COMPILE_WALL_S_MAX):
            answer, _ = await process.communicate(wasm)
    except TimeoutError as cause:
        message = f"compiling the module took longer than {COMPILE_WALL_S_MAX:g} s; simplify its largest functions"
        raise Unavailable("module_invalid", message) from cause
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    return _compiled(process.returncode or 0, answer)


def _compiled(exit_code: int, answer: bytes) -> bytes:
    if exit_code == 0:
        return answer
    if exit_code == compiler.INVALID_EXIT_CODE:
        reason = answer.decode("utf-8", "replace")
        raise Invalid("module_invalid", f"the file is no module that can run here: {reason}; build it again")
    if exit_code in (-signal.SIGXCPU, -signal.SIGKILL):
        message = f"compiling the module took more than {compiler.COMPILE_CPU_S_MAX} s; simplify its largest functions"
        raise Invalid("module_invalid", message)
    mib = compiler.COMPILE_MEMORY_BYTES_MAX // 1024 // 1024
    message = f"the compiler gave up on the module, most likely because it needs more than {mib} MiB; simplify it"
    raise Invalid("module_invalid", message)
