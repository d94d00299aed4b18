"""Settles a judged draft: applies it or not, and reports the outcome of its call.

Owns: what the model is told of changes, the archive for undo, drafts that are kept because a file had changed.
Does not own: the verdict (draft_gate), the disk (ports.drafts), the attestation (tool_call).
"""

import asyncio
from dataclasses import dataclass

import structlog
from msgspec import DecodeError
from msgspec.structs import replace

from palyra.core.drafts.changes import (
    decode_changes,
    describe_changes,
    describe_held,
    describe_left_out,
    digest_changes,
    encode_changes,
    named_changes,
    unmatched,
    without_paths,
)
from palyra.core.drafts.review import part_held
from palyra.core.errors import PalyraError
from palyra.core.events import Draft
from palyra.core.events.draft import ChangeKind, ConflictCause, DraftConflicted, FileChange, ToolDrafted
from palyra.core.events.tool import MadeArtifact, Outcome, ToolError, ToolFinished
from palyra.core.ids import ArtifactId, parse_artifact_id
from palyra.core.run.call import Call
from palyra.core.run.fold_drafts import may_run_again
from palyra.core.trust import Trust
from palyra.core.writes import LinkArtifact, Write
from palyra.engine.session.attestor import Attested, attest
from palyra.engine.session.drafts import agent_draft
from palyra.engine.session.long_changes import beside_loop
from palyra.engine.session.tool_call import ToolExecutor, fence_of, kept_origin
from palyra.ports.drafts import AppliedDraft, DraftConflict, DraftFailure, Drafts
from palyra.ports.tools import ToolCallContext

CHANGES_MEDIA_TYPE = "application/vnd.palyra.changes+json"
ARCHIVE_MEDIA_TYPE = "application/x-tar"
LIST_BYTES_MAX = 64 * 1024 * 1024  # As long as an artifact can be.
_UNREADABLE = (
    "The list of what the command changed is lost. If a part of it was applied, what that replaced is kept in the folder "
    "drafts/kept-… of the daemon."
)
_NOT_WHOLE = "What it changed is too large to be kept as an artifact, so it is gone."
_KEPT = "What it changed is kept as the artifact {id}: look at it, apply it by hand, or leave it."
_FOLLOWS = {ChangeKind.CREATED: "it would be empty", ChangeKind.DELETED: "it is not empty"}
_FOLLOWED = "it needs what a person left out"

Facts = tuple[Draft, tuple[Write, ...]]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DraftRun:
    """One draft to settle. `call` holds what was sealed and judged."""

    executor: ToolExecutor
    drafts: Drafts
    call: Call
    context: ToolCallContext

    @property
    def _draft(self) -> ToolDrafted:
        assert self.call.draft is not None
        return self.call.draft

    async def apply(self) -> Facts:
        whole = await self._agreed()
        if whole is None:
            return self._failed("draft_missing", _UNREADABLE), ()
        unknown = unmatched(whole, self.call.without)
        if unknown:
            return self._failed("path_unknown", f"Nothing was applied: {unknown[0]} is no path of this draft."), ()
        chosen = without_paths(whole, self.call.without) if self.call.without else whole
        left_out = _left_out(whole, chosen, self.call.without)
        judged = self.call.draft_judged
        changes, held = part_held(whole, chosen, judged.held if judged is not None else None)
        match await self.drafts.apply(self.call.effect_id, changes) if changes else AppliedDraft():
            case AppliedDraft() as applied:
                await self.drafts.layer(self.call.effect_id, self.context.session_id, held, changes)
                return await self._finished(changes, held, left_out, applied)
            case DraftConflict(path=path, cause=cause):
                return await self._conflicted(path, cause)
            case DraftFailure(message=message):
                return self._failed("draft_not_applied", message), ()

    async def _agreed(self) -> tuple[FileChange, ...] | None:
        """Returns the changes that were agreed to, as the draft or the tape lists them; None if neither does.

        A list that was damaged after a kill is no reason to leave files half applied: the disk takes them back.
        """
        for read in (self._sealed, self._recorded):
            try:
                changes = await read()
            except (PalyraError, DecodeError, OSError) as cause:
                log.error("draft_unreadable", effect_id=self.call.effect_id, error=type(cause).__name__)
                continue
            if await beside_loop(digest_changes, changes) == self._draft.digest:
                return changes
        return None

    async def _sealed(self) -> tuple[FileChange, ...]:
        return (await self.drafts.read(self.call.effect_id)).changes

    async def _recorded(self) -> tuple[FileChange, ...]:
        name = self._draft.changes_artifact_id
        if name is None:
            return self._draft.changes
        body = await self.executor.artifacts.get(parse_artifact_id(name), 0, LIST_BYTES_MAX)
        return await asyncio.to_thread(decode_changes, body)

    async def discard(self) -> Facts:
        """Reports what the command said, and that nothing of what it changed was applied."""
        refusal = self.call.refusal or ToolError(code="denied", message="The changes were not allowed.")
        words = "Nothing of what the command changed was applied."
        error = ToolError(code=refusal.code, message=f"{refusal.message} {words}")
        return self._report(self._outcome(Outcome.DENIED, error, "")), ()

    def broken(self) -> Facts:
        return self._failed("draft_broken", "The draft could not be settled; see the daemon's log."), ()

    async def _finished(
        self,
        changes: tuple[FileChange, ...],
        held: tuple[FileChange, ...],
        left_out: tuple[str, ...],
        applied: AppliedDraft,
    ) -> Facts:
        draft = self._draft
        writes: list[Write] = []
        told = "\n".join(part for part in (self._told(changes, left_out, applied), describe_held(held)) if part)
        finished = replace(self._outcome(draft.outcome, draft.error, told), held_count=len(held))
        if changes:
            listed = await self._store(encode_changes(changes), CHANGES_MEDIA_TYPE, writes)
            finished = replace(finished, changes_artifact_id=listed, changes_count=len(changes))
        if applied.undo is not None:
            kept = await self._store(applied.undo, ARCHIVE_MEDIA_TYPE, writes)
            finished = replace(finished, undo_artifact_id=kept)
        return self._report(finished), tuple(writes)

    def _told(self, changes: tuple[FileChange, ...], left_out: tuple[str, ...], applied: AppliedDraft) -> str:
        parts = [
            f"[applied draft {self._draft.digest}; to take it back: fs.undo {self.call.call_id}]"
            if changes
            else "[nothing was applied]"
        ]
        parts.append(describe_changes(changes))
        parts.append(describe_left_out(self._draft.left_out, self._draft.left_out_count))
        parts += [f"not applied: {each}" for each in left_out]
        if applied.unkept_count:
            parts.append(f"[{applied.unkept_count} replaced files are too large to be kept for undo]")
        return "\n".join(part for part in parts if part)

    async def _conflicted(self, path: str, cause: ConflictCause) -> Facts:
        """Another call's change lets the command run again. A person's change never does: it stays as it is."""
        if cause is ConflictCause.DRAFT and may_run_again(self.call):
            conflicted = DraftConflicted(
                call_id=self.call.call_id,
                effect_id=self.call.effect_id,
                digest=self._draft.digest,
                cause=cause,
                path=path,
            )
            now_ms = self.executor.clock.now_ms()
            return agent_draft(conflicted, self.context.run_id, self.context.agent, Trust.SYSTEM, now_ms), ()
        who = "somebody outside" if cause is ConflictCause.PERSON else "another command"
        writes: list[Write] = []
        body = await self.drafts.archive(self.call.effect_id)
        made: tuple[MadeArtifact, ...] = ()
        words = _NOT_WHOLE
        if body is not None:
            kept = await self._store(body, ARCHIVE_MEDIA_TYPE, writes)
            made = (MadeArtifact(artifact_id=kept, name="draft.tar", media_type=ARCHIVE_MEDIA_TYPE, bytes=len(body)),)
            words = _KEPT.format(id=kept)
        message = f"{path} was changed by {who} while the command ran, so nothing of it was applied. {words}"
        finished = self._outcome(Outcome.FAILED, ToolError(code="changed_meanwhile", message=message), "")
        return self._report(replace(finished, made=made)), tuple(writes)

    async def _store(self, body: bytes, media_type: str, writes: list[Write]) -> ArtifactId:
        artifact_id = await self.executor.artifacts.put(body)
        trust, source = kept_origin(self.call, self._draft.trust, self._draft.source)
        session_id, now_ms = self.context.session_id, self.executor.clock.now_ms()
        writes.append(LinkArtifact(artifact_id, session_id, len(body), media_type, now_ms, trust, source))
        return artifact_id

    def _failed(self, code: str, message: str) -> Draft:
        return self._report(self._outcome(Outcome.FAILED, ToolError(code=code, message=message), ""))

    def _outcome(self, outcome: Outcome, error: ToolError | None, told: str) -> ToolFinished:
        """Puts the words about changes behind what the command printed."""
        draft = self._draft
        output = "\n".join(part for part in (draft.output or "", told) if part)
        fence_id, source, tool = fence_of(draft.trust, draft.source, self.call.tool)
        return ToolFinished(
            call_id=self.call.call_id,
            effect_id=self.call.effect_id,
            outcome=outcome,
            error=error,
            attestation=None,
            output=output,
            artifact_id=draft.artifact_id,
            fence_id=fence_id,
            source=source,
            tool=tool,
        )

    def _report(self, finished: ToolFinished) -> Draft:
        now_ms = self.executor.clock.now_ms()
        executed = Attested(
            tool=self.call.tool,
            arguments=self.call.arguments,
            runtime=self._draft.runtime,
            sandbox=self._draft.sandbox,
            started_at_ms=self._draft.started_at_ms,
        )
        attested = replace(finished, attestation=attest(self.executor.signer, finished, executed, now_ms))
        return agent_draft(attested, self.context.run_id, self.context.agent, self._draft.trust, now_ms)


def _left_out(
    changes: tuple[FileChange, ...], applied: tuple[FileChange, ...], without: tuple[str, ...]
) -> tuple[str, ...]:
    """Names what is not applied, and why. Without what a person left out, other changes make no sense either."""
    named, kept = set(named_changes(changes, without)), set(applied)
    return tuple(
        f"{change.path} ({'a person left it out' if change in named else _FOLLOWS.get(change.kind, _FOLLOWED)})"
        for change in changes
        if change not in kept
    )
