"""One model call.

Owns: streaming it, sending its live frames, and the facts of its outcome. Does not own: whether to make it (core.run).
Invariants: live frames pass the redaction stream first, which holds back only text that could still become a secret
(L5). They wait for no append (L4).
"""

from contextlib import aclosing
from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.assembly import Assembly
from palyra.core.estimate import is_possible
from palyra.core.events import Data
from palyra.core.events.model import ModelError, ModelFailed, ModelOutput
from palyra.core.ids import RunId, SessionId
from palyra.core.redaction import Redactor
from palyra.core.run.effects import CallModel
from palyra.core.run.state import ChosenRoute
from palyra.engine.hub import Hub, LiveFrame
from palyra.engine.session.images import with_images
from palyra.engine.session.long_texts import LiveFeed
from palyra.engine.spend.bill import Bill
from palyra.engine.spend.route_planner import OUTPUT_TOKENS_MAX
from palyra.ports.artifacts import Artifacts
from palyra.ports.prices import Prices
from palyra.ports.provider import ENDINGS, CallDelta, Completed, Failed, ModelRequest, ReasoningDelta, TextDelta
from palyra.ports.router import Router
from palyra.ports.schemas import SchemaCheck

# Another model of the route may succeed after these. A wrong, too long or refused request fails everywhere.
FAILOVER = frozenset(ModelError) - {ModelError.BAD_REQUEST, ModelError.CONTEXT_LENGTH, ModelError.CONTENT_FILTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCaller:
    """What model calls need. `bounds_output` is set if there is a budget, because then the output must be bounded."""

    router: Router
    prices: Prices
    schemas: SchemaCheck
    artifacts: Artifacts
    redactor: Redactor
    hub: Hub
    bounds_output: bool


class ModelCall:
    """Runs in its own task. To stop it, cancel that task and then ask for `interrupted`."""

    def __init__(
        self,
        caller: ModelCaller,
        session_id: SessionId,
        effect: CallModel,
        request: ModelRequest,
        route: ChosenRoute | None = None,
    ) -> None:
        self._caller = caller
        self._session_id = session_id
        self._effect = effect
        self._request = request
        self._router = caller.router
        self._models = (effect.model, *(route.fallbacks if route is not None else ()))
        self._bill = Bill(caller.prices, effect.turn, route.reserved if route is not None else None)
        self._model = effect.model
        self._feeds: dict[str, LiveFeed] = {}
        self._assembly = Assembly(RunId(request.run_id), effect.turn, request.calls_before)

    async def perform(self) -> list[Data]:
        """Returns the facts: usage first, so that the deciding fact comes last.

        Before the first word of an answer, a failure moves on to the next model of the route.
        """
        failed = Failed(ModelError.NO_MODEL, "There is no model to call.")
        for model in self._models:
            self._model = model
            ending = await self._attempt(model)
            if isinstance(ending, Completed):
                return self._completed(ending)
            failed = ending
            if not self._assembly.is_empty or failed.code not in FAILOVER:
                break
            self._tell_failover(model, failed)
        return self._failed(failed)

    def interrupted(self) -> list[Data]:
        self._router.abandon(self._model)
        self._flush()
        return self._cut_off()

    def broken(self) -> list[Data]:
        """Returns the facts of a failure in the adapter itself, which the log describes."""
        self._router.fail(self._model, ModelError.PROTOCOL)
        self._flush()
        return self._failed(Failed(ModelError.PROTOCOL, "The provider's adapter failed; the daemon's log says how."))

    async def _attempt(self, model: str) -> Completed | Failed:
        self._router.begin(model)
        ending: Completed | Failed = Failed(ModelError.PROTOCOL, "The provider's stream ended without saying how.")
        request = replace(self._request, model=model, max_output_tokens=self._limit(model))
        request = await with_images(self._caller.artifacts, request)
        async with aclosing(self._router.provider(model).stream(request)) as deltas:
            async for delta in deltas:
                if isinstance(delta, ENDINGS):
                    ending = delta
                    break
                self._receive(delta)
        self._flush()
        if isinstance(ending, Completed):
            self._router.succeed(model)
        else:
            self._router.fail(model, ending.code)
        return ending

    def _limit(self, model: str) -> int | None:
        """Limits the output to what the budget reserved, if the model has no limit of its own."""
        asked = self._request.max_output_tokens
        if not self._caller.bounds_output:
            return asked
        limits = {card.name: card.max_output_tokens for card in self._router.models()}
        if limits.get(model) is not None:
            return asked  # The adapter sends the smaller one.
        return OUTPUT_TOKENS_MAX if asked is None else min(asked, OUTPUT_TOKENS_MAX)

    def _tell_failover(self, model: str, failed: Failed) -> None:
        data: dict[str, object] = {"phase": "failover", "message": f"{model} failed ({failed.code.value})."}
        self._caller.hub.live(LiveFrame(self._session_id, RunId(self._request.run_id), "progress", data))

    def _receive(self, delta: TextDelta | ReasoningDelta | CallDelta) -> None:
        if isinstance(delta, TextDelta):
            self._assembly.add_text(delta.text)
            self._feed("model.delta").feed(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._assembly.add_reasoning(delta.text)
            self._feed("reasoning.delta").feed(delta.text)
        else:
            self._assembly.add_call(delta.index, delta.tool, delta.arguments)

    def _completed(self, completed: Completed) -> list[Data]:
        usage = completed.usage if completed.usage is None or is_possible(completed.usage) else None
        output = self._checked(self._assembly.complete(completed.finish, usage, completed.provider_state))
        if self._model != self._effect.model:
            output = replace(output, model=self._model)
        if usage is None:
            return [self._bill.guessed(self._model, output), output]
        return [self._bill.counted(self._model, usage), output]

    def _checked(self, output: ModelOutput) -> ModelOutput:
        """Records whether the text fits the caller's schema, because the rules may not validate JSON themselves."""
        schema = self._request.answer_schema
        if schema is None or output.tool_calls:
            return output
        return replace(output, schema_errors=self._caller.schemas.text_errors(schema, output.text))

    def _failed(self, failed: Failed) -> list[Data]:
        """After the first words a failure leaves an interrupted output.

        Before them the call failed, and costs nothing.
        """
        if not self._assembly.is_empty:
            return self._cut_off(failed.message)
        return [ModelFailed(turn=self._effect.turn, code=failed.code, message=failed.message, model=self._model)]

    def _cut_off(self, cause: str | None = None) -> list[Data]:
        output = self._assembly.interrupted(cause)
        return [self._bill.guessed(self._model, output), output]

    def _feed(self, type_name: str) -> LiveFeed:
        """Returns where live text of a type goes. Few answers have text of both."""
        feed = self._feeds.get(type_name)
        if feed is None:
            stream = self._caller.redactor.for_run(self._request.run_id).stream(is_eager=True)
            text = LiveText(self._caller.hub, self._session_id, self._request, type_name)
            feed = self._feeds[type_name] = LiveFeed(stream, text.send)
        return feed

    def _flush(self) -> None:
        for feed in self._feeds.values():
            feed.finish()


class LiveText:
    """One growing text as live frames with offsets, in characters of the redacted text."""

    def __init__(self, hub: Hub, session_id: SessionId, request: ModelRequest, type_name: str) -> None:
        self._hub = hub
        self._session_id = session_id
        self._run_id = RunId(request.run_id)
        self._turn = request.turn
        self._type = type_name
        self._offset = 0

    def send(self, text: str) -> None:
        data: dict[str, object] = {"turn": self._turn, "offset": self._offset, "text": text}
        self._offset += len(text)
        self._hub.live(LiveFrame(self._session_id, self._run_id, self._type, data))
