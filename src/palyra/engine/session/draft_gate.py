"""Judges what a command changed in its draft, as the file writes it stands for.

Owns: the order of the checks on a set of changes, and what its card shows.
Does not own: the policies, the rules of a set (core.drafts.judge), asking (core.run).
Invariant: the strictest answer of all paths is the answer for the set, and an error inside is a refusal (L6).
"""

import asyncio
from dataclasses import dataclass

import msgspec
import structlog
from msgspec.structs import replace

from palyra.core.budget import left_usd
from palyra.core.delegation import agents_above, channel_of
from palyra.core.drafts.changes import (
    ChangeSet,
    Place,
    digest_changes,
    is_folder,
    place_of,
    without_paths,
)
from palyra.core.drafts.git import GitText
from palyra.core.drafts.judge import (
    DELETES_MANY,
    PathGroup,
    Written,
    deleted_files,
    deletes_many,
    group_changes,
    name_written,
    order_asking,
    shown_path,
    split,
    write_spec,
)
from palyra.core.drafts.review import hold_back, pack_places, part_held
from palyra.core.errors import PalyraError
from palyra.core.events.draft import DraftJudged, FileChange, ToolDrafted
from palyra.core.events.tool import Verdict
from palyra.core.run.call import Call
from palyra.core.run.questions import TOUCHED_MAX
from palyra.core.run.state import Run
from palyra.core.taint import UNNAMED
from palyra.core.tools import CallNature
from palyra.core.trust import is_tainting
from palyra.engine.session.draft_card import AskedDraft, DraftCard
from palyra.engine.session.draft_git import GitGate, name_write
from palyra.engine.session.gate import GateCase
from palyra.engine.session.long_changes import beside_loop
from palyra.engine.spend.ledger import Ledger, spender_of
from palyra.ports.clock import Clock
from palyra.ports.drafts import Drafts
from palyra.ports.policy import Policy, PolicyAnswer, PolicyQuestion
from palyra.ports.tools import Catalog

_STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}
PATH_SHOWN_MAX = 500
LAYER_BYTES_MAX = 10 * 1024**3  # As much as one command may leave.
LAYER_FULL = (
    "The layer of this session, which holds what no review shows, would have more than 10 GiB. `palyra runs keep` applies "
    "what it holds, `palyra sessions reset` removes it; a command may delete files of it."
)

log = structlog.get_logger()


class _Finding(msgspec.Struct, frozen=True):
    """The answer for a set, and the changes that made it so strict."""

    answer: PolicyAnswer
    changes: tuple[FileChange, ...] = ()
    git: tuple[GitText, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftGate:
    drafts: Drafts
    catalog: Catalog
    policy: Policy
    ledger: Ledger
    card: DraftCard
    clock: Clock
    approval_timeout_ms: int

    async def judge(self, run: Run, call: Call, case: GateCase) -> DraftJudged:
        draft = call.draft
        if draft is None:
            return _refuse(call, "", "draft_missing", "There is no draft to judge.")
        change_set = await self._sealed(call, draft)
        if isinstance(change_set, DraftJudged):
            return change_set
        changes = change_set.changes
        taint = _taint(case, draft)
        try:
            kept = await self._kept(call, case, change_set, taint)
        except (PalyraError, OSError) as cause:
            log.error("draft_unreadable", effect_id=call.effect_id, error=type(cause).__name__)
            return _refuse(call, draft.digest, "draft_missing", "What the command changed cannot be read any more.")
        if kept is None:
            return _refuse(call, draft.digest, "layer_full", LAYER_FULL)
        if kept:
            applied = tuple(change for change in changes if place_of(change) not in kept)
            change_set = replace(change_set, changes=applied)
        finding = await self._find(run, call, case, change_set, taint)
        written = await asyncio.to_thread(name_written, changes, taint) if taint else Written()
        answer = _askable(run, finding.answer)
        if answer.verdict is not Verdict.ALLOW:
            await self.drafts.release(call.effect_id)
        packed = pack_places(changes, kept) if kept else None
        return await self._judged(run, call, draft, finding, _Verdict(answer, taint, written, case, kept, packed))

    async def _kept(
        self, call: Call, case: GateCase, change_set: ChangeSet, taint: tuple[str, ...]
    ) -> frozenset[Place] | None:
        """Returns what is not applied but stays in the layer of the session; None if that has no room for it."""
        if not taint and not change_set.has_layer:
            return frozenset()
        changes = change_set.changes
        review = await self.drafts.review(call.effect_id, case.session_id, changes)
        unseen = review.unseen if taint else {}
        kept = await asyncio.to_thread(hold_back, changes, unseen, review.layer_folders)
        new_bytes = sum(change.bytes for change in changes if place_of(change) in kept)
        return kept if not new_bytes or review.layer_bytes + new_bytes <= LAYER_BYTES_MAX else None

    async def judge_again(
        self, run: Run, call: Call, case: GateCase, without: tuple[str, ...]
    ) -> PolicyAnswer | DraftJudged:
        """Judges, by what holds now, what an answer would apply: the changes without what a person left out."""
        draft = call.draft
        if draft is None:
            return _refuse(call, "", "draft_missing", "There is no draft to judge.")
        change_set = await self._sealed(call, draft)
        if isinstance(change_set, DraftJudged):
            if not draft.changes:
                return change_set
            change_set = ChangeSet(changes=draft.changes)  # What the tape says is what applying would go by.
        packed = call.draft_judged.held if call.draft_judged is not None else None
        changes = await beside_loop(
            lambda whole: part_held(whole, without_paths(whole, without), packed)[0], change_set.changes
        )
        again = replace(change_set, changes=changes)
        finding = await self._find(run, call, case, again, _taint(case, draft))
        return finding.answer

    async def _sealed(self, call: Call, draft: ToolDrafted) -> ChangeSet | DraftJudged:
        """Returns the changes that were sealed, or a refusal."""
        try:
            change_set = await self.drafts.read(call.effect_id)
        except (PalyraError, msgspec.DecodeError, OSError) as cause:
            log.error("draft_unreadable", effect_id=call.effect_id, error=type(cause).__name__)
            return _refuse(call, draft.digest, "draft_missing", "What the command changed cannot be read any more.")
        if await beside_loop(digest_changes, change_set.changes) != draft.digest:
            return _refuse(call, draft.digest, "draft_mismatch", "What lies in the draft is not what was sealed.")
        return change_set

    async def _find(
        self, run: Run, call: Call, case: GateCase, change_set: ChangeSet, taint: tuple[str, ...]
    ) -> _Finding:
        changes = change_set.changes
        base = await self._question(run, case, taint)
        root = _first_root(case, changes)
        finding = await self._judge_paths(run, base, change_set, root)
        finding = await self._with_git(finding, change_set, (run, call, base, root))
        if finding.answer.verdict is not Verdict.DENY and deletes_many(change_set):
            deleted = deleted_files(change_set)
            count = len(deleted) + change_set.git.lost_count
            what = "all files of a workspace" if change_set.emptied_roots else f"{count} files"
            reason = f"The command deletes or empties {what}, which asks."
            rule = PolicyAnswer(verdict=Verdict.ASK, rule=DELETES_MANY, reason=reason)  # No policy decided it.
            folders = tuple(change for change in changes if change.after_sha256 is None and is_folder(change))
            is_asked = finding.answer.verdict is Verdict.ASK
            held = dict.fromkeys((*finding.changes, *deleted, *folders))
            return _Finding(finding.answer if is_asked else rule, tuple(held), finding.git)
        return finding

    async def _with_git(
        self, finding: _Finding, change_set: ChangeSet, place: tuple[Run, Call, PolicyQuestion, str]
    ) -> _Finding:
        """Adds what the changes bring into reach of git. The stricter answer of both counts."""
        run, call, base, root = place
        writes = change_set.git.writes
        if not writes:
            return finding

        async def judge_paths(pairs: ChangeSet) -> tuple[PolicyAnswer, tuple[FileChange, ...]]:
            found = await self._judge_paths(run, base, pairs, root)
            return found.answer, found.changes

        applied = frozenset(map(place_of, change_set.changes)) - frozenset(map(place_of, finding.changes))
        git = await GitGate(self.drafts, judge_paths, applied, bool(base.taint)).judge(call.effect_id, writes)
        answer = max(finding.answer, git.answer, key=lambda each: _STRICTNESS[each.verdict])
        return _Finding(answer, finding.changes, git.texts)

    async def _judge_paths(self, run: Run, base: PolicyQuestion, change_set: ChangeSet, first_root: str) -> _Finding:
        """Judges group by group. A group that is not allowed is judged path by path, to tell which of them are not.

        Others get the loop after each: thousands of folders take seconds.
        """
        strictest = PolicyAnswer(verdict=Verdict.ALLOW, rule="draft", reason="Nothing of it asks.")
        held: list[FileChange] = []
        linked = {(each.root, each.path): each.names for each in change_set.linked}
        wide = frozenset(change_set.wide_dot_files)
        for group in await beside_loop(group_changes, change_set.changes):
            answer = self._ask(run, base, group.nature(first_root, linked, wide))
            parts = split(group) if answer.verdict is not Verdict.ALLOW and len(group.changes) > 1 else (group,)
            for part in parts:
                judged = answer if part is group else self._ask(run, base, part.nature(first_root, linked, wide))
                await asyncio.sleep(0)
                if judged.verdict is not Verdict.ALLOW:
                    held += part.changes
                if _STRICTNESS[judged.verdict] > _STRICTNESS[strictest.verdict] or strictest.snapshot is None:
                    strictest = judged
        return _Finding(strictest, tuple(held))

    def _ask(self, run: Run, base: PolicyQuestion, nature: CallNature) -> PolicyAnswer:
        question = replace(base, nature=nature, arguments={"path": nature.paths[0]})
        asked = (question, *(replace(question, agent=agent) for agent in agents_above(run)))
        return max((self.policy.judge(each) for each in asked), key=lambda answer: _STRICTNESS[answer.verdict])

    async def _question(self, run: Run, case: GateCase, taint: tuple[str, ...]) -> PolicyQuestion:
        spender = spender_of(run, case.session_id)
        standings = await self.ledger.standings(spender, self.clock.now_ms(), ())
        return PolicyQuestion(
            principal=case.principal,
            agent=case.agent.name,
            session_id=case.session_id,
            channel=channel_of(run),
            skills=tuple(skill.name for skill in run.skills),
            spec=write_spec(self.catalog.specs()),
            arguments={},
            nature=PathGroup(changes=()).nature(""),
            taint=taint,
            budget_left_usd=left_usd(standings),
        )

    async def _judged(
        self, run: Run, call: Call, draft: ToolDrafted, finding: _Finding, verdict: "_Verdict"
    ) -> DraftJudged:
        answer = verdict.answer
        is_ask = answer.verdict is Verdict.ASK
        held = await beside_loop(order_asking, finding.changes)
        root = _first_root(verdict.case, held)
        asked = AskedDraft(call=call, changes=held, git=finding.git, kept=verdict.kept, root=root)
        preview, full = await self.card.show(run.run_id, asked) if is_ask else (None, None)
        paths = (shown_path(change, root) for change in held[:TOUCHED_MAX])
        names = (*(name_write(text.write, root) for text in finding.git[:TOUCHED_MAX]), *paths)
        return DraftJudged(
            call_id=call.call_id,
            digest=draft.digest,
            verdict=answer.verdict,
            rule=answer.rule,
            reason=answer.reason,
            asking=tuple(name[:PATH_SHOWN_MAX] for name in names[:TOUCHED_MAX]),
            taint=verdict.taint,
            policy=answer.snapshot,
            preview=preview,
            expires_in_ms=self.approval_timeout_ms if is_ask else None,
            writes=verdict.written.files,
            write_sets=verdict.written.sets,
            held=verdict.packed,
            held_count=len(verdict.kept),
            full=full,
        )


class _Verdict(msgspec.Struct, frozen=True):
    answer: PolicyAnswer
    taint: tuple[str, ...]
    written: Written
    case: GateCase
    kept: frozenset[Place]
    packed: str | None


def _taint(case: GateCase, draft: ToolDrafted) -> tuple[str, ...]:
    """Returns the sources of the session, and of the files that the command could read (L8)."""
    read = (draft.source or UNNAMED,) if is_tainting(draft.trust) else ()
    return tuple(dict.fromkeys((*case.taint, *read)))


def _first_root(case: GateCase, changes: tuple[FileChange, ...]) -> str:
    """Paths below the first root are shown relative to it. Roots of changes are real paths."""
    roots = {change.root for change in changes}
    if len(case.agent.workspace) == 1 and len(roots) == 1:
        return roots.pop()
    return case.agent.workspace[0] if case.agent.workspace else ""


def _askable(run: Run, answer: PolicyAnswer) -> PolicyAnswer:
    if run.can_ask or answer.verdict is not Verdict.ASK:
        return answer
    reason = f"{answer.reason} It would need a person's approval, and this run has nobody to ask."
    return PolicyAnswer(verdict=Verdict.DENY, rule="nobody_to_ask", reason=reason, snapshot=answer.snapshot)


def _refuse(call: Call, digest: str, rule: str, reason: str) -> DraftJudged:
    return DraftJudged(call_id=call.call_id, digest=digest, verdict=Verdict.DENY, rule=rule, reason=reason)
