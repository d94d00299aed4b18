"""Grants: what is offered, and that an answer never covers more than was offered."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Constraint, Grant, GrantOption, Scope
from palyra.core.grants import (
    TTL_S_DEFAULT,
    TTL_S_MAX,
    GrantCase,
    GrantTerms,
    choose_option,
    covers,
    make_grant,
)
from palyra.core.ids import ApprovalId, Principal
from palyra.core.offers import make_options
from tests.support.strategies import json_objects
from tests.support.traits import shape_of

NOW_MS = 1_750_000_000_000
ALICE = Principal("user:alice")
WRITE: JsonObject = {"path": "notes/a.md", "content": "hello"}
EXACT, FOLDER, FOLDER_ALL_SESSIONS = 1, 2, 3  # Indexes into the options of a file tool; 0 is this call only.


def terms(option: GrantOption, tool: str = "fs.write", ttl_s: int | None = None) -> GrantTerms:
    return GrantTerms(
        approval_id=ApprovalId("01JZ0000000000000000APPR01"),
        tool=tool,
        option=option,
        taint=("external",),
        principal=ALICE,
        agent="main",
        now_ms=NOW_MS,
        ttl_s=ttl_s,
    )


def grant(arguments: JsonObject, index: int, tool: str = "fs.write", ttl_s: int | None = None) -> Grant:
    made = make_grant(terms(make_options(tool, arguments, shape_of(tool))[index], tool, ttl_s))
    assert made is not None
    return made


def case(arguments: JsonObject, tool: str = "fs.write") -> GrantCase:
    return GrantCase(tool=tool, arguments=arguments, taint=(), principal=ALICE, agent="main", now_ms=NOW_MS)


def test_options_go_from_narrow_to_wide_and_say_so() -> None:
    options = make_options("fs.write", WRITE, shape_of("fs.write"))
    assert [option.scope for option in options] == [Scope.ONCE, Scope.SESSION, Scope.SESSION, Scope.TIMEBOXED]
    assert [option.text for option in options][2:] == [
        "fs.write in notes/, in this session",
        "fs.write in notes/, for a time, in all sessions",
    ]


def test_only_file_tools_are_offered_by_folder() -> None:
    options = make_options("mcp.git.run", {"path": "repo", "command": "push"}, shape_of("mcp.git.run"))
    assert all(one.operator != "under" for option in options for one in option.constraints)
    assert [option.scope for option in options] == [Scope.ONCE, Scope.SESSION, Scope.TIMEBOXED]


def test_an_answer_for_once_grants_nothing_more() -> None:
    assert make_grant(terms(make_options("fs.write", WRITE, shape_of("fs.write"))[0])) is None


def test_exact_grant_covers_the_same_call_only() -> None:
    given_one = grant(WRITE, EXACT)
    assert covers(given_one, case(WRITE))
    assert not covers(given_one, case({**WRITE, "content": "other"}))
    assert not covers(given_one, case({"path": "notes/a.md"}))


def test_argument_that_was_not_shown_is_not_covered() -> None:
    fetched = grant({"url": "https://a.example"}, EXACT, "http.fetch")
    assert not covers(fetched, case({"url": "https://a.example", "method": "DELETE"}, "http.fetch"))


def test_grant_of_a_call_without_arguments_covers_no_call_with_some() -> None:
    bare = grant({}, EXACT, "deploy.status")
    assert covers(bare, case({}, "deploy.status"))
    assert not covers(bare, case({"force": True}, "deploy.status"))


@pytest.mark.parametrize(("shown", "later"), [("1", 1), ("true", True), ('{"a":1}', {"a": 1}), (1, 1.5)])
def test_value_of_another_type_is_another_call(shown: object, later: object) -> None:
    assert not covers(grant({"x": shown}, EXACT, "t.x"), case({"x": later}, "t.x"))


@given(json_objects, json_objects)
def test_exact_grant_covers_exactly_equal_arguments(shown: JsonObject, later: JsonObject) -> None:
    """Null aside: it reads as absent, which meets nothing."""
    granted = grant(shown, EXACT, "t.x")
    assert covers(granted, case(later, "t.x")) <= (shown == later)
    assert covers(granted, case(shown, "t.x")) == (None not in shown.values())


@pytest.mark.parametrize("path", ["notes/b.md", "notes/deep/c.md", "./notes/x", "notes/../notes/y"])
def test_folder_grant_covers_what_lies_below(path: str) -> None:
    assert covers(grant(WRITE, FOLDER), case({"path": path, "content": "other"}))


@pytest.mark.parametrize(
    "path", ["other/b.md", "notes-more/b.md", "notes/../b.md", "../notes/b.md", "/notes/b.md", "/etc/passwd", ""]
)
def test_folder_grant_covers_nothing_else(path: str) -> None:
    assert not covers(grant(WRITE, FOLDER), case({"path": path, "content": "x"}))


@pytest.mark.parametrize("path", ["../x", "..", "/x", "a/../../x", "//x"])
def test_grant_for_the_workspace_covers_no_path_that_leaves_it(path: str) -> None:
    whole = grant({"path": "a.md", "content": ""}, FOLDER)
    assert covers(whole, case({"path": "deep/b.md", "content": ""}))
    assert not covers(whole, case({"path": path, "content": ""}))


@given(st.lists(st.sampled_from(["..", ".", "notes", "a", "", "notes-more"]), max_size=6).map("/".join))
def test_no_spelling_of_a_path_gets_out_of_the_folder(path: str) -> None:
    if covers(grant(WRITE, FOLDER), case({"path": path, "content": ""})):
        assert posixpath.normpath(posixpath.join("/w", path)).startswith("/w/notes")


def test_path_that_is_no_text_is_not_covered() -> None:
    assert not covers(grant(WRITE, FOLDER), case({"path": ["notes/a.md"], "content": ""}))


@pytest.mark.parametrize(
    "change", [{"tool": "fs.read"}, {"principal": Principal("user:bob")}, {"agent": "other"}, {"taint": ("web",)}]
)
def test_grant_covers_no_other_tool_person_agent_or_taint(change: dict[str, object]) -> None:
    assert not covers(grant(WRITE, EXACT), replace(case(WRITE), **change))


def test_grant_covers_calls_with_no_more_taint_than_was_shown() -> None:
    assert covers(grant(WRITE, EXACT), replace(case(WRITE), taint=("external",)))


def test_constraint_of_an_unknown_kind_meets_nothing() -> None:
    later = Constraint(argument="path", operator="matches", value=".*")
    assert not covers(replace(grant(WRITE, EXACT), constraints=(later,)), case(WRITE))


def test_timeboxed_grant_ends_and_has_a_default_length() -> None:
    given_one = grant(WRITE, FOLDER_ALL_SESSIONS, ttl_s=60)
    assert given_one.expires_at_ms == NOW_MS + 60_000
    assert covers(given_one, replace(case(WRITE), now_ms=NOW_MS + 59_999))
    assert not covers(given_one, replace(case(WRITE), now_ms=NOW_MS + 60_000))
    assert grant(WRITE, FOLDER_ALL_SESSIONS).expires_at_ms == NOW_MS + TTL_S_DEFAULT * 1000


def test_session_grant_lasts_as_long_as_the_session_unless_told() -> None:
    assert grant(WRITE, EXACT).expires_at_ms is None
    assert grant(WRITE, EXACT, ttl_s=5).expires_at_ms == NOW_MS + 5_000


@pytest.mark.parametrize("ttl_s", [0, -1, TTL_S_MAX + 1])
def test_length_beyond_the_limits_is_refused(ttl_s: int) -> None:
    with pytest.raises(Invalid) as caught:
        grant(WRITE, FOLDER_ALL_SESSIONS, ttl_s=ttl_s)
    assert caught.value.code == "ttl_invalid"


def test_option_is_chosen_by_index_or_by_its_scope() -> None:
    options = make_options("fs.write", WRITE, shape_of("fs.write"))
    assert choose_option(options, Scope.ONCE, FOLDER) is options[FOLDER]
    assert choose_option(options, Scope.SESSION, None) is options[EXACT]


@pytest.mark.parametrize("index", [-1, 4])
def test_option_that_was_not_offered_is_refused(index: int) -> None:
    with pytest.raises(Invalid) as caught:
        choose_option(make_options("fs.write", WRITE, shape_of("fs.write")), Scope.SESSION, index)
    assert caught.value.code == "option_unknown"
    with pytest.raises(Invalid) as caught:
        choose_option((), Scope.SESSION, None)
    assert caught.value.code == "scope_not_offered"
