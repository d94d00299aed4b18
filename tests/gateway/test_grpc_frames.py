"""Live frames as messages: joined where they wait together, cut where they are too long, and never changed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.ids import RunId, StreamId
from palyra.engine.hub import Frame, LiveFrame
from palyra.gateway.grpc.frames import StreamBytes, cut, join
from palyra.gateway.grpc.settings import DELTA_LENGTH_MAX
from palyra.gateway.v1 import runs_pb2

SESSION, RUN = StreamId("01ARZ3NDEKTSV4RRFFQ69G5FAV"), RunId("01ARZ3NDEKTSV4RRFFQ69G5FAW")


def delta(offset: int, text: str, kind: str = "model.delta", turn: int = 1) -> LiveFrame:
    return LiveFrame(SESSION, RUN, kind, {"turn": turn, "offset": offset, "text": text})


def texts(frames: list[Frame]) -> list[tuple[object, object]]:
    return [(frame.data["offset"], frame.data["text"]) for frame in frames if isinstance(frame, LiveFrame)]


def test_text_that_continues_is_one_message() -> None:
    assert texts(list(join([delta(0, "ab"), delta(2, "c"), delta(3, "de")]))) == [(0, "abcde")]


def test_another_turn_kind_or_place_begins_a_message() -> None:
    frames = [delta(0, "a"), delta(5, "b"), delta(6, "c", turn=2), delta(7, "d", "reasoning.delta")]
    assert texts(list(join(frames))) == [(0, "a"), (5, "b"), (6, "c"), (7, "d")]


def test_long_text_is_cut_and_its_offsets_stay_true() -> None:
    long = "x" * (2 * DELTA_LENGTH_MAX + 3)
    pieces = texts(list(cut([delta(7, long)])))
    assert [offset for offset, _ in pieces] == [7, 7 + DELTA_LENGTH_MAX, 7 + 2 * DELTA_LENGTH_MAX]
    assert "".join(str(text) for _, text in pieces) == long


@given(st.lists(st.tuples(st.integers(1, 2), st.text(min_size=1, max_size=5)), max_size=30))
def test_joining_and_cutting_keep_every_character_at_its_offset(said: list[tuple[int, str]]) -> None:
    ends = {1: 0, 2: 0}
    frames: list[Frame] = []
    whole = {1: "", 2: ""}
    for turn, text in said:
        frames.append(delta(ends[turn], text, turn=turn))
        ends[turn] += len(text)
        whole[turn] += text
    for frame in cut(join(frames)):
        assert isinstance(frame, LiveFrame)
        place: Any = frame.data
        assert whole[place["turn"]][place["offset"] :].startswith(place["text"])
    assert sum(len(str(text)) for _, text in texts(list(cut(join(frames))))) == sum(ends.values())


def test_every_kind_of_frame_has_its_message() -> None:
    frames: list[Frame] = [
        delta(0, "a"),
        delta(0, "b", "reasoning.delta"),
        LiveFrame(SESSION, RUN, "tool.delta", {"call_id": "c", "stream": "stdout", "offset": 1, "text": "d"}),
        LiveFrame(SESSION, RUN, "progress", {"phase": "retry", "message": "again"}),
    ]
    sent = [runs_pb2.RunStreamResponse.FromString(raw).frame for raw in StreamBytes().encode(frames)]
    assert [frame.WhichOneof("frame") for frame in sent] == ["model", "reasoning", "tool", "progress"]
    assert (sent[2].tool.stream, sent[2].tool.offset, sent[3].progress.message) == ("stdout", 1, "again")
