"""The parts of the OpenAI-compatible API by themselves: whatever is sent is read or refused, and text is told once."""

import asyncio
import base64
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.errors import Invalid
from palyra.core.events.run import GivenRole, RunWaiting
from palyra.core.events.tool import ToolProposed
from palyra.core.ids import RunId, StreamId, make_call_id
from palyra.engine.api.requests import GivenMessage, RunError
from palyra.engine.hub import Frame, Frames, LiveFrame
from palyra.gateway.http.responses import status_of
from palyra.gateway.openai.chat_messages import ChatMessage, ContentPart, read_conversation
from palyra.gateway.openai.conversation import (
    PIECES_MAX,
    ask_alone,
    ask_in_session,
    read_data_url,
    returned_in,
    wire_call_id,
)
from palyra.gateway.openai.errors import failure_of
from palyra.gateway.openai.exchange import name_session
from palyra.gateway.openai.response_items import InputItem, InputPart, read_input
from palyra.gateway.openai.segment import TEXT, CallOut, SegmentFrames, Waits
from tests.support.examples import examples

RUN = RunId("01JZ0000000000000000RUN001")
OTHER = RunId("01JZ0000000000000000RUN002")
EXAMPLES = examples(60)

texts = st.text(max_size=20)
kinds = st.sampled_from(["text", "image_url", "file", "input_text", "output_text", "input_image", "refusal", "audio"])
parts = st.fixed_dictionaries(
    {"type": kinds},
    optional={
        "text": texts,
        "refusal": texts,
        "image_url": st.fixed_dictionaries({"url": texts}),
        "file": st.fixed_dictionaries({}, optional={"file_data": texts, "filename": texts}),
    },
)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", ""])
ids = st.sampled_from([wire_call_id(RUN, 1), wire_call_id(RUN, 2), wire_call_id(OTHER, 1), "call_x", ""])
messages = st.lists(
    st.fixed_dictionaries(
        {"role": roles},
        optional={"content": st.none() | texts | st.lists(parts, max_size=3), "tool_call_id": ids},
    ),
    max_size=6,
)
items = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "other"])},
        optional={"role": roles, "content": texts, "call_id": ids, "name": texts, "arguments": texts, "output": texts},
    ),
    max_size=6,
)


@settings(max_examples=EXAMPLES)
@given(messages)
def test_messages_of_any_kind_are_read_or_refused(given_messages: list[dict[str, object]]) -> None:
    try:
        read = read_conversation(msgspec.convert(given_messages, tuple[ChatMessage, ...]))
    except Invalid:
        return
    _split(read.messages)


@settings(max_examples=EXAMPLES)
@given(items)
def test_items_of_any_kind_are_read_or_refused(given_items: list[dict[str, object]]) -> None:
    try:
        read = read_input(msgspec.convert(given_items, tuple[InputItem, ...]), None)
    except Invalid:
        return
    _split(read.messages)


def _split(read: Sequence[GivenMessage]) -> None:
    returned = returned_in(read)
    if returned is not None:
        assert {result.call_id for result in returned.results} <= {make_call_id(returned.run_id, n) for n in (1, 2)}
    for ask in (ask_alone, ask_in_session):
        try:
            assert ask(read).text is not None
        except Invalid as refused:
            assert refused.code == "messages_invalid"


def test_results_of_two_runs_or_of_others_belong_to_no_run() -> None:
    def results(*call_ids: str) -> list[GivenMessage]:
        return [GivenMessage(role=GivenRole.TOOL, text="x", call_id=call_id) for call_id in call_ids]

    assert returned_in(results(wire_call_id(RUN, 1), wire_call_id(OTHER, 1))) is None
    assert returned_in(results(wire_call_id(RUN, 1), "call_x")) is None
    found = returned_in(results(wire_call_id(RUN, 1), wire_call_id(RUN, 12)))
    assert found is not None
    assert [result.call_id for result in found.results] == [make_call_id(RUN, 1), make_call_id(RUN, 12)]


@given(st.text(max_size=40))
def test_an_address_is_never_fetched(url: str) -> None:
    with pytest.raises(Invalid):
        read_data_url(f"http:{url}", "x")
    encoded = base64.b64encode(url.encode()).decode()
    assert read_data_url(f"data:text/plain;charset=utf-8;base64,{encoded}", "x").body == url.encode()


def test_the_header_wins_over_the_metadata_and_the_metadata_over_the_user() -> None:
    named = name_session("k", {"session_key": "m"}, "u")
    assert (named.key, name_session(None, {"session_key": "m"}, "u").key) == ("k", "m")
    assert name_session(None, {"other": "m"}, "u").key == "v1:u"
    assert not name_session(None, None, None).is_named
    assert name_session("01ARZ3NDEKTSV4RRFFQ69G5FAV", None, None).session_id is not None
    with pytest.raises(Invalid):
        name_session(None, None, "u" * 300)


def test_no_failure_of_a_run_asks_for_a_retry() -> None:
    for reason, status in (("budget", 429), ("context_exhausted", 400), ("provider_error", 502), ("no_progress", 503)):
        error = failure_of(RunError(code=reason, message=""))
        assert (status_of(error), error.is_retryable) == (status, False)


class Given(Frames):
    """Frames that were prepared, a few at a time."""

    def __init__(self, takes: list[list[Frame]]) -> None:
        super().__init__()
        self._takes = takes

    async def take(self) -> Sequence[Frame]:
        if not self._takes:
            self.is_over = True
            return ()
        return self._takes.pop(0)

    def wake(self) -> None: ...

    def close(self) -> None: ...


async def _no_calls(waiting: RunWaiting, proposed: dict[str, ToolProposed]) -> tuple[CallOut, ...]:
    return ()


async def _no_notice(waiting: RunWaiting) -> str | None:
    return None


@settings(max_examples=EXAMPLES)
@given(st.text(min_size=1, max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12))
def test_text_is_told_once_however_its_frames_overlap(text: str, cuts: list[tuple[int, int]]) -> None:
    """A follower that fell behind gets the text so far again, from offset 0."""
    known, takes = 0, list[list[Frame]]()
    for start, length in cuts:
        offset = min(start, known)
        known = max(known, min(len(text), offset + length))
        data: dict[str, object] = {"turn": 1, "offset": offset, "text": text[offset : offset + length]}
        takes.append([LiveFrame(StreamId("s"), RUN, TEXT, data)] * 2)
    frames = SegmentFrames(RUN, Given(takes), Waits(calls=_no_calls, notice=_no_notice))

    async def told() -> str:
        pieces = [frame async for frame in frames if isinstance(frame, LiveFrame) and frame.type == TEXT]
        return "".join(str(piece.data["text"]) for piece in pieces)

    assert asyncio.run(told()) == text[:known]


def test_more_pieces_than_are_read_in_a_moment_are_refused() -> None:
    """A body of 24 MiB has room for half a million calls; joining those took minutes."""
    few, many = PIECES_MAX, PIECES_MAX + 1
    call = InputItem(type="function_call", call_id="a", name="f")
    assert len(read_input((call,) * few, None).messages[0].calls) == few
    part = ContentPart(type="text", text="")
    text = InputPart(type="text", text="")
    with pytest.raises(Invalid, match="messages_too_many"):
        read_input((call,) * many, None)
    with pytest.raises(Invalid, match="messages_too_many"):
        read_input((InputItem(role="user", content=(text,) * many),), None)
    with pytest.raises(Invalid, match="messages_too_many"):
        read_conversation((ChatMessage(role="user", content="a"),) * many)
    with pytest.raises(Invalid, match="messages_too_many"):
        read_conversation((ChatMessage(role="user", content=(part,) * many),))
