"""Routes of routines.

Owns: listing, creating, changing, removing and running routines over HTTP, and their history.
Does not own: what a routine is (core.routines), whose it is (engine.api.routines).
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from palyra.core.caller_trust import sources_of_caller
from palyra.core.ids import Principal, parse_routine_id
from palyra.core.routines.model import (
    CRON_LENGTH_MAX,
    EVERY_S_MAX,
    MISFIRE_MAX_DEFAULT,
    MISFIRE_MAX_LIMIT,
    NAME_LENGTH_MAX,
    PROMPT_LENGTH_MAX,
    ZONE_LENGTH_MAX,
    Misfire,
    Overlap,
    Routine,
    RoutineFireView,
)
from palyra.core.routines.wish import RoutineWish
from palyra.core.run.states import RunState
from palyra.engine.api.routine_records import (
    RoutineChange,
    RoutineFireRecord,
    RoutineRecord,
    fire_record,
    routine_record,
)
from palyra.engine.engine import Engine
from palyra.gateway.access.resources import ResourceKind
from palyra.gateway.http.responses import answer_json, answer_nothing
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import PAGE_DEFAULT
from palyra.gateway.routes.bodies import Cursor, Key, Name, PageLimit, PageQuery, RequestBody, cut_page, page_size
from palyra.ports.tokens import Role

MOMENT_LENGTH_MAX = 40
STARTS = "runs.start"  # A routine starts runs, also when the token that made it has ended.

SPEAKS = "channels.resume"  # A routine with a channel speaks to others unasked, which is an operator's to decide.

ROUTINE = ResourceKind(
    "routine", parse_routine_id, lambda owners, principal, routine_id: owners.of_routine(principal, routine_id)
)

RoutineName = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Prompt = Annotated[str, Meta(min_length=1, max_length=PROMPT_LENGTH_MAX)]
Interval = Annotated[int, Meta(ge=1, le=EVERY_S_MAX)]
CronText = Annotated[str, Meta(min_length=1, max_length=CRON_LENGTH_MAX)]
MomentText = Annotated[str, Meta(min_length=1, max_length=MOMENT_LENGTH_MAX)]
Zone = Annotated[str, Meta(min_length=1, max_length=ZONE_LENGTH_MAX)]
MisfireMax = Annotated[int, Meta(ge=1, le=MISFIRE_MAX_LIMIT)]


class RoutineBody(RequestBody, frozen=True, kw_only=True):
    """One of `every_s`, `cron` and `at` is given. `channel` names a channel that hears the answers; for operators."""

    name: RoutineName
    prompt: Prompt
    every_s: Interval | None = None
    cron: CronText | None = None
    at: MomentText | None = None
    timezone: Zone = "UTC"
    misfire: Misfire | None = None
    misfire_max: MisfireMax = MISFIRE_MAX_DEFAULT
    overlap: Overlap = Overlap.FORBID
    session_key: Key | None = None
    channel: Name | None = None
    agent: Name | None = None


class RoutineChangeBody(RequestBody, frozen=True, kw_only=True):
    """What is not given stays. One of `every_s`, `cron` and `at` takes the place of the schedule before."""

    name: RoutineName | UnsetType = UNSET
    prompt: Prompt | UnsetType = UNSET
    every_s: Interval | UnsetType = UNSET
    cron: CronText | UnsetType = UNSET
    at: MomentText | UnsetType = UNSET
    timezone: Zone | UnsetType = UNSET
    misfire: Misfire | UnsetType = UNSET
    misfire_max: MisfireMax | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    session_key: Key | UnsetType | None = UNSET
    channel: Name | UnsetType = UNSET
    agent: Name | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET


class RoutinesQuery(PageQuery, frozen=True, kw_only=True):
    """`removed` lists removed routines instead, without their prompts. Their history stays for 90 days."""

    removed: bool = False


class HistoryQuery(RequestBody, frozen=True, kw_only=True):
    """`after` is the due time of the last item of the page before; the newest come first."""

    after: Cursor | None = None
    limit: PageLimit = PAGE_DEFAULT


class RoutinePage(msgspec.Struct, frozen=True):
    items: tuple[RoutineRecord, ...]
    next_after: str | None


class RoutineHistoryPage(msgspec.Struct, frozen=True):
    items: tuple[RoutineFireRecord, ...]
    next_after: int | None


async def list_routines(call: HttpCall[RoutinesQuery, Unread]) -> Response:
    size, reader = page_size(call.query.limit), call.reader(call.query.everyone)
    is_removed = call.query.removed
    found = await call.services.engine.routines.list(reader, call.query.after, size + 1, is_removed=is_removed)
    records = [await _record(call.services.engine, routine) for routine in found]
    return answer_json(RoutinePage(*cut_page(records, size, lambda record: str(record.id))))


async def create(call: HttpCall[Empty, RoutineBody]) -> Response:
    call.require_also(STARTS)
    if call.body.channel is not None:
        call.require_also(SPEAKS)
    wish = RoutineWish(**msgspec.structs.asdict(call.body), taint=sources_of_caller(call.principal))
    return answer_json(routine_record(await call.services.engine.routines.create(call.principal, wish)), 201)


async def show(call: HttpCall[Empty, Unread]) -> Response:
    engine = call.services.engine
    return answer_json(await _record(engine, await engine.routines.get(call.viewer, call.id_of(ROUTINE))))


async def change(call: HttpCall[Empty, RoutineChangeBody]) -> Response:
    wish = RoutineChange(**msgspec.structs.asdict(call.body))
    if wish.given() or wish.paused is False:
        call.require_also(STARTS)
    routines, routine_id = call.services.engine.routines, call.id_of(ROUTINE)
    # What an operator let speak in a channel keeps its words and its times without one.
    is_heard = wish.given() and (await routines.get(call.viewer, routine_id)).definition.channel is not None
    if is_heard or wish.channel is not UNSET:
        call.require_also(SPEAKS)
    changed = await routines.change(call.viewer, routine_id, wish, call.principal)
    return answer_json(routine_record(changed))


async def remove(call: HttpCall[Empty, Unread]) -> Response:
    await call.services.engine.routines.remove(call.viewer, call.id_of(ROUTINE), call.principal)
    return answer_nothing()


async def run(call: HttpCall[Empty, Empty]) -> Response:
    call.require_also(STARTS)
    fired = await call.services.engine.routines.run(call.viewer, call.id_of(ROUTINE))
    return answer_json(fire_record(fired), 202)


async def history(call: HttpCall[HistoryQuery, Unread]) -> Response:
    size, routine_id = page_size(call.query.limit), call.id_of(ROUTINE)
    found = await call.services.engine.routines.history(call.viewer, routine_id, call.query.after, size + 1)
    records = [await _fire(call.services.engine, call.viewer, view) for view in found]
    return answer_json(RoutineHistoryPage(*cut_page(records, size, lambda record: record.due_at_ms)))


async def _record(engine: Engine, routine: Routine) -> RoutineRecord:
    """Returns a routine with what came of its last time, so that one that always fails is seen."""
    newest = await engine.routines.history(routine.principal, routine.id, None, 1)
    return routine_record(routine, await _fire(engine, routine.principal, newest[0]) if newest else None)


async def _fire(engine: Engine, principal: Principal, view: RoutineFireView) -> RoutineFireRecord:
    if view.run_id is None or view.run_state not in (RunState.FAILED.value, RunState.CANCELLED.value):
        return fire_record(view)
    return fire_record(view, (await engine.runs.get(principal, view.run_id)).reason)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/routines", "List routines, in the order of their ids",
              list_routines, action="routines.list", others=Role.OPERATOR, answer=RoutinePage),
    HttpRoute("POST", "/api/v1/routines", "Create a routine that runs as you",
              create, action="routines.create", answer=RoutineRecord, status=201, role=Role.USER, errors=(409,)),
    HttpRoute("GET", "/api/v1/routines/{routine_id}", "Show a routine",
              show, action="routines.read", resource=ROUTINE, others=Role.OPERATOR, answer=RoutineRecord),
    HttpRoute("PATCH", "/api/v1/routines/{routine_id}",
              "Change, pause or resume a routine; another's can be paused and resumed only",
              change, action="routines.change", resource=ROUTINE, others=Role.OPERATOR, answer=RoutineRecord,
              role=Role.USER, errors=(409,)),
    HttpRoute("DELETE", "/api/v1/routines/{routine_id}",
              "Remove a routine with its prompt; its history stays for 90 days",
              remove, action="routines.remove", resource=ROUTINE, others=Role.OPERATOR, status=204, role=Role.USER,
              errors=(409,)),
    HttpRoute("POST", "/api/v1/routines/{routine_id}/run", "Run a routine now, besides its schedule",
              run, action="routines.run", resource=ROUTINE, answer=RoutineFireRecord, status=202, role=Role.USER,
              errors=(409,)),
    HttpRoute("GET", "/api/v1/routines/{routine_id}/history",
              "List the times that came, the newest first, with their runs",
              history, action="routines.read", resource=ROUTINE, others=Role.OPERATOR, answer=RoutineHistoryPage),
)  # fmt: skip
