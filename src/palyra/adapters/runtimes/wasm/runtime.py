"""The WASM runtime: runs calls in threads so that the event loop never waits, and stops them.

Does not own: what a call does (module_call).
A daemon has one runtime. It holds the compiled modules, the threads and the deadlines.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from palyra.adapters.runtimes.wasm.compiled_modules import CompiledModules
from palyra.adapters.runtimes.wasm.deadlines import Deadlines
from palyra.adapters.runtimes.wasm.manifest import PluginManifest
from palyra.adapters.runtimes.wasm.module_call import CANCELLED, TIMEOUT, ModuleCall, PluginAnswer, PluginProgram
from palyra.core.errors import PalyraError, Unavailable
from palyra.ports.services import ServiceHealth, ServiceState

CALLS_AT_ONCE_MAX = 4  # A run has at most so many tools at once. Further calls wait their turn.
# A stopped module ends at its next loop or call, within microseconds. This allows for a busy machine.
STOP_WAIT_S = 0.05
STUCK_S = 10.0  # A call that runs so long after its deadline does not end any more.


class PluginCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a plugin. `function` is None to try whether the module can be instantiated at all."""

    manifest: PluginManifest
    sha256: str
    function: str | None
    question: bytes


class WasmRuntime:
    def __init__(self) -> None:
        self._modules = CompiledModules()
        self._deadlines = Deadlines()
        self._threads: ThreadPoolExecutor | None = None
        self._due_at_s: dict[ModuleCall, float] = {}  # Calls that run in a thread; threads add and remove them.

    async def call(self, asked: PluginCall, read_wasm: Callable[[], bytes], log: Callable[[str], None]) -> PluginAnswer:
        """Runs a call. Raises PalyraError with a stable code. `log` is called on the event loop."""
        loop = asyncio.get_running_loop()
        program = PluginProgram(
            compiled=await self._modules.get(asked.sha256, read_wasm),
            functions=tuple(function.name for function in asked.manifest.function),
            function=asked.function,
            grants=asked.manifest.capabilities,
            limits=asked.manifest.limits,
        )
        call = ModuleCall(program, asked.question, lambda text: _send(loop, log, text))
        future = loop.run_in_executor(self._open_threads(), self._run, call, asked.manifest.limits.timeout_s)
        try:
            answer = await asyncio.shield(future)
        except asyncio.CancelledError as cause:
            if future.cancelled() and not _is_cancelled():
                raise Unavailable("plugins_restarted", "the plugins were restarted before the call began") from cause
            call.stop(CANCELLED)
            await asyncio.wait({future}, timeout=STOP_WAIT_S)
            raise
        if isinstance(answer, PalyraError):
            raise answer
        return answer

    def close(self) -> None:
        """Ends the runtime without waiting: whoever made a call cancels it. The next call has new threads."""
        threads, self._threads = self._threads, None
        self._due_at_s = {}
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def health(self) -> ServiceHealth:
        """Fails once every thread is taken by a call that cannot be stopped, because further calls would wait."""
        due_at_s = list(self._due_at_s.values())
        if not due_at_s:
            return ServiceHealth(state=ServiceState.IDLE)
        stuck_count = sum(due_s + STUCK_S < time.monotonic() for due_s in due_at_s)
        if stuck_count < CALLS_AT_ONCE_MAX:
            return ServiceHealth(state=ServiceState.OK)
        return ServiceHealth(state=ServiceState.FAILED, reason=f"{stuck_count} calls did not end after their deadline")

    def _open_threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(CALLS_AT_ONCE_MAX, thread_name_prefix="wasm")
        return self._threads

    def _run(self, call: ModuleCall, timeout_s: float) -> PluginAnswer | PalyraError:
        """Runs the call. An error is returned and not raised, because nobody may be waiting any more."""
        running = self._due_at_s
        running[call] = time.monotonic() + timeout_s
        try:
            with self._deadlines.watch(timeout_s, lambda: call.stop(TIMEOUT)):
                return call.run()
        except PalyraError as refused:
            return refused
        finally:
            running.pop(call, None)


def _is_cancelled() -> bool:
    """Tells whether the caller is cancelled; otherwise only the call was, by a restart."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _send(loop: asyncio.AbstractEventLoop, log: Callable[[str], None], text: str) -> None:
    with suppress(RuntimeError):  # The loop is closed, so nobody waits any more.
        loop.call_soon_threadsafe(log, text)
