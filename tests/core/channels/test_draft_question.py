"""The question about a draft, as a channel asks it."""

from palyra.core.channels.replies import question_text
from palyra.core.events.tool import ApprovalKind, ApprovalRequested, Risk
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
