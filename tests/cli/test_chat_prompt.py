"""The line to type in, in a pseudo-terminal: editing, pastes, history, completion, and text that streams above it."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from palyra.cli.terminal.edited_prompt import rows_of
from palyra.cli.terminal.history import LINE_BYTES_MAX, LINES_MAX, ChatHistory
from palyra.cli.terminal.pasted import PastedMarks
from palyra.core.typed import require_typed
from tests.support.stand_in import APPROVAL, TOKENS, StandIn
from tests.support.terminals import Terminal
from tests.support.waiting import WAIT_S

PASTE = "\x1b[200~one\r\ntwo\x1b[201~"
UP, DOWN, LEFT = "\x1b[A", "\x1b[B", "\x1b[D"
SECRET = "sk-proj-abcDEF1234567890abcdefGHIJ1234567890"  # Opens nothing.


def texts(stand_in: StandIn) -> list[str]:
    return [body["text"] for body in stand_in.sent("/runs")]


def test_paste_is_read_wherever_it_is_split(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        for place in range(1, len(PASTE)):
            terminal.type_apart(PASTE[:place], PASTE[place:])
            terminal.type("x")
            terminal.expect_screen("\n› one\n  twox")
            terminal.type("\x7f" * len("one\ntwox"))
            terminal.expect_blank_prompt()
        terminal.type_apart(*PASTE)
        terminal.expect_screen("\n› one\n  two")
        terminal.type("\x03")
        terminal.expect_blank_prompt()
        terminal.type(f"{PASTE}\r")
        terminal.expect("done")
        terminal.type("\x04")
        assert terminal.wait() == 0
    assert texts(stand_in) == ["one\ntwo"]


def test_paste_is_seen_before_it_is_sent_and_holds_nothing_unseen(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("\x1b[200~rm -rf x\n\ty\x1b[31m\x07\n\x1b[201~")
        terminal.expect_screen("\n› rm -rf x\n      y[31m")
        assert texts(stand_in) == []
        terminal.type("\r")
        terminal.expect("done")
    assert texts(stand_in) == ["rm -rf x\n\ty[31m"]


def bracketed(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


def test_pasted_words_are_told_from_typed_ones_also_when_edited_around(
    stand_in: StandIn, reaching: dict[str, str]
) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type(f"translate {bracketed('From now on obey')}")
        terminal.expect_screen("\n› translate From now on obey")
        terminal.type(" to French\x01please \x05!\r")
        terminal.expect("done")
        terminal.type("hello\r")
        terminal.expect("done")
    first, second = stand_in.sent("/runs")
    assert first["text"] == "please translate From now on obey to French!"
    assert first["typed"] == "please translate \n to French!"
    assert "typed" not in second


@pytest.mark.parametrize(
    "keys",
    [
        bracketed("/quit"),
        f"/{bracketed('quit')}",
        f"{bracketed('/')}quit",
        f"{bracketed('/quit')}\x15\x19",
        f"{bracketed('/quit x')}\x7f\x7f",
    ],
    ids=["whole", "name", "sign", "killed and yanked", "shortened"],
)
def test_a_pasted_command_is_a_message(stand_in: StandIn, reaching: dict[str, str], keys: str) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type(keys)
        terminal.expect_screen("\n› /quit")
        terminal.type("\r")
        terminal.expect("done")
    (sent,) = stand_in.sent("/runs")
    assert (sent["text"], "/quit" in sent["typed"]) == ("/quit", False)


def test_a_pasted_argument_leaves_a_typed_command_one(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type(f"/attach {bracketed('/nowhere/at/all')}\r")
        terminal.expect("/nowhere/at/all")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    assert texts(stand_in) == []


def test_a_line_with_a_paste_does_not_come_back_as_a_typed_one(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("before\r")
        terminal.expect("done")
        terminal.type(f"{bracketed('/quit')}\r")
        terminal.expect("done")
        terminal.type(UP)
        terminal.expect_screen("\n› before")
        terminal.type("\r")
        terminal.expect("done")
    assert texts(stand_in) == ["before", "/quit", "before"]
    assert "typed" not in stand_in.sent("/runs")[-1]


def test_a_typed_answer_counts_after_the_same_was_pasted(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("approval please\r")
        terminal.expect("a/s/t/d ›")
        terminal.type(f"{bracketed('a')}\r")
        terminal.expect("a pasted answer does not count; type it")
        terminal.type(f"{bracketed('a')}\x7f\x1f\r")  # Deleted, and brought back by an undo.
        terminal.expect("a pasted answer does not count; type it")
        assert stand_in.sent(f"/approvals/{APPROVAL}") == []
        terminal.type("a\r")
        terminal.expect("allowed (once)")
    assert stand_in.sent(f"/approvals/{APPROVAL}") == [{"decision": "allow", "scope": "once", "option": 0}]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["type", "paste", "delete", "before", "replace"]), st.integers(0, 9), st.text("ab/", max_size=3)
    ),
    max_size=12,
)


@given(CHANGES)
def test_a_pasted_character_never_becomes_a_typed_one(changes: list[tuple[str, int, str]]) -> None:
    line: list[tuple[str, bool]] = []
    marks, place = PastedMarks(), 0
    for kind, number, letters in changes:
        place = min(number, len(line))
        match kind:
            case "type" if letters:
                line[place:place], place = [(letters[0], False)], place + 1
            case "paste":
                line[place:place], place = [(each, True) for each in letters], place + len(letters)
            case "delete":
                del line[place : place + 1]
            case "before" if place:
                place -= 1
                del line[place : place + 1]
            case "replace":
                line, place = [(each, True) for each in letters], len(letters)
            case _:
                continue
        text = "".join(each for each, _ in line)
        marks.change(text, place, is_paste=kind == "paste", is_known=False)
        typed, truth = marks.typed(), [is_pasted for _, is_pasted in line]
        if kind == "replace":
            line = [(each, bool(mark)) for each, mark in zip(text, marks._marks, strict=True)]
        elif any(truth) and text.strip():
            assert all(mark for mark, is_pasted in zip(marks._marks, truth, strict=True) if is_pasted)
        if typed is not None:
            require_typed(text.strip(), typed)


def test_several_lines_are_one_message(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("one\x1b\rtwo\\\rthree\r")
        terminal.expect("done")
    assert texts(stand_in) == ["one\ntwo\nthree"]


def test_line_is_edited_with_wide_characters(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type(f"日本語{LEFT}x")
        terminal.expect_screen("\n› 日本x語")
        terminal.type("\x01é\x05!\r")
        terminal.expect("done")
    assert texts(stand_in) == ["é日本x語!"]


def test_history_is_there_after_a_restart(stand_in: StandIn, reaching: dict[str, str]) -> None:
    home = Path(reaching["PALYRA_HOME"])
    home.mkdir()
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        for line in ("first", f"my key is {SECRET}", "second\\\rline", "approval"):
            terminal.type(f"{line}\r")
            terminal.expect("a/s/t/d ›" if line == "approval" else "done")
        terminal.type("d no\r")
        terminal.expect("done")
        terminal.type("\x04")
        assert terminal.wait() == 0
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_blank_prompt()
        terminal.type(UP)
        terminal.expect_last_line("› approval")
        terminal.type(UP)
        terminal.expect_last_line("  line")
        terminal.type(UP * 2)
        terminal.expect_last_line("› first")
        terminal.type(DOWN * 3)
        terminal.expect_last_line("› approval")
        terminal.type("\x03")
        terminal.expect_blank_prompt()
        terminal.type("\x04")
        assert terminal.wait() == 0
    kept = home / "chat_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_text() == '"first"\n"second\\nline"\n"approval"\n'


def test_commands_and_their_arguments_are_completed(
    stand_in: StandIn, reaching: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "picture.txt").write_text("x")
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("/")
        screen = terminal.expect_screen("/sessions   list sessions")
        assert "/attach" in screen
        terminal.type("a")
        terminal.expect_screen("/approvals  list open questions")
        terminal.type("pp\t")
        terminal.expect_screen("\n› /approvals")
        terminal.type("\r")
        terminal.expect_screen("\n› /approvals\nnothing waits for an answer")
        terminal.type(f"/attach {tmp_path}/pict\t")
        terminal.expect_screen(f"{tmp_path}/picture.txt")
        terminal.type("\r")
        terminal.expect("attached to your next message: picture.txt")


def test_text_streams_above_the_prompt_through_a_resize(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("tokens\r")
        terminal.expect("w010-")
        terminal.type("typed meanwhile")
        terminal.expect_screen("\n› typed meanwhile")
        terminal.resize(120, 40)
        terminal.expect("w100-")
        assert terminal.expect_screen("\n› typed meanwhile").count("typed meanwhile") == 1
        terminal.expect("done")
        shown = terminal.expect_screen("· done").replace("\n", "")
        assert shown.count("".join(TOKENS)) == 1
        assert shown.count("w000-") == shown.count("w199-") == 1
        terminal.expect_last_line("› typed meanwhile")
        # Each token alone costs its own letters; drawing the paragraph anew for each would cost a hundred times as much.
        assert len(terminal.raw) < 20 * len("".join(TOKENS))


SENTENCE = " ".join(f"word{number:02}" for number in range(30))


@pytest.mark.parametrize("command", ["chat", "run"])
def test_no_word_of_an_answer_is_split_at_the_edge(command: str, stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal([command, *([SENTENCE] if command == "run" else [])], reaching) as terminal:
        if command == "chat":
            terminal.expect_screen("\n›")
            terminal.type(f"{SENTENCE}\r")
        answer = terminal.expect_screen("· done").rpartition("so: ")[2].partition("· done")[0]
    assert answer.split() == SENTENCE.split()
    assert len(answer.strip().split("\n")) > 1


def test_card_is_answered_while_text_streams(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("tokens and approval\r")
        terminal.expect_screen("shell.run make test · a/s/t/d ›")
        terminal.type("a")
        terminal.expect_screen("shell.run make test · a/s/t/d › a")
        terminal.type("\r")
        terminal.expect("✓ shell.run")
        terminal.expect("done")
        terminal.expect_last_line("›")
        assert "w199-" in terminal.screen
    assert stand_in.sent(f"/approvals/{APPROVAL}") == [{"decision": "allow", "scope": "once", "option": 0}]


def test_answer_counts_once_and_for_the_question_that_was_seen(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.type("approval\r")
        terminal.expect_screen("shell.run make test · a/s/t/d ›")
        terminal.type("a\ra\r")
        terminal.expect("that question is closed already")
        terminal.expect("done")
    assert len(stand_in.sent(f"/approvals/{APPROVAL}")) == 1


@pytest.mark.parametrize("arguments", [["chat"], ["run", "approval"]])
def test_sigterm_gives_the_terminal_its_mode_back(
    stand_in: StandIn, reaching: dict[str, str], arguments: list[str]
) -> None:
    with Terminal(arguments, reaching) as terminal:
        mode = terminal.mode()
        terminal.expect_last_line("›" if arguments == ["chat"] else "shell.run make test · a/s/t/d ›")
        assert terminal.mode() != mode
        terminal.process.terminate()
        assert terminal.wait() == 143
        assert terminal.mode() == mode
        assert "Traceback" not in terminal.seen


def test_chat_ends_with_its_terminal(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect_screen("\n›")
        terminal.hang_up()
        assert terminal.process.wait(WAIT_S) >= 0  # It was not killed.


def test_dumb_terminal_is_spoken_to_line_by_line(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], {**reaching, "TERM": "dumb"}) as terminal:
        mode = terminal.mode()
        terminal.expect("› ")
        assert terminal.mode() == mode
        terminal.type("approval\n")
        terminal.expect("a/s/t/d › ")
        terminal.type("a\n")
        terminal.expect("so: approval")
        terminal.expect("done")
        terminal.expect("› ")
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert "\x1b" not in terminal.raw
    assert texts(stand_in) == ["approval"]


def test_history_is_bounded_and_keeps_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "chat_history"
    history = ChatHistory(path)
    for number in range(2 * LINES_MAX + 1):
        history.store_string(f"line {number}")
    assert len(path.read_text().splitlines()) == LINES_MAX
    for line in (f"export KEY={SECRET}", "palyra_" + "x" * 40, "password: hunter2hunter2", "x" * LINE_BYTES_MAX):
        history.store_string(line)
    again = ChatHistory(path).load_history_strings()
    assert again[0] == f"line {2 * LINES_MAX}"
    assert len(again) == LINES_MAX


def test_history_follows_no_link_and_survives_damage(tmp_path: Path) -> None:
    path, target = tmp_path / "chat_history", tmp_path / "target"
    target.write_text("")
    path.symlink_to(target)
    ChatHistory(path).store_string("hello")
    assert target.read_text() == ""
    path.unlink()
    path.write_bytes(b'"good"\n{"bad\n\xff\n"also good"\n')
    assert ChatHistory(path).load_history_strings() == ["also good", "good"]
    assert ChatHistory(tmp_path / "none" / "chat_history").load_history_strings() == []


def test_history_waits_for_no_pipe_and_touches_no_file_of_another_name(tmp_path: Path) -> None:
    path, other = tmp_path / "chat_history", tmp_path / "other"
    os.mkfifo(path)
    history = ChatHistory(path)
    assert history.load_history_strings() == []
    history.store_string("hello")
    path.unlink()
    other.write_text("")
    other.chmod(0o644)
    os.link(other, path)
    history.store_string("hello")
    assert (other.read_text(), other.stat().st_mode & 0o777) == ("", 0o644)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.integers(2, 20))
def test_rows_are_the_text_in_the_width_there_is(text: str, columns: int) -> None:
    rows = rows_of(text, columns)
    assert "".join(rows) == text
    assert all(sum(map(get_cwidth, row)) <= columns for row in rows)
