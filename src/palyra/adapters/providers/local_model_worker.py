"""The local model's own process: loads the weights and answers one request at a time, as lines of JSON.

Does not own: the form of a request (local_model).
It runs as a program: `local_model_worker.py WEIGHTS WINDOW_TOKENS`. It reads `{"ask": [body, ...]}` and
`{"stop": true}`. It answers the first body that the library accepts. Every answer ends with `{"is_over": true}`.
A fault in native code ends this process and not the daemon. The process ends with its input, so it never outlives the
one who started it. The library's output is discarded.
The library insists on a listening socket. It gets one in a private folder, which is removed as soon as the weights are
loaded. So nobody can reach the socket, and no port is ever opened.
"""

import contextlib
import json
import os
import queue
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

NICENESS = 5  # The daemon has priority.
# The threads of a step spin while waiting for each other. Without a spare core a busy machine takes ten times as long.
THREADS_MAX = 4
BATCH_TOKENS = 128  # Of a prompt, between two chances to stop.
MESSAGE_LENGTH_MAX = 1_000

Json = dict[str, Any]
Say = Callable[[Json], None]


class ModelWorker:
    """Answers one question after the other. Another thread calls `ask` and `stop`."""

    def __init__(self, say: Say, load: Callable[[], Any]) -> None:
        self._say = say
        self._load = load
        self._model: Any = None
        self._asked: queue.Queue[list[Json]] = queue.Queue(1)
        self._is_stopped = threading.Event()

    def ask(self, bodies: list[Json]) -> None:
        self._is_stopped.clear()
        self._asked.put(bodies)

    def stop(self) -> None:
        self._is_stopped.set()

    def work(self) -> None:
        while True:
            bodies = self._asked.get()
            try:
                self._answer(bodies)
            except (RuntimeError, ValueError, OSError, ImportError) as cause:
                code = 0 if self._model is None else 400
                self._say({"error": {"code": code, "message": str(cause)[:MESSAGE_LENGTH_MAX]}})
            self._say({"is_over": True})

    def _answer(self, bodies: list[Json]) -> None:
        if self._model is None:
            self._model = self._load()
        for body in bodies[:-1]:
            # The library refuses a schema that it cannot turn into a grammar before it begins.
            with contextlib.suppress(ValueError):
                return self._speak(body)
        return self._speak(bodies[-1])

    def _speak(self, body: Json) -> None:
        self._model.handle_chat_completions({**body, "stream": True, "return_progress": True}, self._hear)

    def _hear(self, chunk: Json) -> bool:
        """Is called for each piece of the answer and of the prompt; True tells the library to stop."""
        error = chunk.get("error")
        if isinstance(error, dict):
            words = {name: str(error.get(name, ""))[:MESSAGE_LENGTH_MAX] for name in ("type", "message")}
            self._say({"error": {"code": int(error.get("code") or 500), **words}})
        if chunk.get("usage"):
            self._say({"usage": chunk["usage"]})
        for choice in chunk.get("choices", ()):
            if choice["delta"].get("content"):
                self._say({"text": choice["delta"]["content"]})
            if choice.get("finish_reason"):
                self._say({"finish": choice["finish_reason"]})
        return self._is_stopped.is_set()


def load(weights: str, window_tokens: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx = window_tokens
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    threads = max(1, min(THREADS_MAX, (os.cpu_count() or 2) // 2))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    params.offline = True
    params.endpoint_slots = False
    params.api_keys = [secrets.token_hex(32)]
    # The name has no folder: the path of such a socket may hold hardly more than a hundred characters.
    params.hostnames = ["model.sock"]
    folder = tempfile.mkdtemp(prefix="palyra-local-")
    try:
        os.chdir(folder)
        return xllamacpp.Server(params)
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    weights, window_tokens = sys.argv[1], int(sys.argv[2])
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    output = _take_output()

    def say(line: Json) -> None:
        output.write(json.dumps(line).encode() + b"\n")
        output.flush()

    worker = ModelWorker(say, lambda: load(weights, window_tokens))
    threading.Thread(target=worker.work, daemon=True).start()
    for line in sys.stdin.buffer:
        said = json.loads(line)
        if "ask" in said:
            worker.ask(said["ask"])
        else:
            worker.stop()
    # Skips the library's own shutdown, which would wait for an answer that nobody reads.
    os._exit(0)


def _take_output() -> BinaryIO:
    """Keeps standard output for this program; other writers to it, or to standard error, write to nowhere."""
    own = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return os.fdopen(own, "wb")


if __name__ == "__main__":
    main()
