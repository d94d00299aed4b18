"""Managed blocks: applied once, removed without a trace, and never at the cost of what a person wrote."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from palyra.core.errors import Invalid
from palyra.core.managed_blocks import (
    BODY_CHARS_MAX,
    LINES_MAX,
    BlockApplied,
    BlockConflict,
    BlockUnchanged,
    ConflictKind,
    apply_block,
    parse_blocks,
)

SHA = "0" * 64
names = st.sampled_from(["facts", "decisions", "a", "open-tasks"])
lines = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12), max_size=4)
pieces = st.sampled_from(
    [
        "\n",
        "\r\n",
        "\r",
        "text",
        "",
        "<!-- palyra:begin facts -->",
        f"<!-- palyra:begin facts v1 sha256={SHA} -->",
        f"<!-- palyra:begin a v9 sha256={SHA} -->",
        "<!-- palyra:end facts -->",
        "<!-- palyra:end a -->",
        "<!-- PALYRA:END",
        "\u2028",
        "\ufeff",
    ]
)
texts = st.lists(pieces | st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=12).map("".join)


def applied(text: str, name: str, wanted: list[str]) -> str:
    result = apply_block(text, name, wanted)
    assert isinstance(result, BlockApplied)
    return result.text


@given(texts, names, lines)
def test_applying_twice_is_applying_once(text: str, name: str, wanted: list[str]) -> None:
    once = apply_block(text, name, wanted)
    if isinstance(once, BlockApplied):
        assert isinstance(apply_block(once.text, name, wanted), BlockUnchanged)
        (block,) = [each for each in parse_blocks(once.text).blocks if each.name == name]
        assert list(block.lines) == wanted
        assert not block.is_edited


@given(texts, texts, names, st.lists(lines, min_size=1, max_size=4))
def test_text_outside_stays_byte_for_byte_through_changes(
    before: str, after: str, name: str, contents: list[list[str]]
) -> None:
    first = apply_block(before, name, contents[0])
    assume(isinstance(first, BlockApplied) and not parse_blocks(before).blocks)
    assert isinstance(first, BlockApplied)
    text = f"{first.text}\n{after}"
    assume(len([each for each in parse_blocks(text).blocks if each.name == name]) == 1)
    assume(name not in parse_blocks(text).stray)
    (block,) = [each for each in parse_blocks(text).blocks if each.name == name]
    for wanted in contents:
        result = apply_block(text, name, wanted)
        assert not isinstance(result, BlockConflict)
        text = result.text if isinstance(result, BlockApplied) else text
        (now,) = [each for each in parse_blocks(text).blocks if each.name == name]
        assert text.startswith(first.text[: block.start])
        assert text[now.stop :] == f"{first.text}\n{after}"[block.stop :]


@given(texts, names, lines)
def test_whatever_the_marks_are_like_nothing_outside_a_block_is_lost(text: str, name: str, wanted: list[str]) -> None:
    own = [each for each in parse_blocks(text).blocks if each.name == name]
    result = apply_block(text, name, wanted)
    match result:
        case BlockApplied(text=changed) if not own:
            assert changed.startswith(text)
        case BlockApplied(text=changed):
            assert changed.startswith(text[: own[0].start])
            assert changed.endswith(text[own[0].stop :])
        case BlockConflict():
            assert own or name in parse_blocks(text).stray
        case BlockUnchanged():
            assert own


@given(lines, lines)
def test_a_block_edited_by_hand_is_a_conflict_with_both_versions(edited: list[str], wanted: list[str]) -> None:
    assume(edited != ["mine"] and edited != wanted)
    text = applied("head\n", "facts", ["mine"]).replace("mine\n", "".join(f"{line}\n" for line in edited))
    assume(not parse_blocks(text).stray)
    found = tuple(parse_blocks(text).blocks[0].lines)
    assert apply_block(text, "facts", wanted) == BlockConflict(
        kind=ConflictKind.EDITED, found=found, wanted=tuple(wanted)
    )


def test_a_block_edited_by_hand_into_what_is_wanted_is_taken_over() -> None:
    text = applied("head\n", "facts", ["old"]).replace("old", "new")
    assert isinstance(apply_block(applied(text, "facts", ["new"]), "facts", ["newer"]), BlockApplied)


def test_an_added_blank_line_is_an_edit() -> None:
    text = applied("", "facts", []).replace("-->\n<", "-->\n\n<")
    assert isinstance(apply_block(text, "facts", ["x"]), BlockConflict)


def test_changes_count_up_and_stay_in_place() -> None:
    text = applied("head\n", "facts", ["one"]) + "tail"
    result = apply_block(text, "facts", ["two", "three"])
    assert isinstance(result, BlockApplied)
    assert result.revision == 2
    assert result.text.startswith("head\n<!-- palyra:begin facts v2 sha256=")
    assert result.text.endswith("-->\ntwo\nthree\n<!-- palyra:end facts -->\ntail")


def test_line_ends_of_the_text_are_kept() -> None:
    text = applied("head\r\nmore", "facts", ["one"])
    assert text.count("\n") == text.count("\r\n") == 4
    assert text.endswith("<!-- palyra:end facts -->")


def test_other_line_ends_are_no_edit() -> None:
    text = applied("head\n", "facts", ["one", "two"]).replace("\n", "\r\n")
    assert isinstance(apply_block(text, "facts", ["one", "two"]), BlockUnchanged)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"<!-- palyra:begin facts v1 sha256={SHA} -->\nrest", ConflictKind.BROKEN),
        ("rest\n<!-- palyra:end facts -->\n", ConflictKind.BROKEN),
        ("<!-- palyra:begin facts-->\nx\n<!-- palyra:end facts -->", ConflictKind.BROKEN),
        (
            f"<!-- palyra:begin facts v1 sha256={SHA} -->\n<!-- palyra:begin a v1 sha256={SHA} -->\n"
            "<!-- palyra:end a -->\n<!-- palyra:end facts -->",
            ConflictKind.BROKEN,
        ),
        (f"<!-- palyra:begin facts v1 sha256={SHA} -->\n<!-- palyra:end facts -->\n" * 2, ConflictKind.REPEATED),
    ],
)
def test_broken_nested_and_repeated_blocks_are_conflicts(text: str, kind: ConflictKind) -> None:
    result = apply_block(text, "facts", ["x"])
    assert isinstance(result, BlockConflict)
    assert result.kind is kind


def test_a_whole_block_inside_a_broken_one_is_still_kept_up_to_date() -> None:
    inner = applied("", "a", ["one"])
    text = f"<!-- palyra:begin facts v1 sha256={SHA} -->\n{inner}<!-- palyra:end facts -->\n"
    assert "two" in applied(text, "a", ["two"])


@pytest.mark.parametrize("line", ["a\nb", "a\r", "<!-- palyra:end facts -->", "x <!--palyra:begin y"])
def test_lines_that_would_break_the_block_are_refused(line: str) -> None:
    with pytest.raises(Invalid, match="block_line_invalid"):
        apply_block("", "facts", [line])


@pytest.mark.parametrize("name", ["", "Facts", "a b", "-a", "a-", "x" * 65, "a\n"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(Invalid, match="block_name_invalid"):
        apply_block("", name, [])


def test_blocks_are_bounded() -> None:
    with pytest.raises(Invalid, match="block_too_large"):
        apply_block("", "facts", [""] * (LINES_MAX + 1))
    with pytest.raises(Invalid, match="block_too_large"):
        apply_block("", "facts", ["x" * BODY_CHARS_MAX])
