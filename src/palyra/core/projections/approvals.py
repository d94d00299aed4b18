"""The approvals and grants projections. An approval is decided once (L7); its grant or refusal becomes a row."""

from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid
from palyra.core.events import Event
from palyra.core.events.tool import ApprovalRequested, ApprovalResolved, ApprovalStatus, Grant, GrantRevoked
from palyra.core.ids import SessionId
from palyra.core.projections.rows import ApprovalRow, GrantKind, GrantRow


def project_request(event: Event, data: ApprovalRequested, row: ApprovalRow | None) -> ApprovalRow:
    if row is not None:
        raise Invalid(
            "approval_exists", f"approval {data.approval_id} was already requested at seq {row.requested_seq}"
        )
    return ApprovalRow(
        id=data.approval_id,
        session_id=SessionId(event.stream),
        run_id=event.run_id,
        kind=data.kind,
        status=ApprovalStatus.PENDING,
        digest=data.digest,
        call_id=data.call_id,
        tool=data.tool,
        requested_seq=event.seq,
        resolved_seq=None,
        decided_by=None,
        created_at_ms=event.at_ms,
        expires_at_ms=data.expires_at_ms,
        seq=event.seq,
    )


def project_resolution(event: Event, data: ApprovalResolved, row: ApprovalRow) -> ApprovalRow:
    if row.session_id != event.stream:
        raise Invalid("approval_unknown", f"approval {data.approval_id} was never requested on tape {event.stream}")
    if row.status is not ApprovalStatus.PENDING:
        raise Conflict(
            "approval_decided", f"approval {row.id} was already decided at seq {row.resolved_seq}", is_retryable=False
        )
    if row.digest != data.digest:
        raise Invalid("approval_mismatch", f"the answer to approval {row.id} is bound to another call")
    return replace(row, status=data.status, resolved_seq=event.seq, decided_by=data.decided_by, seq=event.seq)


def project_grant(event: Event, data: ApprovalResolved) -> GrantRow | None:
    """Returns the row of the grant or the refusal that came with an answer, if one did."""
    given = data.grant or data.refusal
    if given is None:
        return None
    is_grant = isinstance(given, Grant)
    if is_grant is not (data.status is ApprovalStatus.ALLOWED):
        raise Invalid(
            "answer_mismatch", f"the answer to approval {data.approval_id} says no and grants, or the reverse"
        )
    return GrantRow(
        id=given.grant_id if isinstance(given, Grant) else given.refusal_id,
        session_id=SessionId(event.stream),
        approval_id=data.approval_id,
        principal=given.principal,
        agent=given.agent,
        tool=given.tool,
        scope=given.scope,
        granted_seq=event.seq,
        revoked_seq=None,
        created_at_ms=event.at_ms,
        expires_at_ms=given.expires_at_ms,
        seq=event.seq,
        kind=GrantKind.GRANT if is_grant else GrantKind.REFUSAL,
    )


def project_revocation(event: Event, data: GrantRevoked, row: GrantRow) -> GrantRow:
    if row.session_id != event.stream:
        raise Invalid("grant_unknown", f"grant {data.grant_id} was never given on tape {event.stream}")
    if row.revoked_seq is not None:
        raise Conflict(
            "grant_revoked", f"grant {row.id} was already revoked at seq {row.revoked_seq}", is_retryable=False
        )
    return replace(row, revoked_seq=event.seq, seq=event.seq)
