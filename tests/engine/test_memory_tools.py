"""The tools memory.search and memory.retain: judged by the gate, with the trust and the sources of what they touch."""

from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.events import Event
from palyra.core.events.tool import ApprovalStatus, Decision, EffectClass, Outcome, ToolFinished, ToolJudged, Verdict
from palyra.core.memory.model import CONTENT_LENGTH_MAX, MemoryScope
from palyra.core.trust import Trust
from palyra.core.writes import PutMemory
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, SessionRequest
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.memory import MemoryPage
from tests.gateway.prepared import OutsideTool
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.memory import give, give_one, item_of, with_memory

pytestmark = pytest.mark.anyio

FACT = "The staging server is called heron."


def shop_for(root: Path, *turns: object) -> Workshop:
    """Recall is off, so that only the tools bring items in."""
    return Workshop(root, [Script(turns=tuple(turns))], EngineSettings(recalls_memory=False))  # type: ignore[arg-type]


def result_of(events: list[Event], tool: str | None = None) -> ToolFinished:
    results = [event.data for event in events if isinstance(event.data, ToolFinished)]
    return results[-1] if tool is None else next(each for each in results if each.tool == tool)


async def run(engine: Engine, **fields: object) -> list[Event]:
    return await finished(engine, await engine.runs.start(OWNER, ask(**fields)))  # type: ignore[arg-type]


async def run_allowed(engine: Engine) -> list[Event]:
    """Runs to the end and allows whatever is asked."""
    record = await engine.runs.start(OWNER, ask())
    await wait_for(engine, record.id, "approval.requested")
    (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
    await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
    return await finished(engine, record)


async def test_search_is_free_and_finds_own_items_only(tmp_path: Path) -> None:
    shop = shop_for(tmp_path, calls("memory.search", query="what is the staging server called", k=3), says("heron"))
    with_memory(shop)
    async with shop.open() as engine:
        memory_id = await give_one(engine, FACT)
        await give_one(engine, "The staging server is called egret.", owner=ALICE)
        other = (await engine.sessions.resolve(OWNER, SessionRequest())).id
        await give_one(engine, "The staging server is wren.", scope=MemoryScope.SESSION, scope_id=other)
        events = await run(engine, can_ask=False)
        found = result_of(events)
        assert found.outcome is Outcome.OK
        assert FACT in (found.output or "")
        assert "egret" not in (found.output or "")
        assert "wren" not in (found.output or "")
        assert found.memory_ids == (memory_id,)
        finished_event = next(event for event in events if isinstance(event.data, ToolFinished))
        assert finished_event.trust is Trust.OPERATOR


async def test_search_has_the_lowest_trust_and_every_real_source(tmp_path: Path) -> None:
    shop = shop_for(tmp_path, calls("memory.search", query="staging server"), says("heron"))
    with_memory(shop)
    async with shop.open() as engine:
        await give_one(engine, FACT)
        items = (
            item_of("The staging server is old.", 7, trust=Trust.EXTERNAL, taint=("http:a.example", "mcp:b")),
            item_of("The staging server is loud.", 8, trust=Trust.EXTERNAL),
        )
        await engine._setup.journal.commit((), (PutMemory(items),))
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        found = next(event for event in events if isinstance(event.data, ToolFinished))
        assert found.trust is Trust.EXTERNAL
        taint = await engine.taint.show(OWNER, record.session_id)
        assert {each.source for each in taint} == {"http:a.example", "mcp:b", f"memory:{items[1].id}"}


async def test_search_that_finds_nothing_taints_nothing(tmp_path: Path) -> None:
    shop = shop_for(tmp_path, calls("memory.search", query="dragon"), says("none"))
    with_memory(shop)
    async with shop.open() as engine:
        events = await run(engine)
        assert result_of(events).output == "[Nothing is remembered about this.]"
        assert all(event.trust is not Trust.EXTERNAL for event in events)


async def test_a_long_list_never_becomes_an_artifact(tmp_path: Path) -> None:
    shop = shop_for(tmp_path, calls("memory.search", query="word", k=50), says("none"))
    with_memory(shop)
    async with shop.open() as engine:
        await give(engine, *(f"word {number} {'x' * 1_900}" for number in range(20)))
        found = result_of(await run(engine))
        assert found.artifact_id is None
        assert "more had no room" in (found.output or "")


async def test_retain_asks_a_person_and_then_stores(tmp_path: Path) -> None:
    shop = shop_for(tmp_path, calls("memory.retain", content=FACT, kind="fact"), says("noted"))
    keeper = with_memory(shop)
    async with shop.open() as engine:
        keeper.bind(engine.memory)
        events = await run_allowed(engine)
        assert [event.data.verdict for event in events if isinstance(event.data, ToolJudged)] == [Verdict.ASK]
        (item,) = await engine.memory.list(OWNER, MemoryPage())
        assert (item.content, item.trust, item.taint) == (FACT, Trust.LOCAL, ())
        assert item.source.run_id == events[0].run_id
        assert str(item.id) in (result_of(events).output or "")


async def test_retain_without_anybody_to_ask_stores_nothing(tmp_path: Path) -> None:
    shop = shop_for(tmp_path, calls("memory.retain", content=FACT), says("noted"))
    keeper = with_memory(shop)
    async with shop.open() as engine:
        keeper.bind(engine.memory)
        assert result_of(await run(engine, can_ask=False)).outcome is Outcome.DENIED
        assert await engine.memory.list(OWNER, MemoryPage()) == ()


async def test_poison_is_never_stored_without_review_even_if_the_call_is_allowed(tmp_path: Path) -> None:
    """A page tells the agent to remember something. The person who allows the call has not read every later prompt."""
    shop = shop_for(
        tmp_path,
        calls("web.look", text="a"),
        calls("memory.retain", content="The bank account of the landlord is DE00 1234."),
        says("done"),
    )
    shop.tools.append(OutsideTool("web.look", EffectClass.READ_ONLY, shop.marks))
    keeper = with_memory(shop)
    async with shop.open() as engine:
        keeper.bind(engine.memory)
        events = await run_allowed(engine)
        kept = result_of(events)
        assert kept.outcome is Outcome.OK
        assert "A person has to look at this" in (kept.output or "")
        assert await engine.memory.list(OWNER, MemoryPage(has_superseded=True)) == ()
        assert await engine.memory.search(OWNER, "landlord account", 5) == ()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"content": "Hello there, thanks!"}, "memory_small_talk"),
        ({"content": "The hook is red.", "scope": "channel"}, "scope_unavailable"),
    ],
)
async def test_what_cannot_be_kept_is_told(tmp_path: Path, arguments: dict[str, object], code: str) -> None:
    shop = shop_for(tmp_path, calls("memory.retain", **arguments), says("noted"))
    keeper = with_memory(shop)
    async with shop.open() as engine:
        keeper.bind(engine.memory)
        result = result_of(await run_allowed(engine))
        assert result.error is not None
        assert result.error.code == code
        assert await engine.memory.list(OWNER, MemoryPage()) == ()


@pytest.mark.parametrize(
    "arguments", [{"content": "x" * (CONTENT_LENGTH_MAX + 1)}, {"content": "x", "kind": "gossip"}, {"query": "x"}]
)
async def test_arguments_that_do_not_fit_are_denied(tmp_path: Path, arguments: dict[str, object]) -> None:
    shop = shop_for(tmp_path, calls("memory.retain", **arguments), says("noted"))
    with_memory(shop)
    async with shop.open() as engine:
        assert result_of(await run(engine)).outcome is Outcome.DENIED


async def test_forgetting_erases_what_a_search_showed(tmp_path: Path) -> None:
    shop = shop_for(tmp_path, calls("memory.search", query="staging server"), says("It has a bird's name."))
    with_memory(shop)
    async with shop.open() as engine:
        memory_id = await give_one(engine, FACT)
        record = await engine.runs.start(OWNER, ask())
        await finished(engine, record)
        await engine.memory.forget(OWNER, memory_id, OWNER)
        tape = await engine.sessions.tape(OWNER, record.session_id, 0, 100)
        assert "heron" not in repr(tape)
    assert b"heron" not in b"".join(path.read_bytes() for path in tmp_path.glob("journal.db*"))
