"""Performs the commands that people type in a channel.

Owns: what each command does, as whom, and what it answers.
Does not own: reading commands (core.channels.commands), who is let in (core.channels.router).
Invariants: a stranger changes nothing of a shared session, and answers no approval. Who may answer one is asked of the
same policy as over the API (L11). A yes is for a question that its speaker can only have meant (L7).
"""

from dataclasses import dataclass
from typing import assert_never

import structlog

from palyra.core.channels.commands import ChannelCommand, CommandName, help_text
from palyra.core.channels.identity import Place, Speaker
from palyra.core.channels.model import ChannelRules
from palyra.core.channels.outbox import OutboxKind, OutboxState, item_id
from palyra.core.channels.replies import asked_text, is_cut_here, whole_files
from palyra.core.errors import NotFound, PalyraError
from palyra.core.events.tool import ApprovalKind, ApprovalStatus, Decision, Scope
from palyra.core.ids import ApprovalId, parse_approval_id
from palyra.core.plurals import counted
from palyra.core.projections.rows import ApprovalRow, SessionRow
from palyra.engine.api.approvals import ApprovalService
from palyra.engine.api.compaction import CompactionService
from palyra.engine.api.requests import ApprovalAnswer, RunsQuery
from palyra.engine.api.runs import RunService
from palyra.engine.api.sessions import SessionService
from palyra.engine.channels.directory import ChannelDirectory
from palyra.engine.channels.outgoing_parts import fit_all
from palyra.ports.channels import OutboxViews

NOT_YOURS = "You may not do that here; ask an operator to link your account."
NOT_SHOWN = (
    "Not answered: what is shown here leaves out some of what that would allow. Read all of it with "
    "palyra approvals show {id} --full, then answer; or deny it."
)
NOTHING_WAITS = "Nothing waits for an answer here."
NAME_IT = "Name the question that you allow: press its button, or send /approve with the whole id that stands below it."
RUNS_SUMMED_MAX = 500
_LASTING = (Scope.SESSION.value, Scope.TIMEBOXED.value)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CommandCase:
    """Who types a command, in which session, and when, if the platform says so."""

    rules: ChannelRules
    speaker: Speaker
    place: Place
    written_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCommands:
    sessions: SessionService
    runs: RunService
    approvals: ApprovalService
    compaction: CompactionService
    outbox: OutboxViews
    directory: ChannelDirectory

    async def perform(self, command: ChannelCommand, case: CommandCase) -> str:
        """Performs a command and returns what is answered; nothing where the run itself answers."""
        try:
            return await self._perform(command, case)
        except PalyraError as error:
            log.info("channel_command_refused", channel=case.rules.name, command=command.name.value, code=error.code)
            return f"That did not work: {error.message}."

    async def has_session(self, place: Place) -> bool:
        return await self.sessions.views.session_by_key(place.session_key, place.owner) is not None

    async def _perform(self, command: ChannelCommand, case: CommandCase) -> str:
        match command.name:
            case CommandName.HELP:
                return help_text()
            case CommandName.WHOAMI:
                return _whoami(case)
            case CommandName.NEW:
                return await self._start_over(case)
            case CommandName.STATUS:
                return await self._status(case)
            case CommandName.CANCEL:
                return await self._cancel(case)
            case CommandName.COMPACT:
                return await self._compact(case)
            case CommandName.USAGE:
                return await self._usage(case)
            case CommandName.APPROVE:
                return await self._answer(case, command.argument, Decision.ALLOW)
            case CommandName.DENY:
                wanted, scope = _refusal_words(command.argument)
                return await self._answer(case, wanted, Decision.DENY, scope)
            case _:
                assert_never(command.name)

    async def _start_over(self, case: CommandCase) -> str:
        session = await self._session(case)
        if session is None:
            return "This is a new conversation already."
        if not _may_change(case) or not await self._leaves_questions(case, session):
            return NOT_YOURS
        await self.sessions.reset(case.place.owner, session.id, by=case.speaker.principal)
        return "We start over: earlier words are no longer context."

    async def _status(self, case: CommandCase) -> str:
        session = await self._session(case)
        if session is None:
            return "Nothing has been said here yet."
        waiting = await self.approvals.views.pending_of(session.id)
        state = "idle" if session.active_run_id is None else "working"
        asked = "1 question waits" if len(waiting) == 1 else f"{len(waiting)} questions wait"
        questions = f", {asked} for an answer" if waiting else ""
        return f"Session {session.id}: {state}{questions}."

    async def _cancel(self, case: CommandCase) -> str:
        session = await self._session(case)
        if session is None or session.active_run_id is None:
            return "Nothing is running here."
        run = await self.runs.get(case.place.owner, session.active_run_id)
        if run.principal != case.speaker.principal and not (
            _may_change(case) and await self._leaves_questions(case, session)
        ):
            return NOT_YOURS
        await self.runs.cancel(case.place.owner, run.id, by=case.speaker.principal)
        # A run of this channel says itself that it was cancelled.
        return "" if run.origin == case.rules.origin else "Cancelling."

    async def _compact(self, case: CommandCase) -> str:
        session = await self._session(case)
        if session is None:
            return "Nothing has been said here yet."
        if not _may_change(case):
            return NOT_YOURS
        report = await self.compaction.compact(case.place.owner, session.id)
        return "Compacted." if report.is_committed else "There is nothing to compact."

    async def _usage(self, case: CommandCase) -> str:
        session = await self._session(case)
        if session is None:
            return "Nothing has been said here yet."
        query = RunsQuery(session_id=session.id, limit=RUNS_SUMMED_MAX)
        usages = [run.usage for run in await self.runs.list(case.place.owner, query)]
        tokens = sum(usage.input_tokens + usage.output_tokens for usage in usages)
        prices = [usage.cost_usd for usage in usages if usage.cost_usd is not None]
        cost = f"{sum(prices):.4f} USD" if prices else "at an unknown price"
        least = "at least " if prices and len(prices) < len(usages) else ""
        runs = counted(len(usages), "run")
        return f"{runs}, {tokens} tokens, {least}{cost}."

    async def _answer(self, case: CommandCase, wanted: str, decision: Decision, scope: Scope = Scope.ONCE) -> str:
        rows = await self._questions(case, wanted)
        if not rows:
            return NOTHING_WAITS
        row = rows[0]
        run = await self.runs.views.run(row.run_id, None) if row.run_id is not None else None
        speaker = case.speaker
        owner = speaker.principal if run is not None and run.principal == speaker.principal else case.place.owner
        if not self.directory.answers_for(speaker, owner):
            return NOT_YOURS
        if decision is Decision.ALLOW and not _is_clear(case, wanted, rows):
            return NAME_IT
        if row.kind is ApprovalKind.UNCERTAIN:
            return "Answer this one with palyra approvals: retry, done or give_up."
        reason = f"answered in channel {case.rules.name}"
        answer = ApprovalAnswer(decision=decision, scope=scope, reason=reason, role_max=speaker.role or "viewer")
        asked = case.place.owner if row.session_id == await self._session_id(case) else None
        viewer = asked or (run.principal if run is not None else case.place.owner)
        if decision is Decision.ALLOW and not await self._is_shown(case, row):
            return NOT_SHOWN.format(id=row.id)
        card = await self.approvals.answer(viewer, row.id, answer, by=speaker.principal)
        if card.decided_rule is not None:
            return f"Not allowed: by now it is forbidden ({card.decided_rule}), so nothing was done."
        if decision is Decision.ALLOW:
            return "Allowed."
        return "Denied." if scope is Scope.ONCE else "Denied; equal calls are refused without a question now."

    async def _is_shown(self, case: CommandCase, row: ApprovalRow) -> bool:
        """Tells whether the speaker was shown all that a yes would allow: here, in the file beside it, or elsewhere."""
        request, calls = await self.approvals.asked(row)
        text = asked_text(request, [(call.preview, call.arguments) for call in calls])
        if request.full is None and not is_cut_here(text):
            return True
        if self.approvals.read_marks.has(row.id, case.speaker.principal):
            return True
        item = await self.outbox.item(item_id(OutboxKind.QUESTION.value, row.id))
        channel = self.directory.find(case.rules.name)
        files = whole_files(request, [call.full for call in calls])
        is_sent = item is not None and item.state is OutboxState.SENT and item.channel == case.rules.name
        count = 1 if request.kind is ApprovalKind.DRAFT else len(calls)
        if channel is None or not is_sent or len(files) < count or not fit_all(files, channel.adapter.traits):
            return False
        self.approvals.read_marks.note_whole(row.id, case.speaker.principal)
        return True

    async def _questions(self, case: CommandCase, wanted: str) -> list[ApprovalRow]:
        """Returns the questions that may be meant, by an id or the beginning of one, the oldest first."""
        session = await self._session(case)
        if session is None:
            return []
        waiting = await self.approvals.views.pending_of(session.id)
        found = [row for row in waiting if row.id.startswith(wanted.upper())]
        delegated = await self._delegated_question(session, wanted) if wanted and not found else None
        return found if delegated is None else [delegated]

    async def _delegated_question(self, session: SessionRow, wanted: str) -> ApprovalRow | None:
        """Finds a question of a run that this session delegated. Any other question is not of this conversation."""
        try:
            approval_id: ApprovalId = parse_approval_id(wanted.upper())
        except PalyraError:
            return None
        row = await self.approvals.views.approval(approval_id, None)
        if row is None or row.status is not ApprovalStatus.PENDING:
            return None
        child = await self.sessions.views.session(row.session_id, None)
        return row if child is not None and child.serves == session.id else None

    async def _leaves_questions(self, case: CommandCase, session: SessionRow) -> bool:
        """Tells whether nothing waits there that only others may answer: it must not end by another command."""
        is_own = case.place.owner == case.speaker.principal
        if is_own or self.directory.answers_for(case.speaker, case.place.owner):
            return True
        return not await self.approvals.views.pending_of(session.id)

    async def _session(self, case: CommandCase) -> SessionRow | None:
        try:
            return await self.sessions.views.session_by_key(case.place.session_key, case.place.owner)
        except NotFound:
            return None

    async def _session_id(self, case: CommandCase) -> str | None:
        session = await self._session(case)
        return session.id if session is not None else None


def _may_change(case: CommandCase) -> bool:
    """Tells whether the speaker may change the session: it is theirs, or a person vouched for them."""
    return case.place.owner == case.speaker.principal or case.speaker.role is not None


def _is_clear(case: CommandCase, wanted: str, rows: list[ApprovalRow]) -> bool:
    """Where others answer too, the question that was meant may be gone, and the next one not read yet.

    The same holds for a yes that was written before the question: it comes late, and was meant for an earlier one.
    """
    is_alone = case.place.owner == case.speaker.principal and len(rows) == 1
    is_read = case.written_at_ms is None or case.written_at_ms >= rows[0].created_at_ms
    return (is_alone and is_read) or wanted.upper() == rows[0].id


def _refusal_words(argument: str) -> tuple[str, Scope]:
    """Reads `ID session`, in any order; both are optional."""
    words = argument.split()
    scope = next((Scope(word.lower()) for word in words if word.lower() in _LASTING), Scope.ONCE)
    return " ".join(word for word in words if word.lower() not in _LASTING), scope


def _whoami(case: CommandCase) -> str:
    speaker = case.speaker
    if speaker.via is None:
        return f"You are {speaker.principal}. Your account is not linked, so your words count as {speaker.trust.value}."
    return (
        f"You are {speaker.principal}, through {speaker.via}, in the role {speaker.role} (trust {speaker.trust.value})."
    )
