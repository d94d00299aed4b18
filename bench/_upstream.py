"""A model to stream from. Owns: a loopback server of chat completions, and the text it says. Not: any load.

The model's name says how it talks: `full-2000` says 2,000 tokens as fast as the socket takes them, `each-2000` writes every
token by itself, `paced-300` says one every 20 ms, the first at once, and `leading-300` does so with the blank before the
word, as the tokens of most models have it. One token is one event and one HTTP chunk in every case.
Usage: python -m bench._upstream; it prints its port and serves until it is ended.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import cast

import uvloop

ROOT = Path(__file__).resolve().parents[1]
STOP_TIMEOUT_S = 10.0
TOKENS_A_SECOND = 50
# Prose that holds nothing like a secret. The first word stands nowhere else: who finds it has the first token.
FIRST_WORD = "Rivers"
WORDS = (
    "run from the hills to the sea and carry stones with them for many years while people on both sides build their houses "
    "plant trees mend boats and talk of the weather as they always did before"
).split()
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
# LiteLLM asks for the list when it starts.
_MODELS = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n{"object":"list","data":[]}'


def tokens_of(model: str) -> list[str]:
    """What the model says, token by token."""
    kind, _, count = model.partition("-")
    words = [FIRST_WORD, *(WORDS[number % len(WORDS)] for number in range(int(count) - 1))]
    if kind == "leading":
        return [words[0], *(f" {word}" for word in words[1:])]
    return [f"{word} " for word in words]


@contextlib.contextmanager
def running() -> Iterator[int]:
    """The port of an upstream while the block runs."""
    process = subprocess.Popen([sys.executable, "-m", "bench._upstream"], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


class Answer:
    """The bytes of one answer, made once and said to everybody who asks for this model."""

    def __init__(self, model: str, has_usage: bool) -> None:
        tokens = tokens_of(model)
        self.first = _HEAD + _event(model, {"role": "assistant", "content": ""}, None)
        self.tokens = [_event(model, {"content": token}, None) for token in tokens]
        self.last = _event(model, {}, "stop") + (_usage(model, len(tokens)) if has_usage else b"")
        self.last += _chunk(b"data: [DONE]\n\n") + _END
        self.whole = b"".join((self.first, *self.tokens, self.last))


class Upstream(asyncio.Protocol):
    """One keep-alive connection. A question that comes while an answer is under way is not expected."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not say that it is one.

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, mark, body = bytes(self._received).partition(b"\r\n\r\n")
        if not mark or len(body) < _length_of(head):
            return
        self._received.clear()
        if head.startswith(b"GET "):
            self._write(_MODELS)
            return
        asked = json.loads(body)
        self._answer(asked["model"], bool((asked.get("stream_options") or {}).get("include_usage")))

    def _answer(self, model: str, has_usage: bool) -> None:
        answer = _answer_of(model, has_usage)
        if model.startswith("full-"):
            self._write(answer.whole)
            return
        self._write(answer.first)
        interval_s = 0.0 if model.startswith("each-") else 1 / TOKENS_A_SECOND
        self._say(answer, 0, self._loop.time(), interval_s)

    def _say(self, answer: Answer, number: int, started_s: float, interval_s: float) -> None:
        if number == len(answer.tokens):
            self._write(answer.last)
            return
        self._write(answer.tokens[number])
        following = partial(self._say, answer, number + 1, started_s, interval_s)
        if self._transport is None:
            return
        if interval_s:
            self._loop.call_at(started_s + (number + 1) * interval_s, following)
        else:
            self._loop.call_soon(following)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


@cache
def _answer_of(model: str, has_usage: bool) -> Answer:
    return Answer(model, has_usage)


def _length_of(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or b"0")


def _event(model: str, delta: dict[str, str], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return _chunk(_data({**_envelope(model), "choices": [choice], "usage": None}))


def _usage(model: str, count: int) -> bytes:
    usage = {"prompt_tokens": 20, "completion_tokens": count, "total_tokens": 20 + count}
    return _chunk(_data({**_envelope(model), "choices": [], "usage": usage}))


def _envelope(model: str) -> dict[str, object]:
    return {
        "id": "chatcmpl-CGl3Rk2ebQd5Vq1mBvTmXn9y0aAbC",
        "object": "chat.completion.chunk",
        "created": 1757512345,
        "model": model,
        "service_tier": "default",
        "system_fingerprint": "fp_cbf1785567",
    }


def _data(value: dict[str, object]) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
