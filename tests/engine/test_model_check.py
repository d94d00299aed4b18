"""A check is one small real call: it says what came of it, tells the router, and is on the system tape before and after."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from palyra.core.errors import Conflict, NotFound
from palyra.core.events import Draft, Event
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.events.system import AdminActed
from palyra.core.ids import system_stream
from palyra.core.trust import Trust
from palyra.engine.api import model_check
from palyra.engine.api.model_check import OUTPUT_TOKENS_MAX, PROMPT, TEXT_LENGTH_MAX
from palyra.engine.engine import Engine
from palyra.ports.journal import Append, Journal
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, Provider, ReasoningDelta, TextDelta
from tests.support.engines import OWNER, Workshop

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


async def acts(engine: Engine) -> list[tuple[str, str, str]]:
    """Who did what to which model."""
    return [(str(event.actor), event.data.action, event.data.target) for event in await tape(engine)]  # type: ignore[union-attr]


async def tape(engine: Engine) -> list[Event]:
    events = await engine._setup.journal.read(system_stream(engine._parts.node), 0, 100)
    return [event for event in events if isinstance(event.data, AdminActed)]


BOTH = [("user:owner", "model.check_begun", "m"), ("user:owner", "model.checked", "m")]


async def test_an_answer_is_told_with_its_times_and_tokens(tmp_path: Path) -> None:
    provider = Saying(ReasoningDelta("hm"), *ANSWER)
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
        assert (checked.model, checked.ok, checked.code, checked.text) == ("m", True, None, "ok")
        assert checked.usage == Usage(input_tokens=12, output_tokens=1)
        assert checked.first_token_ms is not None
        assert 0 <= checked.first_token_ms <= checked.total_ms
        assert await acts(engine) == BOTH
        assert (await tape(engine))[1].data.detail == "it answers; 12 tokens in, 1 out, price unknown"  # type: ignore[union-attr]
    (request,) = provider.requests
    assert ([message.text for message in request.messages], request.tools) == ([PROMPT], ())
    assert (request.model, request.max_output_tokens) == ("m", OUTPUT_TOKENS_MAX)


async def test_the_intent_is_on_the_tape_before_the_call(tmp_path: Path) -> None:
    seen: list[tuple[str, str, str]] = []

    async def look() -> None:
        seen.extend(await acts(engine))

    async with workshop(tmp_path, m=Saying(*ANSWER, before=look)).open() as engine:
        await engine.status.check_model(OWNER, "m")
    assert seen == BOTH[:1]


async def test_a_failure_is_an_answer_with_what_to_do(tmp_path: Path) -> None:
    provider = Saying(Failed(ModelError.AUTH, "The key was refused. Check api_key."))
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
        assert (checked.ok, checked.code, checked.message) == (False, "auth", "The key was refused. Check api_key.")
        assert (checked.first_token_ms, checked.usage) == (None, None)
        told = (await tape(engine))[1].data
    assert told.detail == "it failed with auth; the provider reported no tokens"  # type: ignore[union-attr]


@pytest.mark.parametrize("deltas", [(), (TextDelta("o"),)])
async def test_a_stream_without_an_end_is_a_failure(tmp_path: Path, deltas: tuple[Delta, ...]) -> None:
    async with workshop(tmp_path, m=Saying(*deltas)).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
    assert (checked.ok, checked.code) == (False, "protocol")


async def test_a_silent_provider_is_not_waited_for_longer_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_check, "CHECK_TIMEOUT_S", 0.05)
    provider = Saying(before=asyncio.Event().wait)
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
        assert (checked.ok, checked.code, provider.is_closed) == (False, "timeout", True)
        assert await acts(engine) == BOTH


async def test_the_router_learns_of_it(tmp_path: Path) -> None:
    """A model that was given up is back after a check that succeeds."""
    provider = Saying(Failed(ModelError.NETWORK, "Not reached."))
    async with workshop(tmp_path, m=provider, other=Saying(*ANSWER)).open() as engine:
        for _ in range(10):
            await engine.status.check_model(OWNER, "m")
        assert {model.name: model.health for model in engine.status.models()} == {"m": "open", "other": "ok"}
        provider._deltas = ANSWER
        await engine.status.check_model(OWNER, "m")
        assert {model.health for model in engine.status.models()} == {"ok"}


async def test_a_secret_in_an_answer_is_not_repeated(tmp_path: Path) -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    provider = Saying(TextDelta(f"token {secret}"), Failed(ModelError.BAD_REQUEST, f"It said {secret}."))
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
    assert secret not in f"{checked.text} {checked.message}"
    assert "‹secret:" in checked.text


async def test_a_server_that_ignores_the_limit_is_not_listened_to(tmp_path: Path) -> None:
    pieces = [TextDelta("x" * 100)] * (TEXT_LENGTH_MAX // 10)
    provider = Saying(*pieces, *ANSWER)
    async with workshop(tmp_path, m=provider).open() as engine:
        checked = await engine.status.check_model(OWNER, "m")
    assert (checked.ok, provider.is_closed) == (True, True)
    assert provider.given_count == TEXT_LENGTH_MAX // 100 + 1
    assert len(checked.text) < TEXT_LENGTH_MAX


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


async def test_a_check_that_is_cut_off_leaves_its_beginning_and_judges_nobody(tmp_path: Path) -> None:
    called = asyncio.Event()

    async def hold() -> None:
        called.set()
        await asyncio.Event().wait()

    async with workshop(tmp_path, m=Saying(before=hold)).open() as engine:
        task = asyncio.create_task(engine.status.check_model(OWNER, "m"))
        await called.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert await acts(engine) == BOTH[:1]
        assert [model.health for model in engine.status.models()] == ["ok"]


async def test_an_unknown_model_is_not_called_and_nothing_is_recorded(tmp_path: Path) -> None:
    async with workshop(tmp_path, m=Saying(*ANSWER)).open() as engine:
        with pytest.raises(NotFound, match="model_unknown"):
            await engine.status.check_model(OWNER, "n")
        assert await acts(engine) == []


class Elbowed:
    """A journal in which somebody else always puts an event on the system tape just before we do, for a while."""

    def __init__(self, journal: Journal, times: int) -> None:
        self._journal = journal
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, appends: Sequence[Append], *rest: Any) -> tuple[Event, ...]:
        if self._left and appends and isinstance(appends[0].drafts[0].data, AdminActed):
            self._left -= 1
            other = Draft(data=AdminActed(action="elbow"), actor=OWNER, trust=Trust.SYSTEM, at_ms=1)
            await self._journal.commit([Append(appends[0].stream, appends[0].expected_seq, (other,))])
        return await self._journal.commit(appends, *rest)


async def test_an_act_is_recorded_in_spite_of_others_on_the_tape(tmp_path: Path) -> None:
    made = workshop(tmp_path, m=Saying(*ANSWER))
    made.wrap_journal = lambda journal: Elbowed(journal, 3)
    async with made.open() as engine:
        assert (await engine.status.check_model(OWNER, "m")).ok
        assert [action for _, action, _ in await acts(engine)] == ["elbow"] * 3 + ["model.check_begun", "model.checked"]


async def test_what_cannot_be_recorded_is_not_called(tmp_path: Path) -> None:
    provider = Saying(*ANSWER)
    made = workshop(tmp_path, m=provider)
    made.wrap_journal = lambda journal: Elbowed(journal, 10_000)
    async with made.open() as engine:
        with pytest.raises(Conflict, match="seq_stale"):
            await engine.status.check_model(OWNER, "m")
    assert provider.requests == []
