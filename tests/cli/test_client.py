"""The client's parts: streams cut anywhere, text told once, questions and their answers."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.runtimes.shell.nature import nature_of
from palyra.cli.output import print_json, print_line
from palyra.cli.sse import FRAME_BYTES_MAX, FrameReader, SseFrame
from palyra.cli.terminal.card import WIDTH_MIN, card_lines
from palyra.cli.terminal.full_card import FULL, is_cut, needs_reading, with_full
from palyra.cli.terminal.questions import answer_of, decided_text, question_of, seconds_of
from palyra.cli.terminal.routine_text import when_text
from palyra.cli.terminal.style import Style, cells, duration, in_one_line, prose, shown
from palyra.cli.terminal.transcript import Transcript
from palyra.cli.terminal.word_wrap import wrap
from palyra.core.errors import Unavailable
from palyra.core.ids import EffectId, RunId, derive_child_ids
from tests.support.stand_in import APPROVAL, OPTIONS

STREAM = (
    b": beat\n\nid: 7\nevent: run.started\ndata: {\"data\":{}}\n\n"
    b'event: model.delta\r\ndata: {"data":\r\ndata: {"text":"\xc3\xa9"}}\r\n\r\n: beat\nid: 8\nevent: run.done\ndata: {}\n\n'
)  # fmt: skip


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_stream_gives_the_same_frames_however_it_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    reader = FrameReader()
    frames = [frame for start, end in pairwise(edges) for frame in reader.feed(STREAM[start:end])]
    assert [(frame.id, frame.type) for frame in frames] == [(7, "run.started"), (None, "model.delta"), (8, "run.done")]
    assert frames[1].data == {"text": "é"}


@given(st.binary())
def test_no_bytes_crash_the_stream(garbage: bytes) -> None:
    try:
        FrameReader().feed(garbage + b"\n\n")
    except Unavailable as error:
        assert error.code == "stream_garbled"


def test_endless_line_is_refused() -> None:
    with pytest.raises(Unavailable):
        FrameReader().feed(b"data: " + b"x" * (FRAME_BYTES_MAX + 1))


class Sheet:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.lines: list[str] = []

    def text(self, text: str) -> None:
        self.texts.append(text)

    def end_line(self) -> None:
        if self.texts:
            self.texts.append("\n")

    def line(self, line: str) -> None:
        self.lines.append(line)


def frame(name: str, at_ms: int = 0, **data: object) -> SseFrame:
    return SseFrame(None, name, {"type": name, "at_ms": at_ms, "data": data})


@given(st.text(min_size=1), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6))
def test_live_text_is_told_once_whatever_arrives_again(text: str, pieces: list[tuple[int, int]]) -> None:
    sheet = Sheet()
    transcript = Transcript(sheet, Style())
    for start, length in pieces:
        if text[start : start + length]:
            transcript.show(frame("model.delta", turn=1, offset=start, text=text[start : start + length]))
    transcript.show(frame("model.output", turn=1, text=text, tool_calls=[], finish="stop"))
    assert "".join(sheet.texts) == f"{prose(text)}\n"


def test_reference_that_fails_is_told_unless_a_preview_told_it() -> None:
    told, silent = Sheet(), Sheet()
    found = frame("reference.resolved", raw="@file:a.md", ok=True, warning=None)
    failed = frame("reference.resolved", raw="@file:\x1b[2J", ok=False, warning="there is no such file")
    for transcript in (Transcript(told, Style()), Transcript(silent, Style(), has_preview=True)):
        transcript.show(found)
        transcript.show(failed)
    assert told.lines == ["! @file:\\x1b[2J there is no such file"]
    assert silent.lines == []


def test_tools_are_told_with_status_and_duration() -> None:
    sheet = Sheet()
    transcript = Transcript(sheet, Style())
    for call, tool in (("c1", "fs.read"), ("c2", "shell.run"), ("c3", "bad\x1b[2J.tool")):
        transcript.show(frame("tool.proposed", call_id=call, tool=tool, arguments={"path": "a"}))
    transcript.show(frame("tool.started", 1000, call_id="c1"))
    transcript.show(frame("tool.finished", 3500, call_id="c1", outcome="ok", error=None))
    transcript.show(frame("tool.started", 1000, call_id="c2"))
    error = {"code": "exit_1", "message": "it exited with 1"}
    transcript.show(frame("tool.finished", 1020, call_id="c2", outcome="failed", error=error))
    transcript.show(frame("tool.judged", call_id="c3", verdict="deny", rule="unknown_tool", reason="no such tool"))
    transcript.show(frame("tool.finished", call_id="c3", outcome="denied", error=None))
    assert sheet.lines == [
        "▸ fs.read a",
        "✓ fs.read 2.5 s",
        "▸ shell.run a",
        "✗ shell.run failed: it exited with 1 20 ms",
        "✗ bad\\x1b[2J.tool a denied by unknown_tool: no such tool",
    ]


def test_an_objective_that_nobody_could_check_is_told() -> None:
    sheet = Sheet()
    results = [{"state": "met"}, {"state": "unchecked", "note": "No \x1b[2Jreviewer (budget)."}, {"state": "unmet"}]
    Transcript(sheet, Style()).show(frame("objectives.checked", turn=1, results=results))
    assert sheet.lines == ["! objective 2 was not checked: No \\x1b[2Jreviewer (budget)."]


def test_the_end_marks_an_estimate() -> None:
    sheet = Sheet()
    transcript = Transcript(sheet, Style())
    for estimate in (True, False):
        transcript.show(frame("run.started", 1000))
        transcript.show(frame("usage.recorded", is_estimate=estimate, input_tokens=10, output_tokens=5, cost_usd=0.25))
        transcript.show(frame("run.done", 2000, reason="final_answer"))
    assert sheet.lines == ["· done 1.0 s · ~15 tokens · ~$0.2500", "· done 1.0 s · 15 tokens · $0.2500"]


def test_delegations_end_with_their_task_and_their_run() -> None:
    sheet = Sheet()
    transcript = Transcript(sheet, Style())
    parent = "01JXQ0Z7N8E4T5Y6W7V8S9R0QP"
    _, child = derive_child_ids(RunId(parent), EffectId("e1"))
    transcript.show(frame("tool.proposed", call_id="c1", tool="agent.delegate", arguments={"prompt": "look"}))
    transcript.show(frame("tool.started", 1000, call_id="c1", effect_id="e1"))
    data = {"call_id": "c1", "effect_id": "e1", "outcome": "ok", "error": None}
    transcript.show(SseFrame(None, "tool.finished", {"run_id": parent, "at_ms": 1015, "data": data}))
    assert sheet.lines == ["▸ agent.delegate look", f"✓ agent.delegate look {child} 15 ms"]
    assert transcript.has_delegated


REQUEST = {
    "approval_id": APPROVAL,
    "kind": "tool",
    "tool": "shell.run",
    "rule": "r",
    "risk": "high",
    "options": OPTIONS,
}


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("a", {"decision": "allow", "scope": "once", "option": 0}),
        (" S ", {"decision": "allow", "scope": "session", "option": 1}),
        ("t", {"decision": "allow", "scope": "timeboxed", "option": 2, "ttl_s": 3600}),
        ("t 2h", {"decision": "allow", "scope": "timeboxed", "option": 2, "ttl_s": 7200}),
        ("d", {"decision": "deny"}),
        ("d use make", {"decision": "deny", "reason": "use make"}),
        ("ds", {"decision": "deny", "scope": "session", "option": 1}),
        ("ds not here", {"decision": "deny", "scope": "session", "option": 1, "reason": "not here"}),
        ("dt", {"decision": "deny", "scope": "timeboxed", "option": 2, "ttl_s": 3600}),
        (
            "dt 2h not today",
            {"decision": "deny", "scope": "timeboxed", "option": 2, "ttl_s": 7200, "reason": "not today"},
        ),
        ("dt later", {"decision": "deny", "scope": "timeboxed", "option": 2, "ttl_s": 3600, "reason": "later"}),
        ("a cat sat", None),
        ("t soon", None),
        ("0", {"decision": "allow", "scope": "once", "option": 0}),
        ("2 2h", {"decision": "allow", "scope": "timeboxed", "option": 2, "ttl_s": 7200}),
        ("4", None),
        ("3", None),
        ("also do this", None),
        ("", None),
    ],
)
def test_only_a_key_answers_a_question(line: str, body: dict[str, object] | None) -> None:
    assert answer_of(question_of(REQUEST, None), line) == body


def test_every_offered_option_has_a_key() -> None:
    options = [*OPTIONS, {"scope": "session", "constraints": [], "text": "any command"}]
    question = question_of({**REQUEST, "options": options}, {"command": "make"})
    assert question.keys == "a/s/t/s2/d"
    assert answer_of(question, "s2") == {"decision": "allow", "scope": "session", "option": 3}
    assert any("any command" in line for line in card_lines(question, Style()))
    assert any("deny for this session: " in line for line in card_lines(question, Style()))
    assert question_of({**REQUEST, "options": []}, None).keys == "a/d"


def test_a_critical_call_offers_one_yes_and_every_no() -> None:
    question = question_of({**REQUEST, "risk": "critical"}, None)
    assert [choice.key for choice in question.choices] == ["a", "d", "ds", "dt"]


def test_a_draft_is_applied_applied_in_part_or_discarded() -> None:
    question = question_of({**REQUEST, "kind": "draft"}, None)
    assert question.keys == "a/w/d"
    assert "changed files" in question.title
    assert [choice.shown_key for choice in question.choices] == ["0 a", "w", "d"], "the number is that of --option"
    assert answer_of(question, "a") == answer_of(question, "0") == {"decision": "allow"}
    assert answer_of(question, "w .envrc a/b") == {"decision": "allow", "without": [".envrc", "a/b"]}
    assert answer_of(question, "w 'a b' c") == {"decision": "allow", "without": ["a b", "c"]}
    assert answer_of(question, "w it's") == {"decision": "allow", "without": ["it's"]}
    assert answer_of(question, "w") is None
    assert answer_of(question, "d no hooks") == {"decision": "deny", "reason": "no hooks"}


def test_the_chat_says_what_an_answer_did() -> None:
    assert decided_text({"decision": "allow", "scope": "once"}, {}) == "allowed (once)"
    assert decided_text({"decision": "allow", "without": [".envrc", "a b"]}, {}) == "allowed, without .envrc, a b"
    assert decided_text({"decision": "deny"}, {}) == "denied"
    assert decided_text({"decision": "give_up"}, {}) == "answered (give_up)"


def test_uncertain_call_has_its_own_answers() -> None:
    question = question_of({**REQUEST, "kind": "uncertain"}, None)
    assert [answer_of(question, key) for key in "roga"] == [
        {"decision": "retry"},
        {"decision": "done"},
        {"decision": "give_up"},
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "line", "said"),
    [
        ("tool", "t 99999d", "99999d is no duration of at most 30d, such as 90s, 30m, 2h or 7d"),
        ("tool", "dt 31d", "31d is no duration of at most 30d, such as 90s, 30m, 2h or 7d"),
        ("tool", "dt 31d it mails", "31d is no duration of at most 30d, such as 90s, 30m, 2h or 7d"),
        ("draft", "w", "w takes the paths to leave out, such as w .envrc"),
        ("draft", "w  ", "w takes the paths to leave out, such as w .envrc"),
    ],
)
def test_a_key_with_the_wrong_words_behind_it_says_what_belongs_there(kind: str, line: str, said: str) -> None:
    question = question_of({**REQUEST, "kind": kind}, None)
    assert answer_of(question, line) is None
    assert question.mistaken(line) == said


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("30m", 1800), ("7d", 604_800), ("0s", None), ("x", None)])
def test_durations_are_read(text: str, expected: int | None) -> None:
    assert seconds_of(text) == expected


@pytest.mark.parametrize(
    ("every_s", "text"), [(1, "1 s"), (90, "90 s"), (900, "15 min"), (3600, "1 h"), (5400, "90 min"), (172_800, "2 d")]
)
def test_an_interval_is_told_in_its_largest_whole_unit(every_s: int, text: str) -> None:
    assert when_text({"every_s": every_s}) == f"every {text}"


def test_text_for_terminals_is_harmless_and_measured() -> None:
    assert shown("a\x1b[2J\nb\tc\u202e") == "a\\x1b[2J\nb\tc\\u202e"
    assert (cells("aé日"), cells("e\u0301")) == (4, 1)
    assert [duration(each) for each in (5, 1500, 61_000)] == ["5 ms", "1.5 s", "1 min 1 s"]
    assert (Style(True).red("x"), Style().red("x")) == ("\x1b[31mx\x1b[0m", "x")


@pytest.mark.parametrize("hidden", ["\u200b", "\u2028", "\U000e0041", "\u3164", "\u2800", "\xa0", "\ufe0f", "\x9b"])
def test_nothing_that_is_not_seen_reaches_a_terminal(hidden: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = hidden.encode("unicode_escape").decode()
    assert shown(f"a{hidden}\n\tb") == f"a{code}\n\tb"
    assert in_one_line(f"a{hidden}b", 20) == f"a{code}b"
    print_line(f"a{hidden}b")
    assert capsys.readouterr().out == f"a{code}b\n"
    print_json({"text": f"é{hidden}"})
    printed = capsys.readouterr().out
    assert (json.loads(printed), hidden in printed, "é" in printed) == ({"text": f"é{hidden}"}, False, True)


def test_frame_without_data_is_no_fault() -> None:
    assert SseFrame(1, "x", json.loads("{}")).data == {}


def test_card_says_where_taint_came_in() -> None:
    approval: dict[str, object] = {
        "id": "a",
        "kind": "tool",
        "tool": "shell.run",
        "taint": ["http:evil.example", "file:old\x1b[2J"],
        "taint_origins": [{"source": "http:evil.example", "seq": 12, "tool": "http.fetch"}],
    }
    facts = "\n".join(card_lines(question_of(approval, {}), Style(), 200))
    assert "has seen http:evil.example (by http.fetch at event 12), file:old" in facts
    assert "\x1b" not in facts


def shell_card(preview: str, **arguments: object) -> list[str]:
    asked = {**REQUEST, "tool": "shell.run", "preview": preview}
    return card_lines(question_of(asked, arguments), Style(), 100, 0)


@pytest.mark.parametrize("command", ["rm -rf build", "rm -rf build\n\n\tls \u3164", "rm -rf build " + "x" * 9000])
def test_card_shows_a_command_once(command: str) -> None:
    preview = nature_of({"command": command, "direct": True}, ("/w",)).preview or ""
    card = shell_card(preview, command=command)
    assert "\n".join(card).count("rm -rf build") == 1
    assert sum(line.startswith("    $ rm -rf build") for line in card) == 1
    assert next(place for place, line in enumerate(card) if "asks because" in line) == 1


def test_card_of_a_draft_shows_its_command_once() -> None:
    card = shell_card("$ make\\nmake test\n\ncreated .envrc", command="make\nmake test")
    assert sum("make test" in line for line in card) == 1
    assert any("created .envrc" in line for line in card)


def test_card_does_not_hide_a_single_line() -> None:
    one_more = "\n".join(f"+line {n}" for n in range(13))
    assert any("+line 12" in line for line in shell_card(one_more, command="make"))
    assert not any("more lines" in line for line in shell_card(one_more, command="make"))
    assert any("… 2 more lines" in line for line in shell_card(f"{one_more}\n+line 13", command="make"))


def test_a_card_that_the_screen_cuts_is_shown_whole_before_a_yes() -> None:
    lines = "\n".join(f"+line {n}" for n in range(14))
    yes, no = {"decision": "allow"}, {"decision": "deny"}
    for record, calls, is_it in (
        ({"preview": lines}, ({},), True),
        ({"preview": "+line", "full": {"artifact_id": "a"}}, ({},), True),
        ({"preview": "+" + "x" * 3_500}, ({},), True),
        ({}, ({"text": "x" * 500},), True),
        ({"preview": "+line"}, ({"content": "x" * 500},), False),
        ({}, ({"text": "x"},), False),
    ):
        question = with_full(replace(question_of({**REQUEST, **record}, None), calls=calls))
        assert is_cut(question) is is_it, record
        assert (answer_of(question, "f") == FULL) is is_it
        assert needs_reading(question, yes, set()) is is_it
        assert not needs_reading(question, yes, {question.approval_id})
        assert not needs_reading(question, no, set())


def test_card_shows_what_else_a_command_was_given_and_a_command_that_its_preview_does_not_show() -> None:
    beside = shell_card("the command:\n$ make", command="make", cwd="sub", background=True)
    assert beside[1].strip() == '{"cwd":"sub","background":true}'
    for preview in ("the command:\n$ make", "+ make test", "$ make\n> tests", "\n" * 30 + "$ make test"):
        assert shell_card(preview, command="make test")[1].strip() == "make test", preview


MANY = {
    **REQUEST,
    "tool": "fs.write",
    "count": 12,
    "calls": [{"call_id": f"c{n}", "arguments": {"path": f"notes/{n}.md", "content": "long"}} for n in range(12)],
    "touches": {"paths": [f"notes/{n}.md" for n in range(12)]},
    "preview": "\n".join(f"+line {n} of a file that says rather more than a narrow window shows" for n in range(30)),
    "reason": "Writing there asks.",
    "policies": ["notes_ask"],
    "taint": ["http:evil.example"],
    "expires_at_ms": 900_000,
}


def test_card_tells_what_is_asked_and_why() -> None:
    lines = card_lines(question_of(MANY, None), Style(), 80, 0)
    card = "\n".join(lines)
    assert lines[0] == "? fs.write asks for approval · 12 calls"
    for said in (
        "notes/5.md",
        "… and 6 more",
        "… 18 more lines",
        "touches  notes/0.md",
        "6 more paths",
        "why      Writing there asks. (notes_ask)",
        "risk     high",
        "has seen http:evil.example",
        "waits    15 min, till ",
        "0 a  allow once",
        "d    deny",  # Keys of all widths leave the words in one column.
    ):
        assert said in card


@given(st.integers(0, 200), st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_no_line_of_a_card_is_wider_than_the_terminal(width: int, reason: str, preview: str, paths: list[str]) -> None:
    options = [{"scope": "once", "text": f"{reason} {preview}"}]
    touches = {"paths": paths}
    asked = {**MANY, "reason": reason, "preview": preview, "touches": touches, "options": options}
    for line in card_lines(question_of(asked, None), Style(), width, 0):
        assert cells(line) <= max(WIDTH_MIN, width) + 1
        assert line == shown(line)
        assert "\n" not in line


@given(st.text(st.characters(codec="ascii", exclude_categories=["C"])), st.integers(10, 40))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    assert "".join("".join(wrap(text, width, "  ")).split()) == "".join(text.split())


def test_answers_keep_what_emoji_and_scripts_are_made_of_and_nothing_that_drives_a_terminal() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u26a0\ufe0f \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 10\xa0km"
    assert prose(family) == family
    assert prose("a\x1b[2J\u202eb\u200bc\x9b") == "a\\x1b[2J\\u202eb\\u200bc\\x9b"
