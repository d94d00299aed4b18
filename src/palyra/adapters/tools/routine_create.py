"""The tool routine.create: makes a prompt that runs on a schedule, as the person whose run asks for it.

Does not own: routines (ports.routines).
A bundled policy always asks a person. The risk is critical, so no earlier answer covers a call: a routine goes on
acting when nobody watches. The routine's id is made from the effect, so that repeating the call makes nothing twice.
The routine runs as the agent of the run that made it, with the taint of that run's context (L8).
"""

from msgspec.structs import replace

from palyra.core.argument_schemas import arguments_schema, integer_schema, text_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
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
)
from palyra.core.routines.wish import RoutineWish, moment_text
from palyra.core.tools import CallNature, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust
from palyra.ports.routines import RoutineMaker
from palyra.ports.tools import ToolCallContext

SPEC = ToolSpec(
    name="routine.create",
    description=(
        "Creates a routine: a prompt that is run on a schedule, as a new run without anybody watching. Give exactly one "
        "of every_s, cron (five fields) or at (a date and time). Use it for reminders and regular work. A person is "
        "always asked first."
    ),
    input_schema=arguments_schema(
        {
            "name": text_schema(NAME_LENGTH_MAX, "A short name that no other routine of this person has."),
            "prompt": text_schema(PROMPT_LENGTH_MAX, "What is said each time. It must make sense on its own."),
            "every_s": integer_schema(1, EVERY_S_MAX, "An interval."),
            "cron": {
                "type": "string",
                "minLength": 9,
                "maxLength": CRON_LENGTH_MAX,
                "description": 'Minute, hour, day, month and weekday: "0 9 * * 1" is every Monday at 09:00.',
            },
            "at": text_schema(40, "One moment, such as 2027-01-31T07:30:00. Without an offset it is in the time zone."),
            "timezone": text_schema(ZONE_LENGTH_MAX, "An IANA time zone name such as Europe/Prague. Default: UTC."),
            "misfire": {
                "enum": [one.value for one in Misfire],
                "description": "Times missed while the daemon was off: skip them, make them up once, or all.",
            },
            "misfire_max": integer_schema(1, MISFIRE_MAX_LIMIT, "How many missed times misfire all makes up for."),
            "overlap": {
                "enum": [one.value for one in Overlap],
                "description": "Due while its last run goes on: forbid a second, queue it, or replace the first.",
            },
        },
        ["name", "prompt"],
    ),
    effect_class=EffectClass.IDEMPOTENT,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.CRITICAL,
    output_trust=Trust.SYSTEM,
    timeout_s=20.0,
    traits=frozenset({Trait.OUTLIVES_RUN}),
)


class RoutineCreate:
    spec = SPEC

    def __init__(self, routines: RoutineMaker) -> None:
        self._routines = routines

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(
            effect_class=EffectClass.IDEMPOTENT, parallel_class=ParallelClass.NEVER, preview=self._preview(arguments)
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        wish = _wish(arguments)
        if wish is None:
            return failed("arguments_invalid", "name and prompt are texts; every_s and misfire_max are whole numbers")
        if context.is_delegated:
            return failed(
                "delegated_run", "A delegated run may not create routines; say in your answer what is needed."
            )
        # The prompt is the model's, so a run of the routine has neither more rights nor more trust than this one.
        wish = replace(wish, agent=context.agent, taint=context.taint)
        try:
            routine = await self._routines.make(context.principal, wish, context.effect_id)
        except PalyraError as error:
            return failed(error.code, error.message)
        first = "none" if routine.next_at_ms is None else moment_text(routine.next_at_ms, routine.definition.timezone)
        text = f"Created the routine {routine.definition.name} ({routine.id}). Its first time: {first}."
        return ToolResult(outcome=Outcome.OK, output=text)

    def _preview(self, arguments: JsonObject) -> str | None:
        """Says when it would run, in words. What cannot be is not previewed: executing it says why."""
        wish = _wish(arguments)
        if wish is None:
            return None
        try:
            return self._routines.describe(wish)
        except PalyraError as error:
            return f"It cannot be created: {error.message}"


def _wish(arguments: JsonObject) -> RoutineWish | None:
    """Reads the arguments. The gate has checked them, but a call from elsewhere may not have been."""
    texts = {key: arguments.get(key) for key in ("name", "prompt", "cron", "at", "timezone", "misfire", "overlap")}
    numbers = {key: arguments.get(key) for key in ("every_s", "misfire_max")}
    name, prompt = texts["name"], texts["prompt"]
    cron, at, every_s, most = texts["cron"], texts["at"], numbers["every_s"], numbers["misfire_max"]
    if not isinstance(name, str) or not isinstance(prompt, str):
        return None
    if not isinstance(cron, str | None) or not isinstance(at, str | None):
        return None
    if not isinstance(every_s, int | None) or not isinstance(most, int | None) or isinstance(every_s, bool):
        return None
    try:
        misfire = None if texts["misfire"] is None else Misfire(texts["misfire"])
        overlap = Overlap.FORBID if texts["overlap"] is None else Overlap(texts["overlap"])
    except ValueError:
        return None
    return RoutineWish(
        name=name,
        prompt=prompt,
        every_s=every_s,
        cron=cron,
        at=at,
        timezone=str(texts["timezone"] or "UTC"),
        misfire=misfire,
        misfire_max=MISFIRE_MAX_DEFAULT if most is None else most,
        overlap=overlap,
    )
