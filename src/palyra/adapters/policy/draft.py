"""Policies beside the daemon. Owns: a policy of a home's files, or of drafts over them, that stays as it is. Not: reloads."""

from collections.abc import Callable, Sequence
from pathlib import Path

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import draft_shelf


def load_policies(root: Path, now_ms: Callable[[], int] | None = None) -> CedarPolicy:
    """The bundled policies and those of a home's folder, as they are now; Invalid says what is wrong with them."""
    return load_draft((), root, now_ms)


def load_draft(drafts: Sequence[Path], root: Path, now_ms: Callable[[], int] | None = None) -> CedarPolicy:
    """The same with drafts over it: one named like a file of the folder takes its place, others come beside it."""
    return CedarPolicy(draft_shelf(drafts, root), now_ms)
