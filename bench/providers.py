"""How fast answers of model providers are read. Run: `python -m bench.providers [--quick]`.

Prints chunks a second on one core: events alone, events to deltas for each wire format, and a whole call over loopback
HTTP from a server in another process. A chunk is one event with one token, in the form and size real providers send.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from palyra.adapters.net.client import HttpClient  # noqa: E402
from palyra.adapters.providers.anthropic_messages import AnthropicMessages, MessagesFormat  # noqa: E402
from palyra.adapters.providers.exchange import BodyDraft, KeySource, ProviderEndpoint, WireFormat  # noqa: E402
from palyra.adapters.providers.openai_chat import ChatFormat, OpenAiChat  # noqa: E402
from palyra.adapters.providers.openai_responses import OpenAiResponses, ResponsesFormat  # noqa: E402
from palyra.adapters.providers.wire_names import WireNames  # noqa: E402
from palyra.core.sse import SseParser  # noqa: E402
from palyra.ports.provider import Completed, ModelRequest, Provider, TextDelta  # noqa: E402

READ_BYTES = 64 * 1024
REQUEST = ModelRequest(model="bench", instructions="Say something.", messages=())
ADAPTERS: dict[str, Callable[[ProviderEndpoint, KeySource, HttpClient], Provider]] = {
    "openai-chat": OpenAiChat,
    "openai-responses": OpenAiResponses,
    "anthropic-messages": AnthropicMessages,
}
FORMATS: dict[str, WireFormat] = {
    "openai-chat": ChatFormat(None),
    "openai-responses": ResponsesFormat(),
    "anthropic-messages": MessagesFormat(None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer chunks and passes")
    arguments = parser.parse_args()
    count, passes = (20_000, 3) if arguments.quick else (200_000, 5)
    print(f"{'chunks a second':38} {'events alone':>14} {'to deltas':>14} {'over HTTP':>14}")
    for kind in FORMATS:
        body = BODIES[kind](count)
        alone = count / _best_s(partial(_parse, body), passes)
        read = count / _best_s(partial(_read, kind, body), passes)
        whole = count / _over_http_s(kind, body, passes)
        print(f"  {kind:36} {alone:14,.0f} {read:14,.0f} {whole:14,.0f}")


def _parse(body: bytes) -> None:
    parser = SseParser()
    for at in range(0, len(body), READ_BYTES):
        parser.feed(body[at : at + READ_BYTES])


def _read(kind: str, body: bytes) -> None:
    parser = SseParser()
    draft = BodyDraft(request=REQUEST, names=WireNames(()), model_id="bench", origin="bench")
    reader = FORMATS[kind].reader(draft, "bench")
    deltas = []
    for at in range(0, len(body), READ_BYTES):
        deltas += reader.read(parser.feed(body[at : at + READ_BYTES]))
    assert isinstance(deltas[-1], Completed), deltas[-1]


def _best_s(act: Callable[[], None], passes: int) -> float:
    best = float("inf")
    for _ in range(passes):
        started = time.process_time()
        act()
        best = min(best, time.process_time() - started)
    return best


def _over_http_s(kind: str, body: bytes, passes: int) -> float:
    """Wall-clock time: the server has the other core."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, body), daemon=True)
    server.start()
    try:
        return asyncio.run(_call(kind, f"http://127.0.0.1:{port}", passes))
    finally:
        server.terminate()
        server.join()
        listener.close()


async def _call(kind: str, base_url: str, passes: int) -> float:
    client = HttpClient(body_bytes_max=1 << 30)
    provider = ADAPTERS[kind](ProviderEndpoint(name="bench", base_url=base_url), lambda: None, client)
    best = float("inf")
    for _ in range(passes):
        started = time.perf_counter()
        deltas = [delta async for delta in provider.stream(REQUEST)]
        best = min(best, time.perf_counter() - started)
        assert isinstance(deltas[-1], Completed), deltas[-1]
        assert any(isinstance(delta, TextDelta) for delta in deltas)
    await client.close()
    return best


def _serve(listener: socket.socket, body: bytes) -> None:
    """One answer a connection, whatever is asked."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
    answer = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(READ_BYTES)
            connection.sendall(answer)


def _chat_body(count: int) -> bytes:
    chunk = {
        "id": "chatcmpl-CGl3Rk2ebQd5Vq1mBvTmXn9y0aAbC",
        "object": "chat.completion.chunk",
        "created": 1757512345,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_cbf1785567",
        "choices": [{"index": 0, "delta": {"content": " token"}, "logprobs": None, "finish_reason": None}],
        "usage": None,
    }
    last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return _event(chunk) * count + _event(last) + b"data: [DONE]\n\n"


def _responses_body(count: int) -> bytes:
    delta = {
        "type": "response.output_text.delta",
        "item_id": "msg_68c1a2b3c4d5e6f7081920a1b2c3d4e5f60718293a4b5c6d",
        "output_index": 0,
        "content_index": 0,
        "delta": " token",
        "logprobs": [],
        "obfuscation": "a1B2c3D4e5",
        "sequence_number": 42,
    }
    last = {"type": "response.completed", "response": {"status": "completed", "output": []}}
    return _named_event(delta) * count + _named_event(last)


def _messages_body(count: int) -> bytes:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " token"}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": count}}
    ending = _named_event(last) + _named_event({"type": "message_stop"})
    return _named_event(block) + _named_event(delta) * count + ending


def _event(value: dict) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _named_event(value: dict) -> bytes:
    return f"event: {value['type']}\n".encode() + _event(value)


BODIES = {"openai-chat": _chat_body, "openai-responses": _responses_body, "anthropic-messages": _messages_body}


if __name__ == "__main__":
    main()
