"""LangGraph beside us. Owns: the same work done with LangGraph and its SQLite checkpointer. Runs in an environment of its own.

The kindest set-up for it: in process, no HTTP, no event stream, a chat model that answers at once. What is kept is what
we ask of ourselves: every step durable before the next (`durability="sync"`, SQLite's own default of a full sync).
Usage: .venv-bench/bin/python bench/_langgraph.py '{"kind": "runs", …}'; it prints one JSON object.
"""

import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel  # type: ignore[import-not-found]
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langchain_core.outputs import ChatGeneration, ChatResult  # type: ignore[import-not-found]
from langchain_core.tools import tool  # type: ignore[import-not-found]
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found]
from langgraph.graph import END, START, MessagesState, StateGraph  # type: ignore[import-not-found]
from langgraph.prebuilt import ToolNode  # type: ignore[import-not-found]

TIMEOUT_S = 300.0
SEED_MESSAGES = 1_000  # A long thread is built with few large updates, as kindly as it can be.


class FakeModel(BaseChatModel):  # type: ignore[misc]
    """A call of the tool, then an answer."""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_reply(messages))])

    async def _agenerate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_reply(messages))])


def _reply(messages: list[Any]) -> AIMessage:
    if isinstance(messages[-1], ToolMessage):
        return AIMessage("It is late, and all is well.", id=str(uuid.uuid4()))
    call = {"name": "time_now", "args": {}, "id": str(uuid.uuid4())}
    return AIMessage("I shall look at the clock first.", tool_calls=[call], id=str(uuid.uuid4()))


@tool
def time_now() -> str:
    """The time."""
    return "2026-01-01T00:00:00Z"


def build(saver: AsyncSqliteSaver) -> Any:
    model = FakeModel()

    async def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def follow(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode([time_now]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", follow, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


async def one_run(graph: Any, thread: str) -> float:
    started_s = time.perf_counter()
    question = {"messages": [HumanMessage("What time is it?")]}
    state = await graph.ainvoke(question, {"configurable": {"thread_id": thread}}, durability="sync")
    taken_ms = (time.perf_counter() - started_s) * 1000
    if state["messages"][-1].content != "It is late, and all is well.":
        raise RuntimeError(f"the run ended otherwise: {state['messages'][-1]!r}")
    return taken_ms


async def run_all(graph: Any, order: dict[str, Any]) -> dict[str, Any]:
    times_ms: list[float] = []
    turns = iter(range(order["count"]))

    async def work(worker: int) -> None:
        for turn in turns:
            thread = f"lasting-{worker}" if order.get("is_lasting") else f"new-{turn}"
            times_ms.append(await one_run(graph, thread))

    await one_run(graph, "warm-up")
    before_s, started_s = _cpu_s(), time.perf_counter()
    await asyncio.gather(*(work(worker) for worker in range(order["concurrency"])))
    return {"wall_s": time.perf_counter() - started_s, "cpu_s": _cpu_s() - before_s, "times_ms": times_ms}


async def grow(graph: Any, order: dict[str, Any]) -> dict[str, Any]:
    """The median of a further run in threads of several lengths, in messages."""
    medians_ms: dict[str, float] = {}
    for messages_count in order["lengths"]:
        thread = f"long-{messages_count}"
        config = {"configurable": {"thread_id": thread}}
        for start in range(0, messages_count, SEED_MESSAGES):
            part = range(start, min(start + SEED_MESSAGES, messages_count))
            messages = [HumanMessage(f"q{n}") if n % 2 == 0 else AIMessage(f"a{n}") for n in part]
            await graph.aupdate_state(config, {"messages": messages}, as_node="model")
        await one_run(graph, thread)
        medians_ms[str(messages_count)] = statistics.median(
            [await one_run(graph, thread) for _ in range(order["count"])]
        )
    return {"medians_ms": medians_ms}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _main() -> None:
    order = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as folder:
        async with (
            asyncio.timeout(TIMEOUT_S),
            AsyncSqliteSaver.from_conn_string(str(Path(folder) / "graph.db")) as saver,
        ):
            graph = build(saver)
            outcome = await (run_all(graph, order) if order["kind"] == "runs" else grow(graph, order))
    sys.stdout.write(json.dumps(outcome))


if __name__ == "__main__":
    asyncio.run(_main())
