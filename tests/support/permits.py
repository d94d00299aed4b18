"""An auditor of tapes: tells from recorded events alone whether every call that ran was permitted (L1, L7).

It reads what the daemon recorded, over all tapes in the order of the journal, and nothing that it held in memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from palyra.core.events import Event
from palyra.core.events.run import RunAccepted
from palyra.core.events.session import SessionCreated, SessionReset
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Grant,
    GrantRevoked,
    Refusal,
    Scope,
    ToolJudged,
    ToolProposed,
    ToolStarted,
    Verdict,
)
from palyra.core.grants import GrantCase, covers, refuses
from palyra.core.ids import CallId, GrantId, Principal, digest_call
from palyra.core.taint import Taint, fold_taint, labels


@dataclass
class _Given:
    grant: Grant | Refusal
    stream: str
    seq: int
    by: Principal
    is_revoked: bool = False


@dataclass
class _Tape:
    owner: Principal | None = None
    reset_seq: int = 0
    taint: Taint = ()
    agents: dict[str, str] = field(default_factory=dict)
    proposed: dict[CallId, ToolProposed] = field(default_factory=dict)
    judged: dict[CallId, ToolJudged] = field(default_factory=dict)
    asked: dict[str, ApprovalRequested] = field(default_factory=dict)
    permitted: dict[CallId, int] = field(default_factory=dict)  # The number of starts that are permitted.


class Auditor:
    """Takes events in the order of their position; raises if one is not permitted."""

    def __init__(self) -> None:
        self._tapes: dict[str, _Tape] = {}
        self._grants: dict[GrantId, _Given] = {}
        self.starts_count = 0
        self.by_grant_count = 0
        self.grouped_count = 0
        self.refused_count = 0

    def read(self, events: Iterable[Event]) -> "Auditor":
        for event in sorted(events, key=lambda event: event.position):
            tape = self._tapes.setdefault(event.stream, _Tape())
            self._take(tape, event)
            tape.taint = fold_taint(tape.taint, event, event.seq)
        return self

    def _take(self, tape: _Tape, event: Event) -> None:
        match event.data:
            case SessionCreated(owner=owner):
                tape.owner = owner
            case SessionReset():
                tape.reset_seq = event.seq
            case RunAccepted(agent=agent):
                tape.agents[event.run_id or ""] = agent
            case ToolProposed() as proposed:
                tape.proposed[proposed.call_id] = proposed
            case ToolJudged() as judged:
                self._judge(tape, judged, event)
            case ApprovalRequested() as request:
                self._ask(tape, request)
            case ApprovalResolved() as answer:
                self._answer(tape, answer, event)
            case GrantRevoked(grant_id=grant_id):
                self._grants[grant_id].is_revoked = True
            case ToolStarted(call_id=call_id, attempt=attempt):
                self.starts_count += 1
                assert tape.permitted.get(call_id, 0) > 0, f"{call_id} runs without a permit"
                assert attempt >= 1
            case _:
                return

    def _judge(self, tape: _Tape, judged: ToolJudged, event: Event) -> None:
        tape.judged[judged.call_id] = judged
        if judged.refused_by is not None:
            assert judged.verdict is Verdict.DENY
            self._require_refusal(tape, judged.refused_by, judged.call_id, event)
        if judged.verdict is not Verdict.DENY:
            self._require_unrefused(tape, judged.call_id, event)
        if judged.verdict is not Verdict.ALLOW:
            return
        if judged.grant_id is not None:
            self._require_grant(tape, judged.grant_id, judged.call_id, event)
            assert set(judged.taint) == set(labels(tape.taint)) or not labels(tape.taint)
        tape.permitted[judged.call_id] = 1

    def _ask(self, tape: _Tape, request: ApprovalRequested) -> None:
        tape.asked[request.approval_id] = request
        if request.kind is not ApprovalKind.TOOL:
            return
        self.grouped_count += request.count > 1
        calls = request.calls or (request.call_id,)
        for call_id, digest in zip(calls, request.digests or (request.digest,), strict=True):
            assert call_id is not None
            proposed = tape.proposed[call_id]
            assert digest == digest_call(proposed.tool, proposed.arguments), "bound to another call"
            assert tape.judged[call_id].verdict is Verdict.ASK

    def _answer(self, tape: _Tape, answer: ApprovalResolved, event: Event) -> None:
        request = tape.asked.pop(answer.approval_id)  # A second answer finds no request.
        assert answer.digest == request.digest
        if answer.grant is not None:
            assert answer.status is ApprovalStatus.ALLOWED
            self._grants[answer.grant.grant_id] = _Given(answer.grant, event.stream, event.seq, answer.decided_by)
        if answer.refusal is not None:
            assert answer.status is ApprovalStatus.DENIED
            self._grants[answer.refusal.refusal_id] = _Given(answer.refusal, event.stream, event.seq, answer.decided_by)
        calls = [call_id for call_id in request.calls or (request.call_id,) if call_id is not None]
        if answer.status is not ApprovalStatus.ALLOWED:
            if answer.covered_by is not None:
                for call_id in calls:
                    self._require_refusal(tape, answer.covered_by, call_id, event)
            return
        assert request.expires_at_ms is None or event.at_ms < request.expires_at_ms, "answered after its time"
        if request.kind is ApprovalKind.TOOL or answer.decision is Decision.RETRY:
            for call_id in calls:
                tape.permitted[call_id] = tape.permitted.get(call_id, 0) + 1
        if answer.covered_by is not None:
            for call_id in calls:
                self._require_grant(tape, answer.covered_by, call_id, event)
            assert self._grants[answer.covered_by].by == answer.decided_by

    def _require_grant(self, tape: _Tape, grant_id: GrantId, call_id: CallId, event: Event) -> None:
        self.by_grant_count += 1
        given = self._in_force(tape, grant_id, event)
        assert isinstance(given.grant, Grant), "by a refusal"
        assert covers(given.grant, self._case(tape, call_id, event)), "by a grant that does not cover it"

    def _require_refusal(self, tape: _Tape, refusal_id: GrantId, call_id: CallId, event: Event) -> None:
        self.refused_count += 1
        given = self._in_force(tape, refusal_id, event)
        assert isinstance(given.grant, Refusal), "refused by a grant"
        assert refuses(given.grant, self._case(tape, call_id, event)), "by a refusal that does not cover it"

    def _require_unrefused(self, tape: _Tape, call_id: CallId, event: Event) -> None:
        """Looks at refusals of this session that never expire: only for these the order of events tells all."""
        for given in self._grants.values():
            is_here = given.stream == event.stream and given.seq > tape.reset_seq and not given.is_revoked
            refusal = given.grant if isinstance(given.grant, Refusal) and is_here else None
            if (
                refusal is not None
                and refusal.expires_at_ms is None
                and isinstance(tape.proposed[call_id].arguments, dict)
            ):
                assert not refuses(refusal, self._case(tape, call_id, event)), "although it was refused"

    def _in_force(self, tape: _Tape, given_id: GrantId, event: Event) -> _Given:
        given = self._grants[given_id]
        assert not given.is_revoked, "by an answer that was revoked"
        assert given.grant.scope is Scope.TIMEBOXED or given.stream == event.stream, "by another session's answer"
        assert given.grant.scope is Scope.TIMEBOXED or given.seq > tape.reset_seq, "by an answer from before the reset"
        return given

    def _case(self, tape: _Tape, call_id: CallId, event: Event) -> GrantCase:
        proposed, arguments = tape.proposed[call_id], tape.proposed[call_id].arguments
        assert isinstance(arguments, dict)
        assert tape.owner is not None
        judged = event.data if isinstance(event.data, ToolJudged) else tape.judged[call_id]
        return GrantCase(
            tool=proposed.tool,
            arguments=arguments,
            taint=labels(tape.taint),
            principal=tape.owner,
            agent=tape.agents[event.run_id or ""],
            now_ms=event.at_ms,
            command_words=judged.command_words,
        )
