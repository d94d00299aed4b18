"""Telemetry of a real engine: what a scrape shows, what a collector gets, and what neither can do to a run."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from palyra.adapters.providers.prepared_turns import PreparedCall, PreparedFailure, Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.telemetry import export as export_module
from palyra.adapters.telemetry.export import open_export
from palyra.adapters.telemetry.meters import OTHER, VALUES_MAX, RunMeters
from palyra.adapters.telemetry.prometheus import PrometheusMeter
from palyra.adapters.telemetry.run_log import RunLog
from palyra.adapters.telemetry.traces import RunTraces, trace_id
from palyra.core.channel_writes import QueueOutbox
from palyra.core.channels.outbox import OutboxItem, OutboxKind, OutboxState
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ModelError, Usage
from palyra.core.events.tool import EffectClass
from palyra.core.ids import RunId
from palyra.core.tools import ToolResult
from palyra.engine.engine import Engine
from palyra.ports.journal import Journal
from palyra.ports.tools import ToolCallContext
from tests.support.asking import READ_THEN_ANSWER, SEND_THEN_ANSWER, ask, calls, finished, first, says
from tests.support.collectors import Collector, attributes_of, collecting
from tests.support.engines import OWNER, MarkTool, Workshop
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio

SECRET = "what nobody may read in telemetry"
THREE_TOOLS = [
    Script(
        turns=(
            Turn(
                calls=tuple(PreparedCall("mark.read", {"text": f"{SECRET} {number}"}) for number in range(3)),
                usage=Usage(input_tokens=100, output_tokens=20),
            ),
            Turn(text=f"Done: {SECRET}.", usage=Usage(input_tokens=150, output_tokens=5)),
        )
    )
]


async def run_to_end(engine: Engine, text: str = SECRET) -> Any:
    run = await engine.runs.start(OWNER, ask(text))
    await finished(engine, run)
    await asyncio.sleep(0)
    return run


async def scrape(engine: Engine) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = (await engine.status.metrics({"palyra_streams_open": 2.0})).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


async def test_a_scrape_counts_runs_tokens_tools_and_phases(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, THREE_TOOLS)
    workshop.meter = PrometheusMeter(workshop.clock.now_ms)
    async with workshop.open() as engine:
        await run_to_end(engine)
        found = await scrape(engine)
        text = (await engine.status.metrics({})).decode()
    assert found["palyra_runs_accepted_total", (("origin", "test"),)] == 1
    assert found["palyra_runs_ended_total", (("state", "done"),)] == 1
    assert found["palyra_tokens_total", (("kind", "input"), ("model", "scripted"))] == 250
    assert found["palyra_tokens_total", (("kind", "output"), ("model", "scripted"))] == 25
    assert found["palyra_tool_calls_total", (("outcome", "ok"), ("tool", "mark.read"))] == 3
    assert found["palyra_verdicts_total", (("verdict", "allow"),)] == 3
    assert found["palyra_model_calls_total", (("outcome", "stop"),)] == 1
    expected = {"run": 1, "queue": 1, "turn": 2, "model": 2, "tool": 3, "approval": 0, "first_text": 1}
    assert {name: found["palyra_phase_seconds_count", (("phase", name),)] for name in expected} == expected
    assert found["palyra_streams_open", ()] == 2
    assert found["palyra_journal_position", ()] >= 10
    assert found["palyra_journal_file_bytes", ()] > 0
    assert found["process_resident_memory_bytes", ()] > 0
    assert SECRET not in text
    assert not re.search("user:|01[0-9A-Z]{24}", text)


async def test_what_is_under_way_is_counted_from_the_journal(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    workshop.meter = PrometheusMeter(workshop.clock.now_ms)
    async with workshop.open() as engine:
        run = await engine.runs.start(OWNER, ask())
        await first(await engine.runs.follow(OWNER, run.id, None), "run.waiting")
    workshop.meter = PrometheusMeter(workshop.clock.now_ms)
    async with workshop.open() as engine:  # After a restart the counters are new, and what waits is still seen.
        found = await scrape(engine)
    assert found["palyra_runs", (("state", "waiting"),)] == 1
    assert found["palyra_runs", (("state", "in_progress"),)] == 0
    assert found["palyra_approvals_pending", ()] == 1
    assert found["palyra_jobs", (("state", "dead"),)] == 0


async def test_messages_that_wait_for_a_channel_are_counted(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    workshop.meter = PrometheusMeter(workshop.clock.now_ms)
    journals: list[Journal] = []
    workshop.wrap_journal = lambda journal: journals.append(journal) or journal  # type: ignore[func-returns-value]
    states = [OutboxState.DEAD, OutboxState.DEAD, OutboxState.QUEUED, OutboxState.SENT]
    async with workshop.open() as engine:
        await journals[0].commit((), [QueueOutbox(letter(number, state)) for number, state in enumerate(states)])
        found = await scrape(engine)
    counts = {labels[0][1]: value for (name, labels), value in found.items() if name == "palyra_outbox"}
    assert counts == {"queued": 1, "sending": 0, "dead": 2, "uncertain": 0}


def letter(number: int, state: OutboxState) -> OutboxItem:
    return OutboxItem(
        id=f"01JX{number:022d}",
        channel="gone",
        conversation_id="c1",
        kind=OutboxKind.NOTICE,
        text="hi",
        created_at_ms=1,
        state=state,
    )


def test_a_label_has_a_bounded_number_of_values() -> None:
    meters = RunMeters(lambda: 0)
    values = {meters.bounded("model", f"model {number}") for number in range(10 * VALUES_MAX)}
    assert len(values) == VALUES_MAX + 1
    assert OTHER in values
    assert meters.bounded("model", "model 0") == "model 0"


class Broken:
    """An observer with a fault."""

    def __init__(self) -> None:
        self.heard_count = 0

    def recorded(self, events: Sequence[Event]) -> None:
        self.heard_count += 1
        raise RuntimeError("telemetry is broken")

    def first_text(self, run_id: RunId, turn: int) -> None:
        raise RuntimeError("telemetry is broken")


async def test_a_fault_of_telemetry_never_reaches_a_run(tmp_path: Path) -> None:
    broken, complaints = Broken(), []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    workshop.observers = (broken,)
    async with workshop.open() as engine:
        run = await engine.runs.start(OWNER, ask())
        events = await finished(engine, run)
        await until(lambda: len(complaints) >= broken.heard_count > 0, "the loop's complaints")
    asyncio.get_running_loop().set_exception_handler(None)
    assert events[-1].type == "run.done"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is there is given its time, which it needs on a busy machine."""
    monkeypatch.setattr(export_module, "FLUSH_MS", round(1000 * WAIT_S))
    monkeypatch.setattr(export_module, "SEND_TIMEOUT_S", WAIT_S)


async def traced(root: Path, scripts: Sequence[Script], collector: Collector) -> Any:
    export = open_export(collector.url, "palyra-test", "1", 1.0)
    workshop = Workshop(root, scripts)
    workshop.observers = (RunTraces(export.tracer(), {"scripted": "demo"}),)
    async with workshop.open() as engine:
        run = await run_to_end(engine)
    await asyncio.to_thread(export.close)
    return run


@pytest.mark.usefixtures("patient")
async def test_a_trace_of_two_turns_and_three_tools_has_its_shape_names_and_links(tmp_path: Path) -> None:
    with collecting() as collector:
        run = await traced(tmp_path, THREE_TOOLS, collector)
    assert collector.service_names == {"palyra-test"}
    spans = collector.spans
    by_id = {span.span_id: span for span in spans}
    shape = sorted((span.name, by_id[span.parent_span_id].name if span.parent_span_id else "") for span in spans)
    assert shape == [
        ("chat scripted", "turn"),
        ("chat scripted", "turn"),
        ("execute_tool mark.read", "turn"),
        ("execute_tool mark.read", "turn"),
        ("execute_tool mark.read", "turn"),
        ("invoke_agent main", ""),
        ("queue", "invoke_agent main"),
        ("turn", "invoke_agent main"),
        ("turn", "invoke_agent main"),
    ]
    assert {span.trace_id for span in spans} == {trace_id(run.id).to_bytes(16, "big")}
    turns = sorted(
        (span for span in spans if span.name == "turn"), key=lambda span: str(attributes_of(span)["palyra.turn"])
    )
    tools = [span for span in spans if span.name.startswith("execute_tool")]
    assert {span.parent_span_id for span in tools} == {turns[0].span_id}
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    root = attributes_of(next(span for span in spans if span.name == "invoke_agent main"))
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert (root["gen_ai.agent.name"], root["palyra.run.id"]) == ("main", run.id)
    assert (root["gen_ai.conversation.id"], root["palyra.outcome"]) == (run.session_id, "done")
    models = [attributes_of(span) for span in spans if span.name == "chat scripted"]
    assert {model["gen_ai.provider.name"] for model in models} == {"demo"}
    assert sorted(model["gen_ai.usage.input_tokens"] for model in models) == [100, 150]  # type: ignore[type-var]
    assert sorted(str(model["gen_ai.response.finish_reasons"]) for model in models) == ["['stop']", "['tool_calls']"]
    assert len({attributes_of(tool)["gen_ai.tool.call.id"] for tool in tools}) == 3
    assert SECRET not in str(spans)


def logged(event: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the only line of this event. A daemon in an earlier test of this process may have set form and place."""
    captured = capsys.readouterr()
    (line,) = [line for line in f"{captured.out}\n{captured.err}".splitlines() if event in line]
    return line


@pytest.mark.usefixtures("patient")
async def test_a_failed_call_is_an_error_in_the_trace_and_a_line_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = [Script(turns=(Turn(failure=PreparedFailure(ModelError.BAD_REQUEST)),))]
    with collecting() as collector:
        export = open_export(collector.url, "palyra-test", "1", 1.0)
        workshop = Workshop(tmp_path, failing)
        workshop.observers = (RunTraces(export.tracer(), {}), RunLog())
        async with workshop.open() as engine:
            run = await run_to_end(engine)
        await asyncio.to_thread(export.close)
    wrong = {span.name for span in collector.spans if span.status.code == 2}
    assert wrong == {"chat scripted", "invoke_agent main"}
    line = logged("run_failed", capsys)
    assert run.id in line
    assert run.session_id in line


@pytest.mark.usefixtures("patient")
async def test_a_line_of_a_failed_tool_names_no_tool_where_the_event_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("fs.read", path="absent.txt"), says("Done.")))])
    workshop.observers = (RunLog(),)
    async with workshop.open() as engine:
        await run_to_end(engine)
    line = logged("tool_failed", capsys)
    assert "call_id" in line
    assert "tool=None" not in line
    assert '"tool":' not in line


@pytest.mark.usefixtures("patient")
async def test_a_delegated_run_is_a_trace_of_its_own_that_links_to_the_call(tmp_path: Path) -> None:
    scripts = [
        Script(when="^inner$", turns=(says("Inner."),)),
        Script(turns=(calls("agent.delegate", prompt="inner"), says("Outer."))),
    ]
    with collecting() as collector:
        export = open_export(collector.url, "palyra-test", "1", 1.0)
        workshop = Workshop(tmp_path, scripts)
        workshop.has_delegation = True
        workshop.observers = (RunTraces(export.tracer(), {}),)
        async with workshop.open() as engine:
            run = await engine.runs.start(OWNER, ask("outer"))
            await finished(engine, run)
            await asyncio.sleep(0)
        await asyncio.to_thread(export.close)
    roots = [span for span in collector.spans if span.name == "invoke_agent main"]
    child = next(span for span in roots if span.links)
    call = next(span for span in collector.spans if span.span_id == child.links[0].span_id)
    assert call.name == "execute_tool agent.delegate"
    assert call.trace_id != child.trace_id


async def test_a_collector_that_is_gone_costs_a_run_nothing(tmp_path: Path) -> None:
    export = open_export("http://127.0.0.1:1", "palyra-test", "1", 1.0)
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    workshop.observers = (RunTraces(export.tracer(), {}),)
    async with workshop.open() as engine:
        run = await engine.runs.start(OWNER, ask())
        assert (await finished(engine, run))[-1].type == "run.done"
    async with asyncio.timeout(WAIT_S):
        await asyncio.to_thread(export.close)


async def test_the_dashboard_asks_for_metrics_that_exist(tmp_path: Path) -> None:
    board = (Path(__file__).parents[2] / "examples" / "grafana" / "palyra.json").read_text()
    asked = set(re.findall(r"(palyra_\w+|process_\w+)[{,]", board))
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    workshop.meter = PrometheusMeter(workshop.clock.now_ms)
    async with workshop.open() as engine:
        text = (await engine.status.metrics({"palyra_streams_open": 0.0})).decode()
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    served = families | {f"{name}_bucket" for name in families}
    assert len(asked) > 10
    assert asked - served == set()


class Remembering(MarkTool):
    """Keeps the ids that everything it logs would have."""

    def __init__(self, marks: Path) -> None:
        super().__init__("mark.read", EffectClass.READ_ONLY, marks)
        self.ids: dict[str, object] = {}

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        self.ids = structlog.contextvars.get_contextvars()
        return await super().execute(arguments, context)


async def test_whatever_a_tool_logs_names_its_run(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    tool = Remembering(workshop.marks)
    workshop.tools = [tool]
    async with workshop.open() as engine:
        run = await run_to_end(engine)
    assert tool.ids == {"run_id": run.id, "session_id": run.session_id}
    assert structlog.contextvars.get_contextvars() == {}
