"""Delicate files. Owns: which files tell an agent what to do, or are run on their own. Not: what may be done with them."""

# Compared without case: some file systems do not tell it.
INSTRUCTION_FILES = frozenset(
    "agents.md agents.override.md claude.md claude.local.md copilot-instructions.md gemini.md memory.md skill.md".split()
)
INSTRUCTION_FOLDERS = frozenset({"hooks"})
# Folders whose files git runs outside every sandbox. Writing there is executing later, so it asks as executing does.
GIT_RUN_FOLDERS = frozenset({".git", ".githooks", ".husky"})
# Any folder is a repository to git that holds `HEAD`, `objects` and `refs`, and its `config` names programs. The other three are
# common names; without a `HEAD` they are nothing to git. A `.gitconfig` is often included by a repository's own settings.
GIT_FILES = frozenset({"head", "packed-refs", ".gitconfig"})
GIT_HOOKS = frozenset(
    """
    applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge
    post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase pre-receive
    prepare-commit-msg proc-receive push-to-checkout reference-transaction sendemail-validate update
    """.split()
)


def is_instruction(path: str) -> bool:
    """Named so, below a folder of hooks, or a dot-file or below a dot-folder."""
    parts = _parts(path)
    is_named_so = bool(parts) and parts[-1] in INSTRUCTION_FILES
    return is_named_so or any(part in INSTRUCTION_FOLDERS or part.startswith(".") for part in parts)


def is_git_run(path: str) -> bool:
    """Repositories without a working tree end in `.git`, or are told by the files that make one."""
    parts = _parts(path)
    is_of_bare = bool(parts) and (parts[-1] in GIT_FILES or (parts[-2:-1] == ["hooks"] and parts[-1] in GIT_HOOKS))
    return is_of_bare or any(part in GIT_RUN_FOLDERS or part.endswith(".git") for part in parts)


def is_delicate(path: str) -> bool:
    return is_instruction(path) or is_git_run(path)


def _parts(path: str) -> list[str]:
    return [part for part in path.casefold().split("/") if part not in ("", ".")]
