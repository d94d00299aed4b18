"""Gathers each call's proposal, verdict and answer from the events of one tape, in order.

Does not own: where events come from.
Invariants: each `tool.proposed` since the given time gives exactly one proposal or one gap. Only what the session's
unfinished runs have proposed is kept in memory.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from palyra.core.events import Data
from palyra.core.events.base import ErasedData
from palyra.core.events.run import RunAccepted, RunCancelled, RunDone, RunFailed
from palyra.core.events.session import SessionBranched, SessionCreated, SessionRestored
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    ToolJudged,
    ToolProposed,
    Verdict,
)
from palyra.core.ids import ApprovalId, CallId, Principal, RunId, SessionId
from palyra.core.lab import Gap, Proposal
from palyra.core.tools import CallNature

_ENDINGS = (RunDone, RunFailed, RunCancelled)
_OPENINGS = (SessionCreated, SessionBranched, SessionRestored)
_READ = (*_OPENINGS, RunAccepted, *_ENDINGS, ToolProposed, ToolJudged, ApprovalRequested, ApprovalResolved)
TYPES_READ = frozenset(data_type.TYPE for data_type in _READ)
# Rules of the gate that refuse a call before any policy is consulted.
_BEFORE_POLICY = frozenset({"unknown_tool", "tool_not_allowed", "arguments_invalid", "schema"})


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an event that is read here."""

    type: str
    run_id: RunId | None
    at_ms: int
    data: Data | ErasedData


class TapeReader:
    """Takes one tape's facts from the first on; only those of TYPES_READ matter."""

    def __init__(self, session_id: SessionId, since_ms: int) -> None:
        self._session_id = session_id
        self._since_ms = since_ms
        self._owner: Principal | None = None
        self._runs: dict[RunId, _OpenRun] = {}
        self._asked: dict[ApprovalId, tuple[RunId | None, tuple[CallId, ...]]] = {}

    @property
    def owner(self) -> Principal | None:
        """Returns the owner, who is known from the tape's first event on, unless that event was erased."""
        return self._owner

    def feed(self, fact: Fact) -> Iterator[Proposal | Gap]:
        run = self._run_of(fact)
        match fact.data:
            case SessionCreated(owner=owner) | SessionBranched(owner=owner) | SessionRestored(owner=owner):
                self._owner = owner
            case RunAccepted() as accepted:
                run.accepted = accepted
            case ToolProposed() as proposed if fact.at_ms >= self._since_ms:
                run.proposed[proposed.call_id] = (fact.at_ms, proposed)
            case ToolJudged() as judged:
                yield from self._judged(run, judged)
            case ApprovalRequested(kind=ApprovalKind.TOOL) as request:
                self._asked[request.approval_id] = (fact.run_id, _calls_of(request))
            case ApprovalResolved() as resolved:
                yield from self._resolved(resolved)
            case RunDone() | RunFailed() | RunCancelled() if fact.run_id is not None:
                yield from self._ended(fact.run_id)
            case ErasedData() if fact.type == ToolProposed.TYPE and fact.at_ms >= self._since_ms:
                yield Gap.ERASED
            case ErasedData() if fact.type == ToolJudged.TYPE:
                run.has_erased_verdict = True
            case ErasedData() if fact.run_id is not None and fact.type in _ENDING_TYPES:
                yield from self._ended(fact.run_id)
            case _:
                return

    def finish(self) -> Iterator[Proposal | Gap]:
        """Yields the calls that are unanswered or unjudged at the tape's end."""
        for run_id in list(self._runs):
            yield from self._ended(run_id)

    def _run_of(self, fact: Fact) -> "_OpenRun":
        """Returns the open run of a fact, and opens it at the first fact.

        A fact after the run's end belongs to none.
        """
        if fact.run_id is not None and fact.type == RunAccepted.TYPE:
            return self._runs.setdefault(fact.run_id, _OpenRun())
        found = self._runs.get(fact.run_id) if fact.run_id is not None else None
        return found or _OpenRun()

    def _judged(self, run: "_OpenRun", judged: ToolJudged) -> Iterator[Proposal | Gap]:
        found = run.proposed.pop(judged.call_id, None)
        if found is None:
            return  # Its proposal was erased and counted so, or is older than the time asked for.
        proposal = self._proposal(run, *found, judged)
        if isinstance(proposal, Proposal) and judged.verdict is Verdict.ASK:
            run.asking[judged.call_id] = proposal
        else:
            yield proposal

    def _resolved(self, resolved: ApprovalResolved) -> Iterator[Proposal]:
        run_id, call_ids = self._asked.pop(resolved.approval_id, (None, ()))
        run = self._runs.get(run_id) if run_id is not None else None
        # A grant or a refusal that was given elsewhere is nobody's answer here, and neither is what a policy denied.
        is_persons = resolved.covered_by is None and resolved.rule is None
        status = resolved.status if is_persons else ApprovalStatus.CANCELLED
        asking = run.asking if run is not None else {}
        for proposal in [asking.pop(call_id) for call_id in call_ids if call_id in asking]:
            yield replace(proposal, answer=status)

    def _ended(self, run_id: RunId) -> Iterator[Proposal | Gap]:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        self._asked = {approval: of for approval, of in self._asked.items() if of[0] != run_id}
        for proposal in run.asking.values():
            yield replace(proposal, answer=ApprovalStatus.PENDING)
        for _ in run.proposed:
            yield Gap.ERASED if run.has_erased_verdict else Gap.UNJUDGED

    def _proposal(self, run: "_OpenRun", at_ms: int, proposed: ToolProposed, judged: ToolJudged) -> Proposal | Gap:
        if run.accepted is None or self._owner is None:
            return Gap.ERASED
        if not isinstance(proposed.arguments, dict):
            return Gap.ARGUMENTS_RAW
        if judged.verdict is Verdict.DENY and judged.rule in _BEFORE_POLICY:
            return Gap.BEFORE_POLICY
        nature = CallNature(
            effect_class=judged.effect_class,
            parallel_class=judged.parallel_class,
            paths=judged.paths,
            host=judged.host,
            commands=judged.commands,
            command_words=judged.command_words,
        )
        return Proposal(
            session_id=self._session_id,
            call_id=proposed.call_id,
            at_ms=at_ms,
            principal=self._owner,
            agent=run.accepted.agent,
            channel=run.accepted.origin,
            can_ask=run.accepted.can_ask,
            tool=proposed.tool,
            arguments=proposed.arguments,
            taint=judged.taint,
            nature=nature,
            risk=judged.risk,
            verdict=judged.verdict,
            rule=judged.rule,
            grant_id=judged.grant_id,
        )


def _calls_of(request: ApprovalRequested) -> tuple[CallId, ...]:
    """Returns the calls that a question is about: one or several."""
    return request.calls or (() if request.call_id is None else (request.call_id,))


class _OpenRun:
    def __init__(self) -> None:
        self.accepted: RunAccepted | None = None
        self.proposed: dict[CallId, tuple[int, ToolProposed]] = {}
        self.asking: dict[CallId, Proposal] = {}
        self.has_erased_verdict = False


_ENDING_TYPES = frozenset(ending.TYPE for ending in _ENDINGS)
