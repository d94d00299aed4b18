"""A check is one small real call in a service run: planned, paid, recorded, and shown to who asks for it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from palyra.core.budget import Budget, BudgetAction, BudgetPeriod, BudgetScope
from palyra.core.errors import Conflict, NotFound
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.service_runs import MODEL_CHECK
from palyra.engine.api.model_check import PROMPT
from palyra.engine.api.requests import RunsQuery, UsageQuery
from palyra.engine.engine import Engine
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, Provider, ReasoningDelta, TextDelta
from palyra.ports.views import UsageGroup
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.routines import SetClock
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio

ANSWER = (TextDelta("o"), TextDelta("k"), Completed(Finish.STOP, Usage(input_tokens=12, output_tokens=1)))


class Saying:
    """A provider that says these deltas; `before` runs when it is called."""

    def __init__(self, *deltas: Delta, before: Callable[[], Any] | None = None) -> None:
        self._deltas = deltas
        self._before = before
        self.requests: list[ModelRequest] = []
        self.given_count = 0
        self.is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        try:
            if self._before is not None:
                await self._before()
            for delta in self._deltas:
                self.given_count += 1
                yield delta
        finally:
            self.is_closed = True


def workshop(root: Path, **providers: Provider) -> Workshop:
    made = Workshop(root, [])
    made.providers = dict(providers)
    made.route = tuple(providers)
    return made


async def runs_of(engine: Engine) -> list[tuple[str, str, str, str]]:
    """Service runs: for whom, by which agent, from where, and how they stand."""
    found = await engine.runs.list(OWNER, RunsQuery(has_services=True))
    return [(run.principal, run.agent, run.origin, run.state) for run in found]


CHECKED = ("user:owner", "service:model.check", "service")


async def test_an_answer_is_told_with_its_times_tokens_and_run(tmp_path: Path) -> None:
    provider = Saying(ReasoningDelta("hm"), *ANSWER)
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
        assert (checked.model, checked.ok, checked.code, checked.text) == ("m", True, None, "ok")
        assert checked.usage == Usage(input_tokens=12, output_tokens=1)
        assert checked.first_token_ms is not None
        assert 0 <= checked.first_token_ms <= checked.total_ms
        assert await runs_of(engine) == [(*CHECKED, "done")]
        record = await engine.runs.get(OWNER, checked.run_id)
        assert (record.session_id, record.usage.input_tokens) == (checked.session_id, 12)
    (request,) = provider.requests
    assert ([message.text for message in request.messages], request.tools) == ([PROMPT], ())
    assert (request.model, request.max_output_tokens) == ("m", MODEL_CHECK.max_output_tokens)


async def test_a_failure_is_an_answer_with_what_to_do(tmp_path: Path) -> None:
    provider = Saying(Failed(ModelError.AUTH, "The key was refused. Check api_key."))
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
        assert (checked.ok, checked.code, checked.message) == (False, "auth", "The key was refused. Check api_key.")
        assert (checked.first_token_ms, checked.usage) == (None, None)
        assert await runs_of(engine) == [(*CHECKED, "failed")]


@pytest.mark.parametrize(("deltas", "code"), [((), "protocol"), ((TextDelta("o"),), "interrupted")])
async def test_a_stream_without_an_end_is_a_failure(tmp_path: Path, deltas: tuple[Delta, ...], code: str) -> None:
    async with workshop(tmp_path, m=Saying(*deltas)).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
    assert (checked.ok, checked.code) == (False, code)


async def test_a_silent_provider_is_not_waited_for_longer_than_the_limit(tmp_path: Path) -> None:
    clock = SetClock()

    async def hold() -> None:
        clock.at_ms += MODEL_CHECK.wall_clock_ms
        engine._parts.deadlines.look_at_clock()
        await asyncio.Event().wait()

    provider = Saying(before=hold)
    made = workshop(tmp_path, m=provider)
    made.clock = clock
    async with made.open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
        assert (checked.ok, checked.code, provider.is_closed) == (False, "timeout", True)
        assert await runs_of(engine) == [(*CHECKED, "cancelled")]


async def test_the_router_learns_of_it(tmp_path: Path) -> None:
    """A model whose breaker is open is called all the same, and is back after a check that succeeds."""
    provider = Saying(Failed(ModelError.NETWORK, "Not reached."))
    async with workshop(tmp_path, m=provider, other=Saying(*ANSWER)).open() as engine:
        for _ in range(10):
            await engine.status.check_model(OWNER, "m")
        assert {model.name: model.health for model in engine.status.models()} == {"m": "open", "other": "ok"}
        provider._deltas = ANSWER
        await engine.status.check_model(OWNER, "m")
        assert {model.health for model in engine.status.models()} == {"ok"}
    assert len(provider.requests) == 11


async def test_a_secret_in_an_answer_is_not_repeated(tmp_path: Path) -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    provider = Saying(TextDelta(f"token {secret}"), Failed(ModelError.BAD_REQUEST, f"It said {secret}."))
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
    assert secret not in f"{checked.text} {checked.message}"
    assert "‹secret:" in checked.text


async def test_a_budget_that_is_used_up_refuses_a_check(tmp_path: Path) -> None:
    provider = Saying(*ANSWER)
    made = workshop(tmp_path, m=provider)
    made.budgets = (
        Budget(scope=BudgetScope.GLOBAL, period=BudgetPeriod.DAY, action=BudgetAction.DENY, limit_tokens=10),
    )
    async with made.open() as engine:
        assert (await engine.status.check_model(OWNER, "m")).ok
        checked = await engine.status.check_model(OWNER, "m")
        assert (checked.ok, checked.code) == (False, "budget")
    assert len(provider.requests) == 1


async def test_spend_of_a_check_is_in_the_usage_of_who_asked(tmp_path: Path) -> None:
    async with workshop(tmp_path, m=Saying(*ANSWER)).open() as engine:
        await engine.status.check_model(ALICE, "m")
        (mine,) = (await engine.usage.report(ALICE, UsageQuery(by=UsageGroup.CHANNEL))).sums
        assert (mine.key, mine.input_tokens) == ("service", 12)
        assert (await engine.usage.report(OWNER, UsageQuery())).sums == ()


async def test_one_model_is_checked_once_at_a_time(tmp_path: Path) -> None:
    called, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        called.set()
        await go_on.wait()

    async with workshop(tmp_path, m=Saying(*ANSWER, before=hold), other=Saying(*ANSWER)).open() as engine:
        first = asyncio.create_task(engine.status.check_model(OWNER, "m"))
        await called.wait()
        with pytest.raises(Conflict, match="check_under_way"):
            await engine.status.check_model(OWNER, "m")
        assert (await engine.status.check_model(OWNER, "other")).ok
        go_on.set()
        assert (await first).ok
        assert (await engine.status.check_model(OWNER, "m")).ok


async def test_a_check_that_is_cut_off_is_cancelled_and_judges_nobody(tmp_path: Path) -> None:
    called = asyncio.Event()

    async def hold() -> None:
        called.set()
        await asyncio.Event().wait()

    provider = Saying(before=hold)
    async with workshop(tmp_path, m=provider).open() as engine:
        task = asyncio.create_task(engine.status.check_model(OWNER, "m"))
        await called.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        async with asyncio.timeout(WAIT_S):
            while await runs_of(engine) != [(*CHECKED, "cancelled")]:
                await asyncio.sleep(0.01)
        assert [model.health for model in engine.status.models()] == ["ok"]
    assert provider.is_closed


async def test_an_unknown_model_is_not_called_and_nothing_is_recorded(tmp_path: Path) -> None:
    async with workshop(tmp_path, m=Saying(*ANSWER)).open() as engine:
        with pytest.raises(NotFound, match="model_unknown"):
            await engine.status.check_model(OWNER, "n")
        assert await runs_of(engine) == []
