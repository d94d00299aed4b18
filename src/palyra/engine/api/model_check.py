"""Checking a model. Owns: one small real call outside any run, what came of it, and its record. Not: routes, nor budgets.

No run has this spend, so it is told on the system tape: what is about to be called before the call, and what it took
after it. A first without its second means that the daemon ended in between.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from palyra.core.conversation import UserMessage
from palyra.core.errors import Conflict, NotFound
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.core.redaction import Redactor
from palyra.engine.api.admin_log import AdminLog
from palyra.ports.prices import Prices
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, TextDelta
from palyra.ports.router import Router

CHECK_TIMEOUT_S = 60.0
PROMPT = "Reply with the word ok."
# Room to think: a model that reasons spends this before its first word, and OpenAI's refuse a limit they run into.
OUTPUT_TOKENS_MAX = 512
TEXT_LENGTH_MAX = 4_000  # A server that ignores the limit is not listened to any longer.
SHOWN_LENGTH_MAX = 200
NANO = 1_000_000_000


class ModelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`code` and `message` say what failed and what to do. No usage: the provider did not report any."""

    model: str
    ok: bool
    code: str | None
    message: str
    first_token_ms: int | None
    total_ms: int
    text: str
    usage: Usage | None


class ModelCheckService:
    """One check of a model at a time: two at once would tell nothing more and cost twice."""

    def __init__(self, router: Router, prices: Prices, redactor: Redactor, acts: AdminLog) -> None:
        self._router = router
        self._prices = prices
        self._redactor = redactor
        self._acts = acts
        self._under_way: set[str] = set()

    async def check(self, principal: Principal, name: str) -> ModelCheck:
        if name not in {model.name for model in self._router.models()}:
            raise NotFound("model_unknown", "there is no model of this name; GET /api/v1/models lists those there are")
        if name in self._under_way:
            raise Conflict("check_under_way", f"model {name} is being checked already; wait for that check to end")
        self._under_way.add(name)
        try:
            return await self._check(principal, name)
        finally:
            self._under_way.discard(name)

    async def _check(self, principal: Principal, name: str) -> ModelCheck:
        begun = AdminActed(action="model.check_begun", target=name, detail="one small call is made, outside any run")
        await self._acts.record(principal, begun)
        checked = await self._call(name)
        ended = AdminActed(action="model.checked", target=name, detail=self._told(checked))
        await self._acts.record(principal, ended)
        return checked

    async def _call(self, name: str) -> ModelCheck:
        """The router is told as of any call: a check that succeeds brings a model back that was passed over."""
        router = self._router
        request = ModelRequest(
            model=name, instructions="", messages=(UserMessage(PROMPT),), max_output_tokens=OUTPUT_TOKENS_MAX
        )
        hearing = _Hearing()
        ending: Completed | Failed | None = None
        router.begin(name)
        try:
            ending = await hearing.hear(router.provider(name).stream(request))
        finally:
            match ending:
                case Completed():
                    router.succeed(name)
                case Failed(code=code):
                    router.fail(name, code)
                case None:
                    router.abandon(name)
        return self._outcome(name, hearing, ending)

    def _outcome(self, name: str, hearing: "_Hearing", ending: Completed | Failed) -> ModelCheck:
        failed = ending if isinstance(ending, Failed) else None
        clean = self._redactor.text
        return ModelCheck(
            model=name,
            ok=failed is None,
            code=None if failed is None else failed.code.value,
            message="It answers." if failed is None else clean(failed.message).text,
            first_token_ms=hearing.first_token_ms,
            total_ms=hearing.elapsed_ms(),
            text=clean(hearing.text).text[:SHOWN_LENGTH_MAX],
            usage=ending.usage if isinstance(ending, Completed) else None,
        )

    def _told(self, checked: ModelCheck) -> str:
        """Our words alone, and no text: what is on a system tape stays there."""
        outcome = "it answers" if checked.ok else f"it failed with {checked.code}"
        if checked.usage is None:
            return f"{outcome}; the provider reported no tokens"
        cost = self._prices.cost_nano_usd(checked.model, checked.usage)
        price = "price unknown" if cost is None else f"${cost / NANO:.9f}"
        return f"{outcome}; {checked.usage.input_tokens} tokens in, {checked.usage.output_tokens} out, {price}"


class _Hearing:
    """One answer as it comes, with its times."""

    def __init__(self) -> None:
        self._began_s = _now_s()
        self.first_token_ms: int | None = None
        self.text = ""

    async def hear(self, deltas: AsyncGenerator[Delta, None]) -> Completed | Failed:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S), aclosing(deltas):
                return await self._read(deltas)
        except TimeoutError:
            message = f"No answer within {CHECK_TIMEOUT_S:g} s. Look at the provider, or at base_url and the network."
            return Failed(ModelError.TIMEOUT, message)

    async def _read(self, deltas: AsyncGenerator[Delta, None]) -> Completed | Failed:
        async for delta in deltas:
            if isinstance(delta, Completed | Failed):
                return delta
            if self.first_token_ms is None:
                self.first_token_ms = self.elapsed_ms()
            self.text += delta.text if isinstance(delta, TextDelta) else ""
            if len(self.text) > TEXT_LENGTH_MAX:
                return Completed(Finish.LENGTH)
        return Failed(ModelError.PROTOCOL, "The provider's stream ended without saying how.")

    def elapsed_ms(self) -> int:
        return round((_now_s() - self._began_s) * 1000)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
