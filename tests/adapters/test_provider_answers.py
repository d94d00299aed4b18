"""Answers that differ from a vendor's textbook: what compatible servers send is read for what it means."""

from typing import Any

import pytest

from palyra.adapters.providers.anthropic_messages import MessagesFormat
from palyra.adapters.providers.delta_joins import Pieces
from palyra.adapters.providers.exchange import BodyDraft, WireFormat
from palyra.adapters.providers.openai_chat import ChatFormat
from palyra.adapters.providers.openai_responses import ResponsesFormat
from palyra.adapters.providers.wire_names import WireNames
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.sse import SseParser
from palyra.ports.provider import CallDelta, Completed, Failed, ReasoningDelta, TextDelta
from tests.support.provider_answers import (
    Told,
    call_item,
    chat,
    messages,
    request,
    responses,
    text_block,
    text_item,
    told,
    tool_block,
)
from tests.support.stand_in_provider import events

FORMATS: dict[str, WireFormat] = {
    "openai-chat": ChatFormat(None),
    "openai-responses": ResponsesFormat(),
    "anthropic-messages": MessagesFormat(None),
}


def read(kind: str, body: bytes) -> Told:
    draft = BodyDraft(request=request(), names=WireNames(["fs.read"]), model_id="m", origin="o")
    return told(FORMATS[kind].reader(draft, "standin").read(SseParser().feed(body)))


def finish_of(answer: Told) -> Finish:
    assert isinstance(answer.last, Completed)
    return answer.last.finish


def calls(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(entries)}


def call(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    body = chat(calls(call("fs__read", '{"a"', id="x"), call("t", "{}", id="y")), calls(call(None, ":1}", id="x")))
    assert read("openai-chat", body).calls == [("fs.read", '{"a":1}'), ("t", "{}")]


def test_fragments_with_neither_index_nor_id_belong_to_the_last_call() -> None:
    body = chat(calls(call("t", '{"a"', id="x")), calls(call(None, ":1}")))
    assert read("openai-chat", body).calls == [("t", '{"a":1}')]


def test_a_second_call_under_a_used_index_is_a_second_call() -> None:
    body = chat(calls(call("t", '{"a":1}', id="x", index=0)), calls(call("t", '{"a":2}', id="y", index=0)))
    assert read("openai-chat", body).calls == [("t", '{"a":1}'), ("t", '{"a":2}')]


def test_a_server_that_makes_up_an_id_for_every_fragment_is_understood() -> None:
    body = chat(calls(call("t", '{"a":', id="x", index=0)), calls(call("t", "1}", id="y", index=0)))
    assert read("openai-chat", body).calls == [("t", '{"a":1}')]


def test_arguments_given_as_an_object_are_taken() -> None:
    assert read("openai-chat", chat(calls(call("t", {"a": 1}, id="x", index=0)))).calls == [("t", '{"a":1}')]


def test_calls_count_more_than_the_word_stop() -> None:
    assert (
        finish_of(read("openai-chat", chat(calls(call("t", "{}", id="x", index=0)), finish="stop")))
        is Finish.TOOL_CALLS
    )
    assert finish_of(read("openai-chat", chat({"content": "x"}, finish="tool_calls"))) is Finish.STOP
    assert finish_of(read("anthropic-messages", messages(tool_block("t", "{}"), stop="end_turn"))) is Finish.TOOL_CALLS


def test_reasoning_is_found_in_all_its_places() -> None:
    body = chat(
        {"reasoning": "a"},
        {"reasoning_content": "b", "content": "B"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "c"}]}, {"type": "text", "text": "C"}]},
    )
    answer = read("openai-chat", body)
    assert (answer.reasoning, answer.text) == ("abc", "BC")


def test_parts_of_a_summary_are_paragraphs() -> None:
    part: dict[str, Any] = {"type": "response.reasoning_summary_part.added", "part": {}}
    said = [{"type": "response.reasoning_summary_text.delta", "delta": text} for text in ("One.", "Two.")]
    item: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": []}
    body = responses({"item": item, "deltas": [part, said[0], part, said[1]]}, text_item("Done."))
    assert read("openai-responses", body).reasoning == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("openai-chat", chat({"refusal": "I "}, {"refusal": "cannot."})),
        (
            "openai-responses",
            responses(
                {
                    "item": {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]},
                    "deltas": [{"type": "response.refusal.delta", "delta": text} for text in ("I ", "cannot.")],
                }
            ),
        ),
        ("anthropic-messages", messages(text_block("I cannot."), stop="refusal")),
    ],
)
def test_a_refusal_is_shown_and_named(kind: str, body: bytes) -> None:
    answer = read(kind, body)
    assert (answer.text, finish_of(answer)) == ("I cannot.", Finish.REFUSAL)


def test_what_comes_only_at_the_end_of_an_item_is_taken_from_there() -> None:
    items = [{"item": entry["item"], "deltas": []} for entry in (text_item("Whole."), call_item("t", '{"a":1}'))]
    answer = read("openai-responses", responses(*items))
    assert (answer.text, answer.calls) == ("Whole.", [("t", '{"a":1}')])


def test_what_comes_only_at_the_end_of_an_answer_is_taken_from_there() -> None:
    output = [text_item("Whole.")["item"], call_item("t", '{"a":1}')["item"]]
    body = events({"type": "response.completed", "response": {"status": "completed", "output": output}})
    answer = read("openai-responses", body)
    assert (answer.text, answer.calls, finish_of(answer)) == ("Whole.", [("t", '{"a":1}')], Finish.TOOL_CALLS)


def test_input_that_stands_in_its_block_is_taken() -> None:
    block = {"start": {"type": "tool_use", "id": "x", "name": "t", "input": {"a": 1}}, "deltas": []}
    (tool, arguments), *rest = read("anthropic-messages", messages(block, stop="tool_use")).calls
    assert (tool, arguments.replace(" ", ""), rest) == ("t", '{"a":1}', [])


def test_tools_that_run_at_the_provider_are_passed_over() -> None:
    server = {"start": {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}}
    deltas = [{"type": "input_json_delta", "partial_json": '{"q":1}'}]
    answer = read("anthropic-messages", messages({**server, "deltas": deltas}, text_block("Found.")))
    assert (answer.text, answer.calls, finish_of(answer)) == ("Found.", [], Finish.STOP)


def test_cached_input_is_part_of_the_input_in_every_format() -> None:
    counts = {"input_tokens": 4, "output_tokens": 5, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 2}
    answer = read("anthropic-messages", messages(text_block("x"), usage=counts))
    assert isinstance(answer.last, Completed)
    assert answer.last.usage == Usage(input_tokens=22, output_tokens=5, cached_tokens=16, cache_write_tokens=2)
    usage = {"prompt_tokens": 22, "completion_tokens": 5, "prompt_cache_hit_tokens": 16}
    answer = read("openai-chat", chat({"content": "x"}, usage=usage))
    assert isinstance(answer.last, Completed)
    assert answer.last.usage == Usage(input_tokens=22, output_tokens=5, cached_tokens=16)


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("openai-chat", chat({"content": "x"}, finish="error"), ModelError.OVERLOADED),
        ("openai-chat", events({"object": "error", "message": "Rate limit", "code": 429}), ModelError.RATE),
        ("openai-chat", events({"error": "plain words"}), ModelError.BAD_REQUEST),
        ("openai-chat", events("[DONE]"), ModelError.PROTOCOL),
        ("openai-responses", responses(status="failed"), ModelError.OVERLOADED),
        (
            "openai-responses",
            responses(status="failed", error={"code": "rate_limit_exceeded", "message": "Slower."}),
            ModelError.RATE,
        ),
        ("openai-responses", events({"type": "error", "code": "server_error", "message": "x"}), ModelError.OVERLOADED),
        ("anthropic-messages", events({"type": "error", "error": {"type": "rate_limit_error"}}), ModelError.RATE),
    ],
)
def test_an_error_inside_a_stream_has_its_class(kind: str, body: bytes, code: ModelError) -> None:
    last = read(kind, body).last
    assert isinstance(last, Failed)
    assert last.code is code


@pytest.mark.parametrize("kind", ["openai-responses", "anthropic-messages"])
def test_events_nobody_here_knows_are_passed_over(kind: str) -> None:
    strange = events(
        {"type": "response.new_thing.delta", "delta": {"a": 1}, "index": "x", "item": 4, "output_index": "y"}
    )
    body = responses(text_item("x")) if kind == "openai-responses" else messages(text_block("x"))
    assert read(kind, strange + body).text == "x"


def test_pieces_of_one_read_leave_together_and_in_order() -> None:
    pieces = Pieces()
    pieces.add_reasoning("a")
    pieces.add_reasoning("b")
    pieces.add_text("c")
    pieces.add_text("d")
    pieces.add_call(0, "t", "")
    pieces.add_call(0, "", "{")
    pieces.add_call(1, "u", "{")
    pieces.add_call(0, "", "}")
    pieces.end(Completed(Finish.STOP))
    pieces.add_text("too late")
    assert pieces.take() == [
        ReasoningDelta("ab"),
        TextDelta("cd"),
        CallDelta(0, "t", "{"),
        CallDelta(1, "u", "{"),
        CallDelta(0, "", "}"),
        Completed(Finish.STOP),
    ]
    assert pieces.take() == []


def counted(kind: str, counts: tuple[Any, Any]) -> bytes:
    names = {"openai-chat": ("prompt_tokens", "completion_tokens")}.get(kind, ("input_tokens", "output_tokens"))
    usage = dict(zip(names, counts, strict=True))
    if kind == "openai-chat":
        return events({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}, {"usage": usage}, "[DONE]")
    if kind == "openai-responses":
        said = {"type": "response.output_text.delta", "delta": "x"}
        return events(said, {"type": "response.completed", "response": {"status": "completed", "usage": usage}})
    start = {"type": "message_start", "message": {"usage": usage}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}}
    return events(
        start, block, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}
    )


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "counts",
    [
        (2**53, 1),
        (2**63, 1),
        (1, 2**63),
        (2**64 - 1, 1),
        (None, None),
        (0, 0),
        (-3, -3),
        (1e308, 1),
        ("12", 1),
        (True, 1),
    ],
)
def test_counts_that_are_missing_or_impossible_are_no_counts(kind: str, counts: tuple[Any, Any]) -> None:
    answer = read(kind, counted(kind, counts))
    assert isinstance(answer.last, Completed)
    assert answer.last.usage is None


@pytest.mark.parametrize("kind", FORMATS)
def test_honest_counts_are_taken(kind: str) -> None:
    answer = read(kind, counted(kind, (12, 3)))
    assert isinstance(answer.last, Completed)
    assert answer.last.usage == Usage(input_tokens=12, output_tokens=3)
