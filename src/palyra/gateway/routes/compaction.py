"""The route that compacts a session. Does not own: how (engine.compaction)."""

import msgspec
from starlette.responses import Response

from palyra.core.compaction.model import RetiredItem
from palyra.engine.compaction.compactor import CompactionReport
from palyra.gateway.access.resources import SESSION
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute
from palyra.gateway.routes.bodies import RequestBody
from palyra.ports.tokens import Role

COMPACT_TIMEOUT_S = 300.0  # A model writes the summary; the session goes on meanwhile.


class CompactBody(RequestBody, frozen=True, kw_only=True):
    dry_run: bool = False


class KeptRecord(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    text: str


class RetiredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`by` are the later words, at `by_place` of the tape, that replace a rule or complete a task."""

    kind: str
    text: str
    by: str
    by_place: int


class ProbesRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`refusals` says why a model's summary was not used."""

    passed: int
    refusals: tuple[str, ...]


class CompactionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`kept` stays word for word. `dropped` are the beginnings of messages that only the summary stands for now."""

    committed: bool
    reason: str
    checkpoint_id: str | None
    by: str | None
    exchanges_count: int
    kept: tuple[KeptRecord, ...]
    retired: tuple[RetiredRecord, ...]
    dropped: tuple[str, ...]
    summary: str
    probes: ProbesRecord


async def compact(call: HttpCall[Empty, CompactBody]) -> Response:
    service, session_id = call.services.engine.compaction, call.id_of(SESSION)
    if call.body.dry_run:
        return answer_json(_answer(await service.preview(call.principal, session_id)))
    return answer_json(_answer(await service.compact(call.principal, session_id)))


def _answer(report: CompactionReport) -> CompactionAnswer:
    done = report.compaction
    return CompactionAnswer(
        committed=report.is_committed,
        reason=report.reason,
        checkpoint_id=report.checkpoint_id,
        by=None if done is None else "model" if done.is_by_model else "rules",
        exchanges_count=report.exchanges_count,
        kept=() if done is None else tuple(KeptRecord(kind=item.kind.value, text=item.text) for item in done.items),
        retired=() if done is None else tuple(map(_retired, done.retired)),
        dropped=report.lost,
        summary="" if done is None else done.summary,
        probes=ProbesRecord(
            passed=0 if done is None else done.probes_passed, refusals=() if done is None else done.refusals
        ),
    )


def _retired(item: RetiredItem) -> RetiredRecord:
    return RetiredRecord(kind=item.kind.value, text=item.text, by=item.by, by_place=item.by_place)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/sessions/{session_id}/compact",
              "Replace the older part of a session's context by a checked summary",
              compact, action="sessions.compact", resource=SESSION, answer=CompactionAnswer, role=Role.USER,
              errors=(409,), timeout_s=COMPACT_TIMEOUT_S),
)  # fmt: skip
