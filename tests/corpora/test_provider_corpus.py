"""Recorded answers and refusals of real providers: what we read of them is what the vendors' own clients read."""

import gzip
import json
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.providers.anthropic_messages import MessagesFormat
from palyra.adapters.providers.exchange import BodyDraft, WireFormat
from palyra.adapters.providers.failures import read_refusal, refused
from palyra.adapters.providers.openai_chat import ChatFormat
from palyra.adapters.providers.openai_responses import ResponsesFormat
from palyra.adapters.providers.wire_names import WireNames
from palyra.core.events.model import Finish, ModelError
from palyra.core.sse import SseParser
from palyra.ports.provider import Completed, Delta, Failed
from tests.support.provider_answers import Told, request, told

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
STREAMS = CORPORA / "provider_streams.jsonl.gz"
ERRORS = CORPORA / "provider_errors.jsonl.gz"
BYTEWISE_BYTES_MAX = 40_000  # Longer ones are cut at random places only: byte by byte they would take a minute.
FORMATS: dict[str, WireFormat] = {
    "openai-chat": ChatFormat(None),
    "openai-responses": ResponsesFormat(),
    "anthropic-messages": MessagesFormat(None),
}
FINISHES = {
    "stop": Finish.STOP,
    "tool_calls": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "tool_use": Finish.TOOL_CALLS,
    "max_tokens": Finish.LENGTH,
    "refusal": Finish.REFUSAL,
    "incomplete": Finish.LENGTH,
}
STATUS_CODES = {400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 429: "rate"}

needs_streams = pytest.mark.skipif(not STREAMS.is_file(), reason=f"no corpus at {STREAMS}; set PALYRA_CORPORA")
needs_errors = pytest.mark.skipif(not ERRORS.is_file(), reason=f"no corpus at {ERRORS}; set PALYRA_CORPORA")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def read(family: str, pieces: Iterable[bytes]) -> Told:
    names = PlainNames(())
    draft = BodyDraft(request=request(), names=names, model_id="m", origin="corpus")
    parser, reader = SseParser(), FORMATS[family].reader(draft, "corpus")
    deltas: list[Delta] = []
    for piece in pieces:
        deltas += reader.read(parser.feed(piece))
    deltas += reader.read(parser.finish())
    if not isinstance(deltas[-1], Completed | Failed):
        whole = reader.end()
        assert whole is not None
        deltas.append(whole)
    return told(deltas)


class PlainNames(WireNames):
    """The tools of these streams are not ours, so nothing is mapped back."""

    def tool(self, wire: str) -> str:
        return wire


@needs_streams
def test_every_answer_is_read_as_the_vendors_clients_read_it() -> None:
    problems = [f"{row['id']}: {problem}" for row in rows(STREAMS) for problem in differences(row)]
    assert problems == []


def differences(row: dict[str, Any]) -> Iterator[str]:
    expected = row["expected"]
    got = read(row["family"], [row["sse"].encode()])
    if "error" in expected:
        if not isinstance(got.last, Failed):
            yield "an error was not seen"
        return
    if got.text not in (expected["text"], expected.get("delta_text")):
        yield f"text {got.text[:80]!r}"
    if not same_calls(got.calls, [(call["name"], call["arguments"]) for call in expected["tool_calls"]]):
        yield f"calls {got.calls}"
    if isinstance(got.last, Failed):
        # Only a stream that is no answer at all may fail: it has no text, no calls and no finish.
        if expected["finish"] is not None or expected["text"]:
            yield got.last.message
        return
    if expected["finish"] == "completed":
        wanted = Finish.TOOL_CALLS if expected["tool_calls"] else Finish.STOP
    else:
        wanted = FINISHES[expected["finish"]]
    if got.last.finish is not wanted:
        yield f"finish {got.last.finish}, wanted {wanted}"
    if usage_of(got.last) != usage_wanted(expected["usage"]):
        yield f"usage {got.last.usage}, wanted {expected['usage']}"


def same_calls(got: list[tuple[str, str]], wanted: list[tuple[str, Any]]) -> bool:
    """Arguments are compared as sent; the one vendor whose client gives objects, as objects.

    Arguments that do not parse are two calls which a client glued together, because both came under one index: there the
    pieces must add up.
    """
    if wanted and all(isinstance(arguments, str) and not is_json(arguments) for _, arguments in wanted):
        return "".join(arguments for _, arguments in got) == "".join(arguments for _, arguments in wanted)
    parsed = [
        (tool, text if isinstance(sent, str) else json.loads(text or "{}"))
        for (tool, text), (_, sent) in zip(got, wanted, strict=False)
    ]
    return len(got) == len(wanted) and parsed == wanted


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def usage_of(last: Completed) -> tuple[int, ...] | None:
    usage = last.usage
    if usage is None:
        return None
    return usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens


def usage_wanted(usage: dict[str, Any] | None) -> tuple[int, ...] | None:
    if usage is None:
        return None
    if "prompt_tokens" in usage:
        read, wrote = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
        counts = (usage["prompt_tokens"], usage["completion_tokens"])
    elif "total_tokens" in usage:
        read, wrote = usage["input_tokens_details"], usage["output_tokens_details"]
        counts = (usage["input_tokens"], usage["output_tokens"])
    else:
        # Here cached input is counted beside the rest.
        cached = usage.get("cache_read_input_tokens") or 0
        whole = usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0)
        return whole, usage["output_tokens"], cached, 0
    return *counts, read.get("cached_tokens") or 0, wrote.get("reasoning_tokens") or 0


@needs_streams
def test_cuts_change_nothing() -> None:
    draw = random.Random(7)
    for row in rows(STREAMS):
        body = row["sse"].encode()
        whole = read(row["family"], [body])
        assert read(row["family"], cut(body, draw)) == whole, row["id"]
        assert read(row["family"], cut(body.replace(b"\n", b"\r\n"), draw)) == whole, row["id"]
        if len(body) <= BYTEWISE_BYTES_MAX:
            assert read(row["family"], (body[at : at + 1] for at in range(len(body)))) == whole, row["id"]


def cut(body: bytes, draw: random.Random) -> list[bytes]:
    places = sorted(draw.randrange(len(body)) for _ in range(min(200, len(body))))
    return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


@needs_streams
def test_an_answer_that_breaks_off_is_never_complete() -> None:
    """Cut anywhere before its last events, a stream comes to no end of its own."""
    draw = random.Random(11)
    for row in rows(STREAMS):
        if row["expected"].get("finish") is None:
            continue
        body = row["sse"].encode()
        part = body[: draw.randrange(len(body) // 2)]
        if b'"finish_reason":"' in part:
            continue  # Two answers, one behind the other, in one recording.
        parser = SseParser()
        draft = BodyDraft(request=request(), names=PlainNames(()), model_id="m", origin="corpus")
        reader = FORMATS[row["family"]].reader(draft, "corpus")
        deltas = reader.read(parser.feed(part))
        assert not any(isinstance(delta, Completed) for delta in deltas), row["id"]
        assert reader.end() is None, row["id"]


@needs_errors
def test_every_recorded_refusal_has_its_class() -> None:
    for row in rows(ERRORS):
        failed = refused("corpus", read_refusal(row["body"].encode()), row["status"])
        assert failed.code is ModelError(STATUS_CODES[row["status"]]), row["body"]
        assert failed.message.startswith("corpus ")
