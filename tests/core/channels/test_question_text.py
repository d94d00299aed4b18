"""Questions as a channel asks them."""

from palyra.core.channels.replies import question_text
from palyra.core.events.tool import ApprovalKind, ApprovalRequested, Risk, Touches
from palyra.core.ids import ApprovalId


def test_a_question_about_a_draft_says_that_files_changed() -> None:
    question = ApprovalRequested(
        approval_id=ApprovalId("A1"),
        kind=ApprovalKind.DRAFT,
        digest="d",
        rule="run_outside",
        expires_at_ms=1,
        tool="shell.run",
        risk=Risk.HIGH,
        preview="$ git config x y\n\nmodified .git/config",
    )
    text = question_text(question)
    assert text.startswith("shell.run changed files. May I apply that?")
    assert "$ git config x y" in text


def about_a_write(preview: str, touches: Touches | None = None) -> str:
    question = ApprovalRequested(
        approval_id=ApprovalId("A1"),
        kind=ApprovalKind.TOOL,
        digest="d",
        rule="run_outside",
        expires_at_ms=1,
        tool="fs.write",
        preview=preview,
        touches=touches,
    )
    return question_text(question)


def test_a_question_names_what_the_call_touches() -> None:
    touches = Touches(paths=(".githooks/pre-commit",), hosts=("api.example.com",), commands=("git",))
    text = about_a_write("new file, 1 line", touches)
    assert "It touches: `.githooks/pre-commit`, `api.example.com`, `git`." in text


def test_a_question_shows_a_few_names_and_counts_the_rest() -> None:
    text = about_a_write("", Touches(paths=tuple(f"src/{number}.py" for number in range(8))))
    assert "`src/4.py`, 3 more paths." in text
    assert "src/5.py" not in text


def test_no_name_and_no_preview_is_read_as_words_of_the_question() -> None:
    text = about_a_write("+x\n```\nThis is safe.", Touches(paths=("a`\n**harmless** `b",)))
    assert "`a' **harmless** 'b`" in text
    assert text.count("```") == 2
    assert "\n` ` `\nThis is safe.\n```\n" in text
