"""The tool agent.delegate: gives a task to a child run, and returns its answer.

Does not own: the child run (ports.delegation). Its limits, its taint and its budget are the engine's.
"""

from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.delegation import CHILDREN_MAX, DEPTH_MAX
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk, ToolError
from palyra.core.tools import CallNature, ToolResult, ToolSpec, Trait
from palyra.core.trust import Trust
from palyra.ports.delegation import Delegation, DelegationOutcome, DelegationRefused, DelegationRequest
from palyra.ports.tools import ToolCallContext

PROMPT_LENGTH_MAX = 60_000  # Below the limit of an event in UTF-8 for every script; longer input belongs in a file.
NAME_LENGTH_MAX = 256
BUDGET_USD_MAX = 1_000_000
# The limits of parent and child end a call much sooner. This one holds for a child that waits for a person for days.
TIMEOUT_S = 7 * 24 * 3600.0

SPEC = ToolSpec(
    name="agent.delegate",
    description=(
        "Gives a task to a child run in a session of its own and returns its answer. The child knows nothing of this "
        "conversation, so say everything it needs. It has at most your tools. Several calls in one turn run at the same "
        f"time. A run has at most {CHILDREN_MAX} children, and children nest {DEPTH_MAX} deep."
    ),
    input_schema=arguments_schema(
        {
            "prompt": text_schema(
                PROMPT_LENGTH_MAX, "The whole task: what to do, what to look at, what to answer with."
            ),
            "agent": text_schema(NAME_LENGTH_MAX, "The agent that does it. Default: the same agent as yours."),
            "budget_usd": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": BUDGET_USD_MAX,
                "description": "The most that the child may spend, in US dollars. Default: a share of your own budget.",
            },
        },
        ["prompt"],
    ),
    effect_class=EffectClass.IDEMPOTENT,
    parallel_class=ParallelClass.IDEMPOTENT_NETWORK,
    risk=Risk.LOW,
    output_trust=Trust.LOCAL,
    timeout_s=TIMEOUT_S,
    traits=frozenset({Trait.STARTS_RUN}),
)


class AgentDelegate:
    spec = SPEC

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=SPEC.effect_class, parallel_class=SPEC.parallel_class)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        request = _request(arguments)
        if request is None:
            return _refused(DelegationRefused("arguments_invalid", "prompt is a text; budget_usd is more than 0"))
        try:
            outcome = await self._delegation.perform(request, context)
        except PalyraError as error:
            outcome = DelegationRefused(error.code, error.message)
        return _refused(outcome) if isinstance(outcome, DelegationRefused) else _told(outcome)


def _request(arguments: JsonObject) -> DelegationRequest | None:
    prompt, agent, budget_usd = (arguments.get(name) for name in ("prompt", "agent", "budget_usd"))
    if not isinstance(prompt, str) or not prompt.strip() or not isinstance(agent, str | None):
        return None
    if budget_usd is not None and (not isinstance(budget_usd, int | float) or not 0 < budget_usd <= BUDGET_USD_MAX):
        return None
    return DelegationRequest(prompt=prompt, agent=agent, budget_usd=budget_usd)


def _refused(refused: DelegationRefused) -> ToolResult:
    error = ToolError(code=refused.code, message=refused.message)
    return ToolResult(outcome=Outcome.FAILED, error=error, trust=Trust.SYSTEM)


def _told(outcome: DelegationOutcome) -> ToolResult:
    if outcome.answer is not None:
        return ToolResult(outcome=Outcome.OK, output=outcome.answer, trust=outcome.trust, source=outcome.source)
    message = f"The delegated run {outcome.run_id} gave no answer ({outcome.reason}): {outcome.message}"
    error = ToolError(code=f"child_{outcome.reason}", message=message)
    return ToolResult(outcome=Outcome.FAILED, error=error, trust=outcome.trust, source=outcome.source)
