"""`palyra chat` in a pseudo-terminal, and the parts it is made of."""

import pytest
from typer.testing import CliRunner

from palyra.cli.main import app
from tests.support.stand_in import APPROVAL, SESSION, StandIn
from tests.support.terminals import Terminal
from tests.support.waiting import wait_until


def test_chat_streams_and_gives_the_terminal_its_mode_back(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat", "--session", "cli"], reaching) as terminal:
        mode = terminal.mode()
        terminal.expect("session cli")
        terminal.expect("›")
        assert terminal.mode() != mode
        terminal.type("hello\r")
        terminal.expect("You said \\x1b[2Jso: hello")
        terminal.expect("done")
        terminal.type("/sessions\r")
        terminal.expect(SESSION)
        terminal.type("/approvals\r")
        terminal.expect("nothing waits for an answer")
        terminal.type("/nonsense\r")
        terminal.expect("there is no /nonsense")
        terminal.type("/help\r")
        terminal.expect("Ctrl-D too")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
        assert terminal.mode() == mode
    assert stand_in.sent("/sessions")[0] == {"key": "cli"}
    assert stand_in.sent("/runs")[0]["when_busy"] == "steer"


def test_chat_goes_on_in_a_session_that_is_named_by_its_id(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat", "--session", SESSION], reaching) as terminal:
        terminal.expect("›")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    assert stand_in.sent("/sessions") == [{"id": SESSION}], "a restored session has no key"


def test_chat_lists_the_newest_session_first(stand_in: StandIn, reaching: dict[str, str]) -> None:
    stand_in.other_sessions = [
        {"id": f"01AAAAAAAAAAAAAAAAAAAAAA{number}", "key": f"key-{number}", "updated_at_ms": number + 1_700_000_000_000}
        for number in (11, 12)
    ]
    with Terminal(["chat", "--session", "cli"], reaching) as terminal:
        terminal.expect("›")
        terminal.type("/sessions\r")
        told = terminal.expect("key-11")
    assert "key-12" in told


def test_chat_asks_again_when_it_is_opened_again(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect("›")
        terminal.type("approval please\r")
        terminal.expect("? shell.run asks for approval")
        terminal.expect("a/s/t/d ›")
        terminal.type("d too early\r")
        terminal.expect("denied: shell.run make test")
        terminal.expect("done")
        assert terminal.seen.count("· denied") == 1, "what was answered here is told once"
        terminal.type("another approval\r")
        terminal.expect("a/s/t/d ›")
        terminal.type("\x04")
        assert terminal.wait() == 0
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect("› another approval")
        terminal.expect("? shell.run asks for approval")
        terminal.expect("a/s/t/d ›")
        terminal.type("s\r")
        terminal.expect("▸ shell.run make test")
        terminal.expect("✓ shell.run 100 ms")
        terminal.expect("so: another approval")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    allowed = {"decision": "allow", "scope": "session", "option": 1}
    assert stand_in.sent(f"/approvals/{APPROVAL}") == [{"decision": "deny", "reason": "too early"}, allowed]


def test_question_answered_in_one_chat_is_closed_in_the_other(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as one, Terminal(["chat"], reaching) as other:
        for terminal in (one, other):
            terminal.expect("›")
        one.type("approval please\r")
        for terminal in (one, other):
            terminal.expect("? shell.run asks for approval")
            terminal.expect("a/s/t/d ›")
        other.type("a")  # Typed and not sent: somebody else is quicker.
        other.expect("a")
        one.type("d not now\r")
        one.expect("denied: shell.run make test")
        other.expect("denied by user:owner: not now")
        for terminal in (one, other):
            terminal.expect("done")
        other.type("/quit\r")
        assert other.wait() == 0
        one.type("/quit\r")
        assert one.wait() == 0
    assert stand_in.sent(f"/approvals/{APPROVAL}") == [{"decision": "deny", "reason": "not now"}]


def test_of_three_cards_the_one_above_the_prompt_is_answered(stand_in: StandIn, reaching: dict[str, str]) -> None:
    """The second is answered elsewhere, out of order; each answer goes to the card that its writer sees."""
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect("›")
        terminal.type("several\r")
        terminal.expect("? shell.run asks for approval")
        terminal.expect("2 more wait for an answer")
        stand_in.answer_elsewhere("2", "deny")
        terminal.expect("denied by user:other")
        terminal.type("y\r")
        terminal.expect("allowed (once): shell.run make one")
        terminal.expect("? shell.run asks for approval")
        terminal.expect("shell.run rm -r three · a/s/t/d ›")
        terminal.type("what would that remove?\r")
        terminal.expect("that is no answer to shell.run rm -r three")
        terminal.type("t banana\r")
        terminal.expect("banana is no duration of at most 30d")
        terminal.type("no\r")
        terminal.expect("denied: shell.run rm -r three")
        terminal.expect("done")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    assert stand_in.sent("/approvals/1") == [{"decision": "allow", "scope": "once", "option": 0}]
    assert stand_in.sent("/approvals/3") == [{"decision": "deny"}]
    assert stand_in.sent(f"/runs/{stand_in.run_ids()[-1]}/input") == [], "nothing superseded the question"


def test_text_at_a_card_is_sent_when_it_is_confirmed(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect("›")
        terminal.type("approval please\r")
        terminal.expect("a/s/t/d ›")
        terminal.type("rather not\r")
        terminal.expect("that is no answer")
        terminal.type("send\r")
        run = stand_in.run_ids()[-1]
        wait_until(lambda: stand_in.sent(f"/runs/{run}/input"))
        terminal.type("\x04")
        assert terminal.wait() == 0
    assert stand_in.sent(f"/runs/{run}/input") == [{"text": "rather not"}]


def test_typing_steers_a_run_and_interrupts_cancel_it_then_leave(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect("›")
        terminal.type("slow\r")
        terminal.expect("Thinking about it")
        terminal.type("the other way\r")
        terminal.expect("Steered to the other way")
        terminal.expect("done")
        terminal.type("slow\r")
        terminal.expect("Thinking about it")
        terminal.type("\x03")
        terminal.expect("✗ cancelled:")
        terminal.interrupt()
        assert terminal.wait() == 0
    first, second = stand_in.run_ids()
    assert stand_in.sent(f"/runs/{first}/input") == [{"text": "the other way"}]
    assert stand_in.sent(f"/runs/{second}/cancel") == [{}]


def test_chat_survives_a_restart_of_the_daemon(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["chat"], reaching) as terminal:
        terminal.expect("›")
        terminal.type("slow\r")
        terminal.expect("Thinking about it")
        stand_in.go_away()
        terminal.expect("trying")  # The line may break behind it.
        stand_in.begin_again()
        terminal.expect("connected again")
        terminal.type("go on\r")
        terminal.expect("Steered to go on")
        terminal.expect("done")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    assert stand_in.cursors[0] == "0"
    assert stand_in.cursors[-1] == "3"


@pytest.mark.usefixtures("reaching")
def test_chat_without_a_terminal_says_what_to_use() -> None:
    result = CliRunner().invoke(app, ["chat"])
    assert result.exit_code == 1
    assert "terminal_needed" in result.stderr
