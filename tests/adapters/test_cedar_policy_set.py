"""Parsed policies: what is refused, and that it is told where."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.policy.policy_set import (
    POLICIES_MAX,
    SOURCE_CHARACTERS_MAX,
    PoliciesInvalid,
    PolicySource,
    bundled_policies,
    parse_policies,
)
from palyra.adapters.policy.statements import cut

HEAD = 'permit (principal, action == Action::"call", resource)'


def refused(text: str, name: str = "mine") -> str:
    with pytest.raises(PoliciesInvalid) as caught:
        parse_policies((PolicySource(name, text),))
    assert caught.value.code == "policy_invalid"
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("permit (principal, action, resource)", 1, "unexpected end"),
        (f"// fine\n// deny\u2028forbid (principal, action, resource);\n{HEAD};", 2, "U+2028"),
        ("// fine\n\npermit (principal, action, resource) when { context. };", 3, "unexpected token"),
        (f"{HEAD};\n\n{HEAD} when {{ context.risk == 3 }};", 3, "not compatible"),
        (f"{HEAD} when {{ context.hots == 1 }};", 1, "`hots`"),
        (f'{HEAD} when {{ context.host == "a" }};', 1, "optional attribute `host`"),
        (f"{HEAD} when {{ resource.owner == principal }};", 1, "`owner`"),
        (f"{HEAD} when {{ context.role }};", 1, "`role`"),
        ('permit (principal, action == Action::"cal", resource);', 1, "cal"),
        ('permit (principal == User::"a", action, resource);', 1, "User"),
        ("permit (principal == ?principal, action, resource);", 1, "template"),
        ('@id("a") permit (principal, action, resource);\n@id("a") forbid (principal, action, resource);', 2, "mine/a"),
        ('@id("a b") permit (principal, action, resource);', 1, "@id"),
        (f'@says("{"x" * 301}") permit (principal, action, resource);', 1, "@says"),
        (f'{HEAD} when {{ context.risk == "hihg" }};', 1, "'hihg'; it knows critical, high, low, medium"),
        (f'{HEAD} when {{ "mpc" == context.runtime }};', 1, "context.runtime is never 'mpc'"),
        (f'{HEAD} when {{ context.capabilities.contains("netwrok") }};', 1, "'netwrok'"),
        (f'{HEAD} when {{ context.capabilities.containsAny(["network", "exec"]) }};', 1, "never 'exec'"),
        (f'{HEAD} unless {{ ["read-only"].contains(context.effect_class) }};', 1, "'read-only'"),
        (
            'permit (principal, action == Action::"runs.list", resource) when { context.role in Role::"oprator" };',
            1,
            "no role 'oprator'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, words: str) -> None:
    message = refused(text)
    assert message.startswith(f"mine.cedar:{line}: ")
    assert words in message


def test_every_problem_of_every_file_is_told_at_once() -> None:
    with pytest.raises(PoliciesInvalid) as caught:
        parse_policies((PolicySource("a", "permit;\nforbid;"), PolicySource("b", f"{HEAD};"), PolicySource("c", "x")))
    assert [(problem.file, problem.line) for problem in caught.value.problems] == [
        ("a.cedar", 1),
        ("a.cedar", 2),
        ("c.cedar", 1),
    ]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 65])
def test_name_of_a_file_that_would_not_fit_into_an_id_is_refused(name: str) -> None:
    assert "is named with" in refused(f"{HEAD};", name)


def test_too_long_and_too_many_are_refused() -> None:
    assert "longer than" in refused("/" * (SOURCE_CHARACTERS_MAX + 1))
    lines = "\n".join(f'forbid (principal, action, resource == Tool::"t{number}");' for number in range(POLICIES_MAX))
    assert "at most" in refused(lines)


def test_ids_carry_the_files_name_or_the_line() -> None:
    text = f'// one\n@id("a")\n@says("Two\\n words.")\n{HEAD};\n{HEAD};'
    parsed = parse_policies((PolicySource("mine", text),))
    own = [entry for entry in parsed.entries.values() if entry.file == "mine.cedar"]
    assert [(entry.id, entry.line, entry.says) for entry in own] == [
        ("mine/a", 2, "Two words."),
        ("mine/line_5", 5, "The policy mine/line_5 says so."),
    ]
    assert parsed.rank["mine/a"] > max(bundled_policies().rank.values())


def test_hash_tells_texts_names_and_order_apart() -> None:
    a, b = PolicySource("a", f"{HEAD};"), PolicySource("b", f"{HEAD};")
    sets = [
        parse_policies(()),
        parse_policies((a,)),
        parse_policies((b,)),
        parse_policies((a, b)),
        parse_policies((b, a)),
    ]
    assert len({parsed.sha256 for parsed in sets}) == len(sets)
    assert parse_policies((a,)).sha256 == parse_policies((a,)).sha256


def test_each_policy_is_asked_only_what_it_is_about() -> None:
    text = f'@id("call") {HEAD}; @id("act") permit (principal, action == Action::"runs.list", resource);'
    parsed = parse_policies((PolicySource("m", f'{text} @id("any") permit (principal, action, resource);'),))
    kinds = {entry.id: (entry.is_call, entry.is_access) for entry in parsed.entries.values() if entry.file == "m.cedar"}
    assert kinds == {"m/call": (True, False), "m/act": (False, True), "m/any": (True, True)}
    both = 'permit (principal, action in [Action::"call", Action::"look"], resource);'
    assert parse_policies((PolicySource("m", both),)).entries["m/line_1"].is_access


PIECES = st.sampled_from(['"', "\\", "//", "/", ";", "\n", " ", "a", '"x;y"', "// c;\n", "\r"])


@given(st.lists(PIECES).map("".join))
def test_cutting_loses_nothing_but_comments_and_space_between(text: str) -> None:
    statements = cut(text)
    for statement in statements:
        assert statement.text in text
        assert statement.text.lstrip() or statement.text == ""
        assert 1 <= statement.line <= text.count("\n") + 1
    assert sum(map(len, (statement.text for statement in statements))) <= len(text)
    if not statements:
        assert all(not line.strip() or line.lstrip().startswith("//") for line in re.split(r"[\n\r]", text))


@given(st.text() | st.lists(PIECES).map("".join))
def test_any_text_is_a_book_or_is_refused(text: str) -> None:
    try:
        parsed = parse_policies((PolicySource("mine", text),))
    except PoliciesInvalid as error:
        assert error.problems
    else:
        assert len(parsed.entries) >= len(bundled_policies().entries)


@pytest.mark.parametrize("depth", [50, 500, 20_000])
@pytest.mark.parametrize(
    ("before", "after"),
    [("(", ")"), ("!", ""), ("if true then ", " else false"), ("-", ""), ("[", "]"), ("{a:", "}"), ("1 == 1 && ", "")],
)
def test_deep_nesting_is_refused_or_read(before: str, after: str, depth: int) -> None:
    """Cedar's parser would end the process."""
    text = f"{HEAD} when {{ {before * depth}{'1 == 1' if before != '-' else '(1) == 1'}{after * depth} }};"
    try:
        assert parse_policies((PolicySource("mine", text),)).entries
    except PoliciesInvalid as error:
        assert error.problems[0].line == 1


def test_semicolon_in_a_string_or_a_comment_ends_nothing() -> None:
    text = f'// a; b\n@says("x; \\" y.") {HEAD}; // c;\n{HEAD};'
    assert [statement.line for statement in cut(text)] == [2, 3]


def test_policy_behind_a_comment_that_ends_with_a_carriage_return_is_seen() -> None:
    parsed = parse_policies((PolicySource("mine", f'// hidden\r@id("seen") {HEAD};'),))
    assert "mine/seen" in parsed.entries
