"""Questions as an editor shows them: nothing is allowed that the person did not see (L7)."""

from typing import Any

from palyra.cli.acp.question import answer_of, options_of, shown_call

BOTH = ["allow", "deny"]
EXACT: dict[str, Any] = {
    "scope": "session",
    "text": "this very call of http.fetch, in this session",
    "decisions": BOTH,
}
WIDE: dict[str, Any] = {"scope": "session", "text": "fs.write in src/, in this session", "decisions": BOTH}
TRUST: dict[str, Any] = {
    "scope": "session",
    "text": "this call, and trust http:a",
    "trusts": ["http:a"],
    "decisions": BOTH,
}
ONCE: dict[str, Any] = {"scope": "once", "text": "these 2 calls and no others"}


def picked(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


def test_an_option_that_lasts_is_named_by_what_it_covers_and_answered_by_its_number() -> None:
    card: dict[str, Any] = {"id": "A1", "options": [ONCE, WIDE, EXACT]}
    assert "fs.write in src/, in this session" in str(options_of(card)[1]["name"])
    assert answer_of(card, picked("allow_session")) == {"decision": "allow", "scope": "session", "option": 1}


def test_trusting_a_source_is_no_way_to_allow_a_call_in_an_editor() -> None:
    card: dict[str, Any] = {"id": "A1", "options": [ONCE, TRUST]}
    assert [each["optionId"] for each in options_of(card)] == ["allow", "reject"]
    assert answer_of(card, picked("allow_session")) is None


def test_every_call_of_a_question_is_shown() -> None:
    calls = [
        {"call_id": "c1", "arguments": {"url": "https://a.test"}, "preview": None},
        {"call_id": "c2", "arguments": {"url": "https://evil.test"}, "preview": None},
    ]
    shown = shown_call({"id": "A1", "call_id": "c1", "tool": "http.fetch", "calls": calls})
    assert shown["title"] == "http.fetch (2 calls)"
    assert "https://evil.test" in str(shown["content"])


def test_a_call_that_the_turn_has_not_shown_is_named_and_not_taken_for_a_budget() -> None:
    card: dict[str, Any] = {"id": "A1", "call_id": "c1", "tool": "shell.run", "arguments": {"command": "ls"}}
    shown = shown_call({**card, "preview": "$ ls"})
    assert (shown["title"], shown["rawInput"]) == ("shell.run", {"command": "ls"})


def test_an_option_of_no_form_answers_nothing() -> None:
    card: dict[str, Any] = {"id": "A1", "options": [ONCE, WIDE]}
    for odd in (["allow"], {"allow": 1}, None, 1):
        assert answer_of(card, {"outcome": {"outcome": "selected", "optionId": odd}}) is None
