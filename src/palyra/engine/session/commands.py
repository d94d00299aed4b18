"""Commands to a session.

Owns: the closed union of what can be asked of one session. Does not own: carrying them out (commit_builder).
"""

import asyncio
from dataclasses import dataclass

import msgspec

from palyra.core.compaction.model import Compaction
from palyra.core.events import Data, Draft
from palyra.core.events.run import MessageGiven, MessageUser, RunAccepted
from palyra.core.events.session import SessionBranched, SessionCreated, SessionRestored
from palyra.core.events.tool import ApprovalRequested
from palyra.core.ids import ApprovalId, CallId, EffectId, Principal, RunId
from palyra.core.projections.rows import RunRow
from palyra.core.run.effects import ApplyDraft, CallModel, CheckObjectives, DiscardDraft, Execute, ResolveReferences
from palyra.core.trust import Trust
from palyra.core.writes import Write
from palyra.engine.api.requests import ApprovalAnswer, WhenBusy

ON_REQUEST = "Cancelled on request."


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """`opening` is the session's own first event, if the session begins with this run.

    `speaker` is who wrote the message, if that is not the principal. `given` is the conversation that the caller
    brought along; only a new session takes one. `writes` belong to the message.
    """

    run_id: RunId
    principal: Principal
    trust: Trust
    accepted: RunAccepted
    message: MessageUser
    when_busy: WhenBusy
    opening: SessionCreated | None = None
    speaker: Principal | None = None
    given: tuple[MessageGiven, ...] = ()
    writes: tuple[Write, ...] = ()


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    principal: Principal
    opening: SessionCreated | SessionBranched | SessionRestored


class SendInput(msgspec.Struct, frozen=True, kw_only=True):
    run_id: RunId
    principal: Principal
    trust: Trust
    message: MessageUser
    writes: tuple[Write, ...] = ()


class CallerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call that the caller executed."""

    call_id: CallId
    output: str
    is_error: bool = False


class ReturnResults(msgspec.Struct, frozen=True, kw_only=True):
    """Results of calls that the caller executed, and what the caller says besides."""

    run_id: RunId
    principal: Principal
    results: tuple[CallerResult, ...]
    message: MessageUser | None = None


class CancelRun(msgspec.Struct, frozen=True, kw_only=True):
    run_id: RunId
    principal: Principal
    message: str = ON_REQUEST


class AnswerQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """`run` is where the question was asked. That run may be over if the question is about an uncertain effect."""

    approval_id: ApprovalId
    principal: Principal
    answer: ApprovalAnswer
    request: ApprovalRequested
    run: RunRow


class RecordSessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the session itself: a label, a reset, a revoked grant or refusal, a pin.

    `trust` is that of its words. `writes` belong to it.
    """

    principal: Principal
    data: Data
    trust: Trust = Trust.OPERATOR
    writes: tuple[Write, ...] = ()


class CompactSession(msgspec.Struct, frozen=True, kw_only=True):
    """Older messages give way to a summary. It is refused if the session has moved on in between."""

    principal: Principal
    compaction: Compaction
    cause: str


class ReconsiderApprovals(msgspec.Struct, frozen=True):
    """A grant or a refusal was given: open questions that it covers are answered by it."""


class EffectReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an effect. The outcome is real even if the disk fails, so it is kept until it is recorded."""

    run_id: RunId
    effect: CallModel | Execute | ResolveReferences | CheckObjectives | ApplyDraft | DiscardDraft
    drafts: tuple[Draft, ...]
    writes: tuple[Write, ...] = ()
    substitutes_count: int = 0  # How often it was replaced, because it could not be recorded.


class HoldCall(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a running call started waits for a person, or no longer does."""

    run_id: RunId
    effect_id: EffectId
    is_held: bool


class CheckDue(msgspec.Struct, frozen=True):
    """Time has passed, or a slot for an active run is free."""


class ResumeSession(msgspec.Struct, frozen=True):
    """The daemon has started: effects that were in flight no longer are."""


Command = (
    StartRun | OpenSession | SendInput | ReturnResults | CancelRun | AnswerQuestion | RecordSessionEvent
    | CompactSession | ReconsiderApprovals | EffectReport | HoldCall | CheckDue | ResumeSession
)  # fmt: skip


@dataclass(eq=False, slots=True)
class Envelope:
    """A command under way. `reply` gives the run it concerned, after its commit."""

    command: Command
    reply: "asyncio.Future[RunId | None]"
    attempts: int = 0

    def settle(self, value: RunId | None) -> None:
        if not self.reply.done():
            self.reply.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            # The sender of a report does not wait, so nobody may ever read this error.
            self.reply.exception()
