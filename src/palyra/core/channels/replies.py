"""What a channel hears of a run: its answer, its questions, and that it ended without an answer.

Owns: which events make an item of the outbox, and its words. They are queued in the commit of those events (L3).
Does not own: platforms' limits and marks (engine.channels.sender), the events.
Invariants: the words are those of the recorded event, where secrets are markers (L5). A question shows every call that
its answer allows, and says so where it is too long to be shown whole (L7).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from palyra.core.channel_writes import QueueOutbox
from palyra.core.channels.outbox import Button, OutboxFile, OutboxItem, OutboxKind, item_id, job_of
from palyra.core.events import Draft
from palyra.core.events.run import EndReason, MessageAssistant, ReplyAddress, RunCancelled, RunFailed
from palyra.core.events.session import LearningApplied
from palyra.core.events.tool import ApprovalKind, ApprovalRequested, MadeArtifact, Touches
from palyra.core.ids import ArtifactId, SessionId
from palyra.core.run.call import Call
from palyra.core.run.state import Run
from palyra.core.spelling import spell_json, spell_out
from palyra.core.writes import EnqueueJob, Write

SHOWN_LENGTH_MAX = 3_000  # Of what a call would do. Platforms take 2,000 to 4,000 characters a message.
TAINT_SHOWN_MAX = 5
TOUCHED_SHOWN_MAX = 5
NAME_LENGTH_MAX = 120
APPROVE, DENY = "/approve", "/deny"


class _Said(NamedTuple):
    kind: OutboxKind
    cause: str
    text: str
    files: tuple[OutboxFile, ...] = ()


def reply_writes(run: Run, drafts: Iterable[Draft], session_id: SessionId, now_ms: int) -> tuple[Write, ...]:
    """Returns what the events of a run add to the outbox."""
    if run.reply is None:
        return ()
    said = [words for draft in drafts if (words := _said(run, draft)) is not None]
    items = [_item(run.reply, words, session_id, now_ms) for words in said]
    return tuple(write for item in items for write in (QueueOutbox(item), EnqueueJob(job_of(item, now_ms))))


def learned_writes(
    reply: ReplyAddress, learned: LearningApplied, session_id: SessionId, now_ms: int
) -> tuple[Write, ...]:
    """Returns what tells a conversation that something said in it was learned without asking."""
    said = _Said(OutboxKind.NOTICE, learned.candidate_id, learned_text(learned.content, learned.candidate_id))
    item = _item(reply, said, session_id, now_ms)
    return QueueOutbox(item), EnqueueJob(job_of(item, now_ms))


def learned_text(content: str, candidate_id: str) -> str:
    return f"remembered: {content} \N{EN DASH} undo: palyra learning undo {candidate_id}"


def _said(run: Run, draft: Draft) -> _Said | None:
    """A delegated run answers its parent; only its questions are for people."""
    match draft.data:
        case ApprovalRequested(approval_id=approval_id) as question:
            asked = _asked(question, run.calls)
            files = whole_files(question, [call.judged.full for call in asked if call.judged is not None])
            is_cut = question.full is not None or is_cut_here(_text(question, asked))
            return _Said(OutboxKind.QUESTION, approval_id, question_text(question, run.calls), files if is_cut else ())
        case MessageAssistant(text=text) if not run.lineage:
            return _Said(OutboxKind.ANSWER, run.run_id, text, tuple(map(_file, run.shown)))
        case RunFailed(reason=reason, message=message) if not run.lineage:
            return _Said(OutboxKind.NOTICE, run.run_id, f"I could not finish this: {message or reason.value}")
        case RunCancelled(reason=reason) if not run.lineage:
            text = "Cancelled." if reason is EndReason.CANCELLED else f"Stopped: {reason.value}."
            return _Said(OutboxKind.NOTICE, run.run_id, text)
        case _:
            return None


def whole_files(question: ApprovalRequested, of_calls: Sequence[MadeArtifact | None]) -> tuple[OutboxFile, ...]:
    """Returns what goes along with a question that is too long for a message: all that a yes would allow."""
    kept = (question.full,) if question.kind is ApprovalKind.DRAFT else of_calls
    return tuple(_file(each) for each in kept if each is not None)


def is_cut_here(text: str) -> bool:
    """Tells whether a message of a channel is too short for what a call would do."""
    return len(_seen(text)) > SHOWN_LENGTH_MAX


def _file(made: MadeArtifact) -> OutboxFile:
    """Its session has what a run's own calls made, and its conversation gets it (L11)."""
    artifact_id = ArtifactId(made.artifact_id)
    return OutboxFile(artifact_id=artifact_id, name=made.name, media_type=made.media_type, bytes=made.bytes)


def _item(reply: ReplyAddress, said: _Said, session_id: SessionId, now_ms: int) -> OutboxItem:
    buttons = (Button("Allow once", f"{APPROVE} {said.cause}"), Button("Deny", f"{DENY} {said.cause}"))
    return OutboxItem(
        id=item_id(said.kind.value, said.cause),
        channel=reply.channel,
        conversation_id=reply.conversation_id,
        thread_id=reply.thread_id,
        reply_to=reply.reply_to,
        kind=said.kind,
        text=said.text,
        session_id=session_id,
        buttons=buttons if said.kind is OutboxKind.QUESTION else (),
        files=said.files,
        created_at_ms=now_ms,
        not_before_ms=now_ms,
        updated_at_ms=now_ms,
    )


def question_text(question: ApprovalRequested, calls: Sequence[Call] = ()) -> str:
    """Says what is asked, and how to answer where there are no buttons. `calls` are those of the run."""
    match question.kind:
        case ApprovalKind.BUDGET:
            head = "A budget is used up. May I go on?"
        case ApprovalKind.UNCERTAIN:
            return f"Nobody knows whether {question.tool} took effect. Please look, and answer with palyra approvals."
        case ApprovalKind.DRAFT:
            head = f"{question.tool} changed files. May I apply that? Risk: {question.risk.value}."
        case _:
            several = f" ({question.count} calls)" if question.count > 1 else ""
            head = f"May I use {question.tool}{several}? Risk: {question.risk.value}."
    lines = [head]
    if question.reason:
        lines.append(spell_out(question.reason))
    if question.touches is not None and (touched := _touched(question.touches)):
        lines.append(f"It touches: {touched}.")
    if question.taint:
        named = spell_out(", ".join(question.taint[:TAINT_SHOWN_MAX]))
        more = len(question.taint) - TAINT_SHOWN_MAX
        lines.append(f"There is content from outside here: {named}{f' and {more} more' if more > 0 else ''}.")
    lines += _shown(question, _asked(question, calls))
    lines.append(f"Answer with {APPROVE} {question.approval_id} or {DENY} {question.approval_id}")
    return "\n".join(lines)


def _asked(question: ApprovalRequested, calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if call.call_id in (question.calls or (question.call_id,))]


def _text(question: ApprovalRequested, asked: Sequence[Call]) -> str:
    previews = [(call.judged.preview if call.judged is not None else None, call.arguments) for call in asked]
    return asked_text(question, previews)


def asked_text(question: ApprovalRequested, calls: Sequence[tuple[str | None, object]]) -> str:
    """Returns what a channel shows of a question: of each call the tool's own words, or its arguments."""
    if question.kind is not ApprovalKind.TOOL or not calls:
        return question.preview or ""
    shown = (preview or spell_json(msgspec.json.encode(said, order="sorted").decode()) for preview, said in calls)
    return "\n\n".join(shown)


def _seen(text: str) -> str:
    return spell_out(text, kept="\n\t").replace("```", "` ` `")


def _shown(question: ApprovalRequested, asked: Sequence[Call]) -> list[str]:
    """Shows what would be done, in a block that its own text cannot end."""
    seen = _seen(_text(question, asked))
    if not seen:
        return []
    block = f"```\n{seen[:SHOWN_LENGTH_MAX]}\n```"
    left = len(seen) - SHOWN_LENGTH_MAX
    if left <= 0:
        return [block]
    where = f"palyra approvals show {question.approval_id} --full"
    return [block, f"{left} more characters of it are not shown here. Read them before you allow it: {where}"]


def _touched(touches: Touches) -> str:
    """Names what the calls would touch, each as code, so that no name is read as markup."""
    parts: list[str] = []
    for kind, names in (("paths", touches.paths), ("hosts", touches.hosts), ("commands", touches.commands)):
        shown = [spell_out(" ".join(name.split())).replace("`", "'") for name in names[:TOUCHED_SHOWN_MAX]]
        parts += [f"`{name if len(name) <= NAME_LENGTH_MAX else f'…{name[-NAME_LENGTH_MAX:]}'}`" for name in shown]
        rest_count = len(names) - TOUCHED_SHOWN_MAX
        parts += [f"{rest_count} more {kind}"] if rest_count > 0 else []
    return ", ".join(parts)
