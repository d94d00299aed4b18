"""Sensitive files: which paths git would run something from, and which only look like it."""

import pytest

from palyra.core.sensitive_files import is_git_run, is_instruction, is_sensitive


@pytest.mark.parametrize(
    "path",
    [
        ".git/config", "sub/.git/hooks/pre-commit", ".GIT/config", "x.git/config", ".husky/pre-push", ".githooks/update",
        "HEAD", "/ws/HEAD", "./HEAD", "sub/deep/HEAD", "head", "packed-refs", "sub/packed-refs", "hooks/pre-commit",
        "/ws/hooks/post-checkout", "sub/hooks/fsmonitor-watchman", "Hooks/Pre-Push", ".gitconfig", "sub/.gitconfig",
    ],
)  # fmt: skip
def test_what_git_would_run_or_takes_for_a_repository_is_told_by_its_name(path: str) -> None:
    assert is_git_run(path)
    assert is_sensitive(path)


@pytest.mark.parametrize(
    "path",
    [
        "", "/", ".", "config", "src/config", "objects/x", "refs/x", "HEAD.md", "head.py", "src/hooks/useTable.ts", "pre-commit",
        "HEAD/x", "hooks/pre-commit/x", "hooks/update.py", ".gitignore", ".github/workflows/a.yml", "git/x", "packed-refs.txt",
    ],
)  # fmt: skip
def test_names_that_projects_use_are_not_taken_for_a_repository(path: str) -> None:
    assert not is_git_run(path)


def test_a_hook_that_is_not_of_git_is_an_instruction_still() -> None:
    assert is_instruction("hooks/start.sh")
    assert not is_git_run("hooks/start.sh")
