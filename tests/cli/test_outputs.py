"""Output is visible: the end of it where a call failed, and in `palyra runs show`."""

import pytest

from palyra.cli.output import print_styled
from palyra.cli.sse import SseFrame
from palyra.cli.terminal.context_bar import context_lines
from palyra.cli.terminal.live_output import LINES_MAX
from palyra.cli.terminal.style import Style
from palyra.cli.terminal.timeline import timeline
from palyra.cli.terminal.transcript import FAILED_LINES_MAX, Transcript
from palyra.core.events.base import JsonObject

PRINTED = "\n".join(f"line {number}" for number in range(1, 41)) + "\nE  assert 1 == \x1b[31m2"


def finished(outcome: str, error: JsonObject | None) -> JsonObject:
    data: JsonObject = {"call_id": "c1", "effect_id": "e", "outcome": outcome, "error": error, "output": PRINTED}
    return {"type": "tool.finished", "seq": 9, "at_ms": 1_750_000_000_000, "data": data}


class Lines:
    def __init__(self) -> None:
        self.told: list[str] = []

    def text(self, text: str) -> None:
        self.told.append(text)

    def end_line(self) -> None:
        """Ends nothing."""

    def line(self, line: str) -> None:
        self.told.append(line)


def test_the_end_of_what_a_failed_call_printed_is_shown() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    failed = finished("failed", {"code": "exit_status", "message": "it ended with 1"})
    transcript.show(SseFrame(9, "tool.finished", failed))
    told = "\n".join(sink.told)
    assert "E assert 1 == " in told
    assert "\x1b[31m" not in told
    assert f"… {41 - FAILED_LINES_MAX} lines before" in told
    assert "line 1\n" not in told


def drafted(changes: list[JsonObject], left_out: list[JsonObject], output: str = "") -> SseFrame:
    data: JsonObject = {"call_id": "c1", "exit_status": 0, "digest": "d", "changes_count": len(changes)}
    data |= {"changes": changes, "left_out": left_out, "output": output}
    return SseFrame(7, "tool.drafted", {"type": "tool.drafted", "seq": 7, "at_ms": 1_750_000_000_000, "data": data})


def test_a_person_is_told_what_a_command_changed_and_what_was_not_applied() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    changes: list[JsonObject] = [{"kind": "deleted", "path": "old"}, {"kind": "created", "path": "\x1b[2Jnew"}]
    changes += [{"kind": "created", "path": path} for path in (".envrc", ".idea/", ".idea/run.xml")]
    transcript.show(drafted(changes, [{"path": "pw", "reason": "it leads out of the workspace"}]))
    applying: JsonObject = {"type": "draft.applying", "data": {"call_id": "c1", "without": [".envrc", ".idea/run.xml"]}}
    transcript.show(SseFrame(8, "draft.applying", applying))
    ended = finished("ok", None)
    ended["data"] = {"call_id": "c1", "outcome": "ok", "output": "[applied draft d]\ncreated fake", "changes_count": 2}
    transcript.show(SseFrame(9, "tool.finished", ended))
    first, *told = sink.told
    assert first.startswith("✓")
    assert told[0] == "    deleted old"
    assert told[1].startswith("    created ")
    assert "\x1b" not in told[1]
    assert told[2:] == [
        "    not applied: pw (it leads out of the workspace)",
        "    not applied: .envrc (you left it out)",
        "    not applied: .idea/run.xml (you left it out)",
    ]


def test_a_folder_that_was_left_out_with_its_only_file_is_not_told_as_created() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    made: list[JsonObject] = [{"kind": "created", "path": path} for path in (".vscode/", ".vscode/tasks.json", "a")]
    transcript.show(drafted(made, []))
    applying: JsonObject = {"type": "draft.applying", "data": {"call_id": "c1", "without": [".vscode/tasks.json"]}}
    transcript.show(SseFrame(8, "draft.applying", applying))
    ended = finished("ok", None)
    ended["data"] = {"call_id": "c1", "outcome": "ok", "output": "", "changes_count": 1}
    transcript.show(SseFrame(9, "tool.finished", ended))
    assert sink.told[1:] == ["    created a", "    not applied: .vscode/tasks.json (you left it out)"]


def frame(name: str, at_ms: int, data: JsonObject) -> SseFrame:
    return SseFrame(1, name, {"type": name, "seq": 1, "at_ms": at_ms, "data": data})


def test_the_time_of_a_call_leaves_out_the_wait_for_an_answer() -> None:
    ended: JsonObject = {"call_id": "c1", "outcome": "ok", "attestation": {"started_at_ms": 0, "finished_at_ms": 9_050}}
    frames = [
        frame("tool.started", 0, {"call_id": "c1"}),
        frame("tool.drafted", 40, {"call_id": "c1", "exit_status": 0, "changes_count": 0, "changes": []}),
        frame("draft.applying", 9_040, {"call_id": "c1"}),
        frame("tool.finished", 9_050, ended),
    ]
    sink = Lines()
    transcript = Transcript(sink, Style())
    for each in frames:
        transcript.show(each)
    assert sink.told[-1].endswith("50 ms")
    assert "ok in 50 ms" in timeline([each.event for each in frames], Style())[-1]


def test_a_failed_command_tells_why_and_then_what_it_changed() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    transcript.show(drafted([{"kind": "created", "path": f"m{each}"} for each in range(30)], [], "no such host"))
    ended = finished("failed", {"code": "exit_status", "message": "exit status 3"})
    ended["data"] = {"call_id": "c1", "outcome": "failed", "output": "no such host\n[applied draft d]\ncreated m0"}
    ended["data"]["changes_count"] = 30  # type: ignore[index]
    transcript.show(SseFrame(9, "tool.finished", ended))
    assert sink.told[1:3] == ["    no such host", "    created m0"]
    assert sink.told[-1] == "    … 24 more changes; palyra runs diff shows them"


def test_changes_too_many_for_the_event_are_counted() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    transcript.show(drafted([], []))
    ended = finished("ok", None)
    ended["data"] = {"call_id": "c1", "outcome": "ok", "output": "", "changes_count": 5000}
    transcript.show(SseFrame(9, "tool.finished", ended))
    assert sink.told[1:] == ["    … 5000 changes; palyra runs diff shows them"]


def test_everything_that_was_not_applied_is_counted() -> None:
    """Attributes of a thousand files, for example: the event names the first of them only."""
    sink = Lines()
    transcript = Transcript(sink, Style())
    frame = drafted([{"kind": "created", "path": "a"}], [{"path": f"f{each}", "reason": "r"} for each in range(32)])
    frame.event["data"]["left_out_count"] = 1000  # type: ignore[index]
    transcript.show(frame)
    ended = finished("ok", None)
    ended["data"] = {"call_id": "c1", "outcome": "ok", "output": "", "changes_count": 1}
    transcript.show(SseFrame(9, "tool.finished", ended))
    assert sink.told[-1] == "    … 994 more not applied"


def test_events_of_a_draft_are_told_in_words() -> None:
    judged: JsonObject = {"call_id": "c1", "verdict": "ask", "rule": "run_outside", "reason": "It asks."}
    events: list[JsonObject] = [
        drafted([{"kind": "created", "path": "a.txt"}, {"kind": "mode", "path": "b"}], []).event,
        {"type": "draft.judged", "seq": 8, "at_ms": 1_750_000_000_000, "data": judged},
        {"type": "draft.applying", "seq": 9, "at_ms": 1_750_000_000_000, "data": {"call_id": "c1", "without": ["b"]}},
    ]
    lines = timeline(events, Style())
    assert lines[0].endswith("c1 exit status 0, 2 changes: created a.txt, permissions of b")
    assert lines[1].endswith("c1 ask by run_outside: It asks.")
    assert lines[2].endswith("c1 without b")


def test_runs_show_prints_outputs() -> None:
    lines = timeline([finished("ok", None)], Style())
    assert any("E assert 1 == " in line for line in lines)
    assert any("line 40" in line for line in lines)
    assert len(lines) <= 22


def test_a_timeline_fits_the_terminal_and_time_never_goes_back() -> None:
    recalled: JsonObject = {"turn": 1, "items": [{"content": "The staging server is called heron."}]}
    events: list[JsonObject] = [
        {"type": "message.user", "seq": 1, "at_ms": 2000, "data": {"text": "What is it called? " * 6}},
        {"type": "memory.recalled", "seq": 2, "at_ms": 1990, "data": recalled},
    ]
    lines = timeline(events, Style(), 80)
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count("What is it called?") == 6
    assert lines[1].startswith(" " * 32)
    assert "      0 ms     2  memory.recalled     turn 1: The staging" in lines[-2]


def test_a_cancelled_run_is_told_once() -> None:
    sink = Lines()
    ended: JsonObject = {"type": "run.cancelled", "data": {"reason": "cancelled", "message": "Cancelled on request."}}
    Transcript(sink, Style()).show(SseFrame(3, "run.cancelled", ended))
    assert sink.told == ["✗ cancelled: Cancelled on request."]


def test_our_own_colours_reach_the_terminal_and_nobody_elses_codes_do(capsys: pytest.CaptureFixture[str]) -> None:
    layer: JsonObject = {"name": "project_docs", "source": "file:\x1b]0;title\x07a.md", "tokens": 9, "trust": "local"}
    event: JsonObject = {"data": {"turn": 1, "input_tokens": 9, "budget_tokens": 90, "layers": [layer]}}
    for line in context_lines(event, Style(is_coloured=True)):
        print_styled(line)
    head, _, told = capsys.readouterr().out.splitlines()
    assert head == "turn 1: 9 tokens of 90 (10 %)"  # Colours are left out where there is no terminal.
    assert "\x1b" not in told
    assert "\\x1b]0;title" in told


def delta(offset: int, text: str, stream: str = "stdout") -> SseFrame:
    data: JsonObject = {"call_id": "c1", "stream": stream, "offset": offset, "text": text}
    return SseFrame(None, "tool.delta", {"type": "tool.delta", "data": data})


def test_output_is_shown_while_a_tool_runs_each_line_once() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    for frame in (delta(0, "one\ntw"), delta(0, "one\ntwo\nth"), delta(10, "ree"), delta(0, "bad", "stderr")):
        transcript.show(frame)
    assert [line.strip() for line in sink.told] == ["one", "two"]
    transcript.show(SseFrame(9, "tool.finished", finished("failed", {"code": "exit_status", "message": "with 1"})))
    told = [line.strip() for line in sink.told]
    assert told[2:4] == ["three", "bad"]
    assert len(told) == 5  # The end of the output is not told again.


def test_output_that_is_too_long_to_follow_ends_with_its_last_lines() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    transcript.show(delta(0, "x\n" * (LINES_MAX + 50)))
    assert len(sink.told) == LINES_MAX + 1
    transcript.show(SseFrame(9, "tool.finished", finished("failed", None)))
    assert any("E assert 1 == " in line for line in sink.told)


def test_failure_of_a_model_is_told_once() -> None:
    sink = Lines()
    transcript = Transcript(sink, Style())
    for name in ("model.failed", "run.failed"):
        data: JsonObject = {"message": "the key is wrong", "reason": "provider_error"}
        transcript.show(SseFrame(3, name, {"type": name, "seq": 3, "at_ms": 1, "data": data}))
    assert "\n".join(sink.told).count("the key is wrong") == 1


@pytest.mark.parametrize("name", ["model.failed", "run.failed"])
def test_failure_is_told_whole(name: str) -> None:
    sink = Lines()
    advice = "the context is too long; " * 20 + "`palyra runs context 01K` shows what fills it"
    data: JsonObject = {"message": advice, "reason": "context_exhausted"}
    Transcript(sink, Style()).show(SseFrame(3, name, {"type": name, "seq": 3, "at_ms": 1, "data": data}))
    assert any(advice in line for line in sink.told)
