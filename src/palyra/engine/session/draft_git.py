"""Judges what a draft brings into reach of git, as the file writes it stands for.

Owns: which pairs of path and content ask, and how they are named and shown on the card.
Does not own: finding them (adapters.drafts.git_changes), the policies, the rest of a set (draft_gate).
All pairs are judged by their paths first, and with content from outside by that content, because that is quick. Only
those that ask are compared with the files and with the history.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from palyra.core.drafts.changes import ChangeSet, LinkedChange
from palyra.core.drafts.git import (
    COMMIT,
    GitText,
    GitWrite,
    as_change,
    describe_write,
    linked_names,
)
from palyra.core.drafts.judge import shown_path
from palyra.core.drafts.review import unseen_reason
from palyra.core.events.draft import FileChange
from palyra.core.events.tool import Verdict
from palyra.core.ids import EffectId
from palyra.engine.session.long_changes import beside_loop
from palyra.ports.drafts import Drafts
from palyra.ports.policy import PolicyAnswer

JudgePaths = Callable[[ChangeSet], Awaitable[tuple[PolicyAnswer, tuple[FileChange, ...]]]]


class GitFinding(msgspec.Struct, frozen=True):
    """The answer for what git would write, and the writes that made it so strict."""

    answer: PolicyAnswer
    texts: tuple[GitText, ...] = ()

    def names(self, first_root: str) -> tuple[str, ...]:
        return tuple(name_write(text.write, first_root) for text in self.texts)


@dataclass(frozen=True, slots=True)
class GitGate:
    """`judge_paths` is the gate's own judgement of a set of changes, and `applied` are the places at which
    files are written without a question."""

    drafts: Drafts
    judge_paths: JudgePaths
    applied: frozenset[tuple[str, str]]
    is_tainted: bool

    async def judge(self, effect_id: EffectId, writes: tuple[GitWrite, ...]) -> GitFinding:
        texts = tuple(GitText(write, None) for write in writes)
        if self.is_tainted:
            texts = await self.drafts.read_git(effect_id, writes)
        asked = await self._judge(texts)
        if not asked.texts:
            return asked
        suspects = tuple(text.write for text in asked.texts)
        return await self._judge(await self.drafts.look_into_git(effect_id, suspects, self.applied))

    def _seen(self, text: GitText) -> GitWrite:
        """Marks content from outside that nobody would see in a review."""
        write, body = text.write, text.body
        is_shown = bool(write.path) and body is not None and unseen_reason(write.path, body) is None
        is_plain = write.mode == COMMIT or is_shown or not self.is_tainted
        return write if is_plain else msgspec.structs.replace(write, is_hidden=True)

    async def _judge(self, texts: tuple[GitText, ...]) -> GitFinding:
        change_set = await beside_loop(self._change_set, texts)
        answer, held = await self.judge_paths(change_set)
        if answer.verdict is Verdict.ALLOW:
            return GitFinding(answer)
        asking = frozenset(held)
        found = zip(texts, change_set.changes, strict=True)
        return GitFinding(answer, tuple(text for text, change in found if change in asking))

    def _change_set(self, texts: tuple[GitText, ...]) -> ChangeSet:
        writes = tuple(map(self._seen, texts))
        linked = tuple(
            LinkedChange(root=root, path=path, names=names) for (root, path), names in linked_names(writes).items()
        )
        return ChangeSet(changes=tuple(map(as_change, writes)), linked=linked)


def name_write(write: GitWrite, first_root: str) -> str:
    return describe_write(write, shown_path(as_change(write), first_root))
