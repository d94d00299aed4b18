"""Patches: read as they are written, applied exactly or not at all, and never twice."""

from difflib import unified_diff

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palyra.core.errors import Conflict, Invalid, PalyraError
from palyra.core.patch_parser import FILES_MAX, HUNKS_MAX, read_patch
from palyra.core.patches import Applied, FilePatch, PatchKind, apply

NO_END = "\\ No newline at end of file"
letters = st.text(alphabet="ab-+@ \\\r\té\x0c\u2028", max_size=3)
texts = st.one_of(
    st.lists(letters, max_size=14).map("\n".join),
    st.lists(st.sampled_from(["a", "b", "", "}", "--- x", "+++ x", "@@", "-- y"]), max_size=14).map("\n".join),
).flatmap(lambda text: st.sampled_from([text, text + "\n"]))


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def diff(old: str, new: str, context: int = 3) -> str:
    """As `diff -u` and git write it, line feeds alone ending lines."""
    lines = unified_diff(lines_of(old), lines_of(new), "a/f", "b/f", n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_END}\n" for line in lines)


def one(patch: str) -> FilePatch:
    (found,) = read_patch(patch)
    return found


def hunk(*lines: str, head: str = "@@") -> FilePatch:
    return one("\n".join(["--- a/f", "+++ b/f", head, *lines]) + "\n")


def code_of(patch: FilePatch, text: str) -> tuple[str, str]:
    with pytest.raises(Conflict) as caught:
        apply(patch, text)
    return caught.value.code, caught.value.message


@given(texts, texts, st.integers(1, 4))
@example("a\na\na\n", "a\na\n", 3)
@example("", "a", 3)
@example("a", "", 3)
@example("a\r\nb\r\n", "a\nb\n", 3)
def test_diff_of_two_texts_applied_to_the_first_gives_the_second(old: str, new: str, context: int) -> None:
    if old == new:
        return
    patch = one(diff(old, new, context))
    if patch.kind is PatchKind.CREATE:
        assert (old, patch.hunks[0].after) == ("", new)
        return
    assert apply(patch, old) == Applied(text=new, is_new=True)


distinct = st.lists(st.sampled_from("abcdefghijkl"), max_size=12, unique=True).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


@given(distinct, distinct, st.integers(1, 4), st.booleans())
def test_applying_again_changes_nothing_where_no_line_stands_twice(
    old: str, new: str, context: int, is_numbered: bool
) -> None:
    if not old or old == new:
        return
    text = diff(old, new, context)
    if not is_numbered:
        text = "\n".join("@@" if line.startswith("@@ -") else line for line in text.split("\n"))
    patch = one(text)
    assert apply(patch, old) == Applied(text=new, is_new=True)
    assert apply(patch, new) == Applied(text=new, is_new=False)


@given(st.lists(st.uuids().map(str), min_size=8, max_size=30, unique=True), st.data())
def test_text_without_repeated_lines_is_always_patched(lines: list[str], data: st.DataObject) -> None:
    """No doubt can arise there, so nothing is ever taken for applied, with numbers or without."""
    old = "\n".join(lines) + "\n"
    at = data.draw(st.integers(0, len(lines) - 1))
    new = "\n".join([*lines[:at], "new", *lines[at + data.draw(st.integers(0, 1)) :]]) + "\n"
    text = diff(old, new)
    assert apply(one(text), old).text == new
    assert apply(one(text.replace(text.split("\n")[2], "@@")), old).text == new
    assert apply(one(text.replace(text.split("\n")[2], "@@ -7,99 +3 @@ wrong")), old).text == new


@given(st.text(max_size=300), st.text(max_size=50))
def test_garbage_is_refused_or_read_but_never_breaks(garbage: str, text: str) -> None:
    heads = ("", "--- a/f\n+++ b/f\n", "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n", "diff --git a/f b/f\n")
    for head in heads:
        try:
            for patch in read_patch(head + garbage):
                apply(patch, text)
        except PalyraError as refused:
            assert refused.message


patch_lines = st.sampled_from(
    [
        "--- a/f",
        "+++ b/f",
        "--- /dev/null",
        "+++ /dev/null",
        "@@ -1,2 +1,2 @@",
        "@@",
        "@@ -0,0 +1 @@",
        " a",
        "-a",
        "+b",
        "",
        NO_END,
        "diff --git a/f b/f",
        "rename from f",
        "rename to g",
        "new file mode 100644",
        "```",
        "words",
    ]
)


@given(st.lists(patch_lines, max_size=15).map("\n".join), texts)
def test_pieces_of_patches_in_any_order_never_break(patch: str, text: str) -> None:
    try:
        for each in read_patch(patch):
            again = apply(each, text)
            assert again.is_new or again.text == text
    except PalyraError as refused:
        assert refused.message


def test_hunk_is_applied_where_it_says_although_its_lines_stand_elsewhere_too() -> None:
    text = "x\nend\nx\nend\nx\nend\n"
    applied = apply(hunk("-x", "+y", " end", head="@@ -3,2 +3,2 @@"), text)
    assert (applied.text, applied.moved) == ("x\nend\ny\nend\nx\nend\n", ())


def test_hunk_that_stands_once_elsewhere_is_found_and_the_line_is_told() -> None:
    applied = apply(hunk("-x", "+y", head="@@ -9 +9 @@"), "1\n2\nx\n")
    assert (applied.text, applied.moved) == ("1\n2\ny\n", ((1, 3),))


def test_hunk_that_stands_twice_elsewhere_is_refused() -> None:
    code, message = code_of(hunk("-x", "+y", head="@@ -9 +9 @@"), "x\n1\nx\n")
    assert (code, "several" in message) == ("hunk_ambiguous", True)
    assert code_of(hunk("-x", "+y"), "x\n1\nx\n")[0] == "hunk_ambiguous"


def test_mismatch_names_the_hunk_the_line_and_what_stands_there() -> None:
    patch = one("--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-one\n+1\n@@ -3,2 +3,2 @@\n three\n-four\n+4\n")
    code, message = code_of(patch, "one\ntwo\nthree\nfive\n")
    assert (code, message) == ("hunk_mismatch", "f: hunk 2 does not match: line 4 should be 'four' and is 'five'")


def test_mismatch_without_numbers_looks_where_the_first_line_stands() -> None:
    _, message = code_of(hunk(" three", "-four", "+4"), "one\ntwo\nthree\nfive\n")
    assert message == "f: hunk 1 does not match: line 4 should be 'four' and is 'five'"
    _, message = code_of(hunk(" three", " four", "-five"), "three\n")
    assert message == "f: hunk 1 does not match: line 2 should be 'four', but the file has 1 line"
    _, message = code_of(hunk("-nowhere"), "three\n")
    assert message == "f: hunk 1 does not match: 'nowhere' does not stand in the file"


def test_long_and_odd_lines_are_cut_and_spelled_out_in_a_mismatch() -> None:
    _, message = code_of(hunk(" a", "-b"), "a\n\x1b[2J" + "x" * 500 + "\n")
    assert "\\x1b[2J" in message
    assert len(message) < 300


def test_counts_may_be_wrong_or_missing() -> None:
    text = "a\nb\nc\n"
    for head in (
        "@@ -1,9 +1,9 @@",
        "@@ -1 +1 @@",
        "@@ -1,1 +1,1 @@ def f",
        "@@ @@",
        "@@",
        "@@ def f():",
        "@@ -2,3 +2,3 @@",
    ):
        assert apply(hunk(" a", "-b", "+x", " c", head=head), text).text == "a\nx\nc\n"


def test_right_counts_protect_lines_that_look_like_headers() -> None:
    old, new = "-- a/x\n-- y\nkeep\n", "++ b/x\nkeep\n"
    assert apply(one(diff(old, new)), old).text == new


def test_empty_lines_may_have_lost_their_blank() -> None:
    assert apply(hunk(" a", "", "-b", "+c", ""), "a\n\nb\n\n").text == "a\n\nc\n\n"


def test_hunks_out_of_order_and_two_sections_of_one_file_are_one_change() -> None:
    patch = "--- a/f\n+++ b/f\n@@\n-c\n+3\n@@\n-a\n+1\n--- a/f\n+++ b/f\n@@\n-b\n+2\n"
    assert apply(one(patch), "a\nb\nc\n").text == "1\n2\n3\n"


def test_hunks_that_overlap_are_refused() -> None:
    patch = one("--- a/f\n+++ b/f\n@@\n a\n-b\n+x\n@@\n-b\n+y\n c\n")
    assert code_of(patch, "a\nb\nc\n")[0] == "hunks_overlap"


def test_hunk_without_context_is_refused_unless_the_text_is_empty() -> None:
    assert code_of(one("--- a/f\n+++ b/f\n@@ -1,0 +2 @@\n+x\n"), "a\n")[0] == "hunk_without_context"


def test_insertion_with_context_on_one_side_is_not_made_twice() -> None:
    patch = hunk(" import a", "+import b")
    first = apply(patch, "import a\nrest\n")
    assert (first.text, first.is_new) == ("import a\nimport b\nrest\n", True)
    assert not apply(patch, first.text).is_new


def test_one_of_two_equal_lines_can_be_removed() -> None:
    patch = hunk(" a", "-a", " b", head="@@ -1,3 +1,2 @@")
    assert apply(patch, "a\na\nb\n").text == "a\nb\n"
    assert not apply(patch, "a\nb\n").is_new


def test_removal_with_context_on_one_side_is_not_taken_for_done_where_something_else_stands() -> None:
    """The line may stand there in another spelling, and saying that it is gone would be wrong."""
    patch = hunk(" def f():", "-    x=1")
    assert code_of(patch, "def f():\n    x = 1\n")[0] == "hunk_mismatch"
    assert not apply(patch, "def f():\n").is_new
    assert apply(patch, "def f():\n    x=1\n    y\n").text == "def f():\n    y\n"


def test_file_with_crlf_keeps_it_whatever_the_patch_was_written_with() -> None:
    text = "a\r\nb\r\nc\r\n"
    assert apply(hunk(" a", "-b", "+x", "+y"), text).text == "a\r\nx\r\ny\r\nc\r\n"
    whole = "--- a/f\r\n+++ b/f\r\n@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+x\r\n"
    assert apply(one(whole), text).text == "a\r\nx\r\nc\r\n"
    assert apply(one(whole), "a\nb\nc\n").text == "a\nx\nc\n"
    assert apply(hunk("-c", "+d"), "a\r\nc").text == "a\r\nd"


def test_patch_that_changes_line_ends_does_so() -> None:
    assert apply(one(diff("a\r\nb\r\n", "a\nb\n")), "a\r\nb\r\n").text == "a\nb\n"


def test_last_line_without_line_feed_is_told_apart_only_if_the_patch_does() -> None:
    assert apply(one(diff("a\nb", "a\nb\n")), "a\nb").text == "a\nb\n"
    assert apply(one(diff("a\nb\n", "a\nb")), "a\nb\n").text == "a\nb"
    assert apply(hunk(" a", "-b", "+c"), "a\nb").text == "a\nc"
    assert code_of(one(diff("a\nb", "a\nc")), "a\nb\n")[0] == "hunk_mismatch"


def test_names_are_read_with_and_without_gits_prefixes_quotes_and_times() -> None:
    def names(old: str, new: str) -> tuple[str, str]:
        patch = one(f"--- {old}\n+++ {new}\n@@\n-a\n+b\n")
        return patch.source, patch.path

    assert names("a/x y\t2020-01-01", "b/x y\t2020-01-02") == ("x y", "x y")
    assert names("x", "x") == ("x", "x")
    assert names("a/x", "a/x") == ("a/x", "a/x")
    assert names('"a/f\\303\\251\\t\\"\\\\"', '"b/f\\303\\251\\t\\"\\\\"') == ('fé\t"\\', 'fé\t"\\')
    assert names("a/old", "b/new") == ("old", "new")


def test_git_headers_say_what_is_created_deleted_and_renamed() -> None:
    patch = """words before
diff --git a/made b/made
new file mode 100755
index 0000000..1111111
--- /dev/null
+++ b/made
@@ -0,0 +1 @@
+x
diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-y
diff --git a/a/old name b/b/new name
similarity index 100%
rename from a/old name
rename to b/new name
diff --git a/p b/q
similarity index 80%
rename from p
rename to q
--- a/p
+++ b/q
@@ -1 +1 @@
-z
+w
"""
    made, empty, gone, renamed, both = read_patch(patch)
    assert (made.kind, made.path, made.is_executable) == (PatchKind.CREATE, "made", True)
    assert (empty.kind, empty.path, empty.hunks) == (PatchKind.CREATE, "empty", ())
    assert (gone.kind, gone.path) == (PatchKind.DELETE, "gone")
    assert (renamed.kind, renamed.source, renamed.path) == (PatchKind.CHANGE, "a/old name", "b/new name")
    assert (both.source, both.path, len(both.hunks)) == ("p", "q", 1)


def test_fence_and_words_around_a_patch_are_no_part_of_it() -> None:
    patch = one("Here:\n```diff\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n```\nThat is all.\n")
    assert apply(patch, "a\n").text == "b\n"


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "words",
        "@@ -1 +1 @@\n-a\n+b\n",
        "--- a/f\n+++ b/f\n",
        "--- a/f\n+++ b/f\n@@@ -1 -1 +1 @@@\n",
        "--- a/f\n+++ b/f\n@@\n-a\n*b\n",
        "--- /dev/null\n+++ /dev/null\n@@\n+a\n",
        "--- /dev/null\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n",
        "--- a/f\n+++ /dev/null\n@@\n-a\n--- a/f\n+++ b/f\n@@\n-a\n",
        "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n",
        "diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+/etc\n",
        "diff --git a/f b/f\nindex 1..2\nBinary files a/f and b/f differ\n",
        "diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n",
    ],
)
def test_what_is_no_patch_or_asks_for_more_is_refused(patch: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_patch(patch)
    assert caught.value.code == "patch_invalid"


def test_limits_of_files_and_hunks_hold() -> None:
    section = "--- a/{0}\n+++ b/{0}\n@@\n-a\n"
    assert len(read_patch("".join(section.format(number) for number in range(FILES_MAX)))) == FILES_MAX
    hunks = "--- a/f\n+++ b/f\n" + "@@\n-a\n" * HUNKS_MAX
    assert len(one(hunks).hunks) == HUNKS_MAX
    for patch in ("".join(section.format(number) for number in range(FILES_MAX + 1)), hunks + "@@\n-a\n"):
        with pytest.raises(Invalid) as caught:
            read_patch(patch)
        assert caught.value.code == "patch_too_large"
