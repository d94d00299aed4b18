"""Fails when a commit's message is not in the form CONTRIBUTING.md asks for.

Owns: the form of the messages of this branch, merges excepted, from the commit after the one that added this file.
Does not own: what a message says. Whether a subject is imperative is for a reader to judge.
Where history does not reach back to that commit (a shallow clone, an exported tree) nothing can be checked: it says so
and passes.
"""

import re
import subprocess
import sys
from pathlib import Path

SUBJECT_LENGTH_MAX = 72
_SENTENCE = re.compile(r"\w+\W+\w.*[.!?:](\s|$)", re.DOTALL)


def main() -> int:
    ours = Path(__file__).resolve()
    added = _git(ours.parent, "log", "--diff-filter=A", "--format=%H", "--", ours.name)
    is_shallow = _git(ours.parent, "rev-parse", "--is-shallow-repository")
    if not added or is_shallow != "false":
        print("commits were not checked: the history is not here")
        return 0
    first = added.splitlines()[-1]
    commits = (_git(ours.parent, "rev-list", "--no-merges", f"{first}..HEAD") or "").split()
    faults = [
        f"{commit[:12]}: {fault}"
        for commit in commits
        for fault in find_faults(_git(ours.parent, "show", "-s", "--format=%B", commit) or "")
    ]
    print("\n".join([*faults, f"{len(commits)} commits checked, {len(faults)} faults"]))
    return 1 if faults else 0


def find_faults(message: str) -> list[str]:
    """What is wrong with a message, in words."""
    subject, *rest = message.rstrip("\n").split("\n")
    body = "\n".join(rest[1:]).strip()
    checks = [
        (1 <= len(subject) <= SUBJECT_LENGTH_MAX, f"the subject has 1 to {SUBJECT_LENGTH_MAX} characters"),
        (subject[:1].isupper(), "the subject begins with a capital letter"),
        (not subject.endswith("."), "the subject ends without a full stop"),
        (rest[:1] in ([], [""]), "the second line is empty"),
        (_SENTENCE.search(body) is not None, "the body has at least one sentence, which says why"),
    ]
    return [rule for is_kept, rule in checks if not is_kept]


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip("\n")


if __name__ == "__main__":
    sys.exit(main())
