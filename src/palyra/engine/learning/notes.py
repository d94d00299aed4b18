"""Writes the notes of principals, and the shared lines of workspaces, from the accepted candidates.

Owns: which blocks a candidate's state touches, and carrying lines of earlier days over into notes.
Does not own: changing a document (engine.api.workspace_documents), which lines a block has (core.learning.documents).
A block is written whole from what is accepted now. So it does not matter how often it is written, or in which order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from palyra.core.errors import PalyraError
from palyra.core.learning.documents import (
    BLOCKS,
    DOCUMENT,
    IN_WORKSPACE,
    PATH,
    SHARED,
    SHARED_BLOCKS,
    block_lines,
    is_in_workspace_for_all,
    line_of,
    notes_path,
)
from palyra.core.learning.model import Candidate
from palyra.core.managed_blocks import BlockConflict, parse_blocks
from palyra.core.taint import SOURCES_MAX
from palyra.engine.api.workspace_documents import BlockChange, WorkspaceDocuments
from palyra.ports.learning import LearningViews


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesWriter:
    documents: WorkspaceDocuments
    views: LearningViews

    async def write(self, candidate: Candidate) -> str:
        """Writes every block that the candidate's state touches. Returns the target, or after a `!` what prevents it."""
        root, kind = candidate.details[DOCUMENT], candidate.kind
        path = notes_path(candidate.owner, root)
        own = [each for each in await self.views.candidates_in(root, kind, candidate.owner) if _is_private(each)]
        conflict = await self._put(candidate, self.documents.notes_root, path, BLOCKS[kind], own)
        target = f"notes:{path}#{BLOCKS[kind]}"
        if SHARED in candidate.details and not conflict:
            shared = [each for each in await self.views.candidates_in(root, kind) if not _is_private(each)]
            conflict = await self._put(candidate, root, PATH, SHARED_BLOCKS[kind], shared)
            target = f"{IN_WORKSPACE}{SHARED_BLOCKS[kind]}"
        if is_in_workspace_for_all(candidate):
            await self._clear_workspace(candidate)
        return conflict or target

    async def is_due(self, candidate: Candidate) -> bool:
        """Tells whether an accepted candidate is not where it belongs: others read it, or its notes are not there.

        A backup has no notes, so a restored home writes them anew from its journal.
        """
        if is_in_workspace_for_all(candidate):
            return True
        if DOCUMENT not in candidate.details or SHARED in candidate.details or not candidate.applied_to:
            return False
        path = notes_path(candidate.owner, candidate.details[DOCUMENT])
        try:
            return (await self.documents.files.read(self.documents.notes_root, path)).text is None
        except PalyraError:
            return False

    async def _put(self, by: Candidate, root: str, path: str, name: str, accepted: Sequence[Candidate]) -> str:
        change = BlockChange(
            principal=by.owner,
            session_id=by.session_id,
            root=root,
            path=path,
            name=name,
            lines=block_lines(accepted, by.kind),
            taint=tuple(sorted({source for each in accepted for source in each.taint}))[:SOURCES_MAX],
        )
        outcome = await self.documents.apply_managed_block(change)
        if isinstance(outcome, BlockConflict):
            return f"!the block {name} of {path} was changed by hand ({outcome.kind.value})"
        return ""

    async def _clear_workspace(self, candidate: Candidate) -> None:
        """Takes the lines whose principals are known out of the workspace. What was edited by hand stays as it is.

        No prompt is given the block that stays (core.managed_blocks), and `palyra doctor` names it.
        """
        root, kind = candidate.details[DOCUMENT], candidate.kind
        known = {f"- {line_of(each.content)}" for each in (candidate, *await self.views.candidates_in(root, kind))}
        try:
            found = await self.documents.files.read(root, PATH)
            blocks = [each for each in parse_blocks(found.text or "").blocks if each.name == BLOCKS[kind]]
            if not blocks:
                return
            change = BlockChange(
                principal=candidate.owner,
                session_id=candidate.session_id,
                root=root,
                path=PATH,
                name=BLOCKS[kind],
                lines=tuple(line for line in blocks[0].lines if line not in known),
                taint=(),
            )
            await self.documents.apply_managed_block(change)
        except PalyraError:
            return  # The workspace is gone, or no longer the agent's: nothing of it is in a prompt.


def _is_private(candidate: Candidate) -> bool:
    return SHARED not in candidate.details
