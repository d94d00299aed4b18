"""The load of streams. Owns: asking an upstream, or what stands before it, and checking every text. Not: any server.

It runs in a process of its own. Kinds `palyra` and `openai` speak bare HTTP and only keep the bytes while the clock runs, so
that what is measured is the server; `raw` is what a person would write by hand: aiohttp, whose bytes are cut into events and
read as they come. Whichever way, a stream that did not bring the whole text, to the letter, ends the load with an error.
Usage: python -m bench._upstream_load '{"kind": "openai", …}'; it prints one JSON object.
"""

import asyncio
import json
import random
import resource
import sys
import time

import aiohttp
import msgspec
import uvloop

from bench._load import Connection, find_end, find_text
from bench._upstream import FIRST_WORD, tokens_of

TIMEOUT_S = 540.0  # For the whole load: nothing here waits for ever.
PROMPT = "Tell me about the water."


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`spread_s`: the streams begin one after the other over so long a time; 0: all at one instant.

    `seed`: each begins at a random moment of its share of that time, the same moments for every way.
    """

    kind: str  # palyra | openai | raw
    port: int
    model: str
    streams_count: int
    answers_count: int = 1  # One after the other, of each stream.
    spread_s: float = 0.0
    seed: int | None = None
    token: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    tokens_count: int
    wall_s: float
    cpu_s: float
    first_ms: list[float]  # From sending the request to the first token, of every answer.


async def load(order: Order) -> Outcome:
    """Connections are made before the clock starts."""
    first_ms: list[float] = []
    answers: list[bytes] = []
    request = make_request(order)
    connections = [await connect(order) for _ in range(order.streams_count)]
    before_s, started_s = _cpu_s(), time.perf_counter()

    draw = random.Random(order.seed)
    shares = [number + (draw.random() if order.seed is not None else 0.0) for number in range(order.streams_count)]

    async def work(number: int, connection: Connection) -> None:
        await asyncio.sleep(order.spread_s * shares[number] / order.streams_count)
        for _ in range(order.answers_count):
            asked_s = time.perf_counter()
            connection.send(request)
            # Its first letters: a word may come in two frames, and these are in the first.
            first_s = await connection.until(find_text(FIRST_WORD[:3].encode()))
            first_ms.append((first_s - asked_s) * 1000)
            await connection.until(find_end)
            answers.append(connection.received)

    await asyncio.gather(*(work(number, connection) for number, connection in enumerate(connections)))
    wall_s, cpu_s = time.perf_counter() - started_s, _cpu_s() - before_s
    for connection in connections:
        connection.close()
    read = read_palyra if order.kind == "palyra" else read_openai
    tokens_count = sum(count_tokens(order.model, read(answer)) for answer in answers)
    return Outcome(tokens_count=tokens_count, wall_s=wall_s, cpu_s=cpu_s, first_ms=first_ms)


async def connect(order: Order) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", order.port)
    return connection


def make_request(order: Order) -> bytes:
    path, body = "/v1/chat/completions", chat_body(order.model)
    if order.kind == "palyra":
        path, body = "/api/v1/runs", json.dumps({"text": PROMPT, "model": order.model}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{order.port}\r\nauthorization: Bearer {order.token or 'none'}\r\n"
        f"accept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def chat_body(model: str) -> bytes:
    return json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}).encode()


def count_tokens(model: str, text: str) -> int:
    """By characters, and there must be all of them."""
    tokens = tokens_of(model)
    if text != "".join(tokens):
        raise RuntimeError(f"a stream brought {len(text)} characters that are not the whole text: …{text[-200:]!r}")
    return len(tokens)


def read_openai(answer: bytes) -> str:
    texts = []
    for line in body_of(answer).split(b"\n"):
        if line.startswith(b"data: ") and line != b"data: [DONE]":
            choices = json.loads(line[6:]).get("choices") or [{}]
            texts.append((choices[0].get("delta") or {}).get("content") or "")
    return "".join(texts)


def read_palyra(answer: bytes) -> str:
    """The live text; every frame must begin where the last one ended, and the run must be done."""
    text = ""
    events = body_of(answer).split(b"\n\n")
    for event in events:
        if event.startswith(b"event: model.delta\n"):
            data = json.loads(event.partition(b"\ndata: ")[2])["data"]
            if data["offset"] != len(text):
                raise RuntimeError(f"a live frame begins at {data['offset']} and not at {len(text)}")
            text += data["text"]
    if not any(b"event: run.done\n" in event for event in events):
        raise RuntimeError(f"the run is not done: {answer[-2_000:]!r}")
    return text


def body_of(answer: bytes) -> bytes:
    """The body of a chunked answer."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head[:16]:
        raise RuntimeError(f"the request was refused: {answer[:2_000]!r}")
    pieces: list[bytes] = []
    at = 0
    while True:
        line_end = rest.index(b"\r\n", at)
        size = int(rest[at:line_end].partition(b";")[0], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(rest[line_end + 2 : line_end + 2 + size])
        at = line_end + 4 + size


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Said


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_CHUNK = msgspec.json.Decoder(_Chunk)


async def load_raw(order: Order) -> Outcome:
    first_ms: list[float] = []
    texts: list[str] = []
    url = f"http://127.0.0.1:{order.port}/v1/chat/completions"
    body = chat_body(order.model)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=256 * 1024) as session:

        async def work() -> None:
            for _ in range(order.answers_count):
                asked_s = time.perf_counter()
                async with session.post(url, data=body) as response:
                    text, first_s = await read_raw(response.content)
                texts.append(text)
                first_ms.append((first_s - asked_s) * 1000)

        before_s, started_s = _cpu_s(), time.perf_counter()
        await asyncio.gather(*(work() for _ in range(order.streams_count)))
        wall_s, cpu_s = time.perf_counter() - started_s, _cpu_s() - before_s
    tokens_count = sum(count_tokens(order.model, text) for text in texts)
    return Outcome(tokens_count=tokens_count, wall_s=wall_s, cpu_s=cpu_s, first_ms=first_ms)


async def read_raw(content: aiohttp.StreamReader) -> tuple[str, float]:
    texts: list[str] = []
    tail = b""
    first_s = 0.0
    while chunk := await content.readany():
        *events, tail = (tail + chunk).split(b"\n\n")
        for event in events:
            if event != b"data: [DONE]":
                for choice in _CHUNK.decode(event[6:]).choices:
                    texts.append(choice.delta.content or "")
        first_s = first_s or time.perf_counter()
    return "".join(texts), first_s


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    async with asyncio.timeout(TIMEOUT_S):
        outcome = await (load_raw(order) if order.kind == "raw" else load(order))
    sys.stdout.write(msgspec.json.encode(outcome).decode())


if __name__ == "__main__":
    uvloop.run(_main())
