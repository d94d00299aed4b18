"""Real servers, used by a whole engine: what a run proposes is judged, asked about, executed over MCP and recorded."""

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.mcp.process import find_marked
from palyra.adapters.runtimes.mcp.server import ServerState
from palyra.adapters.runtimes.mcp.servers import McpServers
from palyra.adapters.runtimes.mcp.settings import ServerSettings
from palyra.core.events import Event
from palyra.core.events.tool import (
    ApprovalStatus,
    Decision,
    Outcome,
    Scope,
    ToolFinished,
    ToolJudged,
    Verdict,
)
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunRecord
from palyra.engine.engine import Engine
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.mcp_servers.npm_servers import command_of
from tests.support.mcp_servers.running import BIN, QUICK, hostile, ready, status, use
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


def time_server(**fields: object) -> ServerSettings:
    given: dict[str, object] = {"name": "time", "command": (str(BIN / "mcp-server-time"),), "timeouts": QUICK, **fields}
    return ServerSettings(**given)  # type: ignore[arg-type]


def make_repository(root: Path) -> Path:
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "The first step"]):
        subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
    return root


def staged_files(root: Path) -> bytes:
    shown = subprocess.run(["git", "diff", "--cached", "--name-only"], cwd=root, capture_output=True, check=True)
    return shown.stdout


async def play(root: Path, servers: McpServers, *turns: Turn) -> list[Event]:
    """One run whose questions are all answered with yes, for the one call."""
    workshop = Workshop(root, [Script(turns=(*turns, says("That is all.")))])
    workshop.sources = [servers]
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        answering = asyncio.create_task(say_yes(engine))
        try:
            return await finished(engine, record)
        finally:
            answering.cancel()


async def say_yes(engine: Engine) -> None:
    while True:
        for card in await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING)):
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.ONCE))
        await asyncio.sleep(0.02)


def results(events: list[Event]) -> list[ToolFinished]:
    return [event.data for event in events if isinstance(event.data, ToolFinished)]


def verdicts(events: list[Event]) -> list[tuple[Verdict, str]]:
    return [(event.data.verdict, event.data.rule) for event in events if isinstance(event.data, ToolJudged)]


async def test_time_asks_by_default_and_is_free_once_trusted(tmp_path: Path) -> None:
    turn = calls("mcp.time.get_current_time", timezone="Europe/Prague")
    async with ready(time_server()) as servers:
        events = await play(tmp_path / "a", servers, turn)
        assert verdicts(events) == [(Verdict.ASK, "network")]
        assert results(events)[0].outcome is Outcome.OK
        assert '"timezone": "Europe/Prague"' in (results(events)[0].output or "")
    async with ready(time_server(trust_annotations=True)) as servers:
        events = await play(tmp_path / "b", servers, turn, turn)
        # What a server said is no news to that server, so the second time is free too.
        assert verdicts(events) == [(Verdict.ALLOW, "foreign_read")] * 2
        told = [event for event in events if isinstance(event.data, ToolFinished)]
        assert [(event.trust, event.data.source) for event in told] == [(Trust.EXTERNAL, "mcp:time")] * 2  # type: ignore[union-attr]
        attestation = results(events)[0].attestation
        assert attestation is not None
        assert attestation.runtime == "mcp"


async def test_server_that_has_no_resources_brings_no_tools_for_them() -> None:
    """This one says that it offers resources and prompts."""
    async with ready(time_server()) as servers:
        names = [tool.spec.name for tool in servers.tools()]
        assert names == ["mcp.time.get_current_time", "mcp.time.convert_time"]


async def test_wrong_argument_is_caught_by_the_servers_own_schema_at_the_gate(tmp_path: Path) -> None:
    async with ready(time_server()) as servers:
        events = await play(tmp_path, servers, calls("mcp.time.get_current_time", timezone=5))
        assert verdicts(events) == [(Verdict.DENY, "schema")]


async def test_failure_of_a_real_tool_is_told_as_one(tmp_path: Path) -> None:
    async with ready(time_server()) as servers:
        events = await play(tmp_path, servers, calls("mcp.time.get_current_time", timezone="Nowhere/None"))
        (result,) = results(events)
        assert result.error is not None
        assert (result.outcome, result.error.code) == (Outcome.FAILED, "tool_error")
        assert result.output


async def test_git_status_and_commit_in_a_repository(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    repository = make_repository(tmp_path / "repository")
    (repository / "b.txt").write_text("two\n")
    command = (str(BIN / "mcp-server-git"), "--repository", str(repository))
    where = {"repo_path": str(repository)}
    async with ready(ServerSettings(name="git", command=command, timeouts=QUICK)) as servers:
        events = await play(
            tmp_path / "engine",
            servers,
            calls("mcp.git.git_status", **where),
            calls("mcp.git.git_add", **where, files=["b.txt"]),
            calls("mcp.git.git_log", **where, max_count=5),
        )
    status_result, add_result, log_result = results(events)
    assert "b.txt" in (status_result.output or "")
    assert add_result.outcome is Outcome.OK
    assert "The first step" in (log_result.output or "")
    assert staged_files(repository) == b"b.txt\n"


async def test_files_are_written_and_read_in_the_servers_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    settings = ServerSettings(name="files", command=command_of("filesystem", str(folder)), timeouts=QUICK)
    async with ready(settings) as servers:
        events = await play(
            tmp_path / "engine",
            servers,
            calls("mcp.files.write_file", path=str(folder / "a.txt"), content="written over MCP"),
            calls("mcp.files.read_text_file", path=str(folder / "a.txt")),
            calls("mcp.files.read_text_file", path="/etc/hostname"),
        )
    written, read, refused = results(events)
    assert written.outcome is Outcome.OK
    assert (folder / "a.txt").read_text() == "written over MCP"
    assert read.output == "written over MCP"
    assert refused.error is not None
    assert refused.error.code == "tool_error"


@pytest.fixture
def everything() -> ServerSettings:
    return ServerSettings(name="every", command=command_of("everything", "stdio"), timeouts=QUICK)


async def test_everything_echoes_adds_and_draws(tmp_path: Path, everything: ServerSettings) -> None:
    async with ready(everything) as servers:
        events = await play(
            tmp_path,
            servers,
            calls("mcp.every.echo", message="hello"),
            calls("mcp.every.get-sum", a=2, b=40),
            calls("mcp.every.get-tiny-image"),
            calls("mcp.every.get-resource-links", count=2),
            calls("mcp.every.get-structured-content", location="New York"),
        )
    echo, total, image, links, structured = results(events)
    assert echo.output == "Echo: hello"
    assert "42" in (total.output or "")
    assert [(made.media_type, made.name) for made in image.made] == [("image/png", "image-1.png")]
    assert (links.output or "").count("[resource ") == 2
    assert "temperature" in (structured.output or "")


async def test_everything_lists_and_reads_resources_and_prompts(tmp_path: Path, everything: ServerSettings) -> None:
    async with ready(everything) as servers:
        listing = (await use(servers, "mcp.resources", {"server": "every"})).output
        uri = next(line.split(" ")[1] for line in listing.splitlines() if line.startswith("resource "))
        name = next(line.split(" ")[1] for line in listing.splitlines() if line.startswith("prompt ") and "()" in line)
        events = await play(
            tmp_path,
            servers,
            calls("mcp.read", server="every", uri=uri),
            calls("mcp.prompt", server="every", name=name),
            calls("mcp.read", server="nobody", uri=uri),
        )
    assert [verdict for verdict, _ in verdicts(events)] == [Verdict.ASK, Verdict.ASK, Verdict.DENY]
    read, prompt, refused = results(events)
    assert (read.outcome, prompt.outcome, refused.outcome) == (Outcome.OK, Outcome.OK, Outcome.DENIED)
    assert (read.source, prompt.source) == ("mcp:every", "mcp:every")
    assert f"[resource {uri}]" in (read.output or "")
    assert (prompt.output or "").startswith("user:")


async def test_long_operation_tells_of_its_progress_live(tmp_path: Path, everything: ServerSettings) -> None:
    workshop = Workshop(
        tmp_path,
        [Script(turns=(calls("mcp.every.trigger-long-running-operation", duration=1, steps=3), says("Done.")))],
    )
    async with ready(everything) as servers:
        workshop.sources = [servers]
        async with workshop.open() as engine:
            record = await engine.runs.start(OWNER, ask())
            answering = asyncio.create_task(say_yes(engine))
            live = await live_lines(engine, record)
            answering.cancel()
    assert "of 3" in live


async def live_lines(engine: Engine, record: RunRecord) -> str:
    text = ""
    async for frame in await engine.runs.follow(OWNER, record.id, None):
        if frame.type == "tool.delta":
            text += str(frame.data["text"])  # type: ignore[index]
    return text


async def test_killed_real_server_comes_back_in_the_same_run(tmp_path: Path) -> None:
    async with ready(time_server()) as servers:
        turn = calls("mcp.time.get_current_time", timezone="UTC")
        first = await play(tmp_path / "a", servers, turn)
        process = servers._servers[0]
        (pid,) = find_marked(mark_of(servers))
        os.kill(pid, signal.SIGKILL)
        second = await play(tmp_path / "b", servers, turn)
        assert [results(each)[0].outcome for each in (first, second)] == [Outcome.OK, Outcome.OK]
        assert status(servers, process.settings.name).starts_count == 2


def mark_of(servers: McpServers) -> str:
    """Of the one server that runs: the mark in the environment of our only child with one."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables if int(parent) == os.getpid() else ():
            if variable.startswith(b"PALYRA_MCP_MARK="):
                return variable.partition(b"=")[2].decode()
    raise AssertionError("no server runs")


async def test_tool_of_a_server_that_is_down_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with ready(time_server()) as servers:
        await servers.close()
        await until(lambda: status(servers, "time").state is ServerState.STOPPED)
        events = await play(tmp_path, servers, calls("mcp.time.get_current_time", timezone="UTC"))
        assert verdicts(events) == [(Verdict.DENY, "tool_unavailable")]


async def test_approval_for_a_tool_does_not_cover_what_its_server_made_of_it(tmp_path: Path) -> None:
    turn = calls("mcp.rug.same", text="a")
    workshop = Workshop(tmp_path / "engine", [Script(turns=(turn, says("Done.")))])
    async with ready(hostile("rug", tmp_path)) as servers:
        workshop.sources = [servers]
        async with workshop.open() as engine:
            first = await engine.runs.start(OWNER, ask(session_key="s"))
            await wait_for(engine, first.id, "run.waiting")
            await allow_widely(engine)
            assert [result.outcome for result in results(await finished(engine, first))] == [Outcome.OK]
            (tmp_path / "changed_all").touch()
            (tmp_path / "changed").touch()
            await until(lambda: "mcp.rug.same" in status(servers, "rug").changed)
            second = await engine.runs.start(OWNER, ask(session_key="s"))
            events = await finished(engine, second)
    assert verdicts(events) == [(Verdict.DENY, "tool_unavailable")]
    assert "palyra mcp accept rug" in reason_of(events)


async def test_call_of_class_once_that_timed_out_is_uncertain_and_not_failed(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "engine", [Script(turns=(calls("mcp.hang-call.echo", text="a"), says("Done.")))])
    async with ready(hostile("hang_call", tmp_path, timeout_s=0.3)) as servers:
        workshop.sources = [servers]
        async with workshop.open() as engine:
            record = await engine.runs.start(OWNER, ask())
            await wait_for(engine, record.id, "run.waiting")
            (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.ONCE))
            await wait_for(engine, record.id, "tool.uncertain")
            await until(lambda: engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING)))
            cards = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
    assert [(each.kind, each.call_id) for each in cards] == [("uncertain", card.call_id)]


async def allow_widely(engine: Engine) -> None:
    (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
    wide = next(index for index, option in enumerate(card.options) if "any arguments" in option.text)
    answer = ApprovalAnswer(decision=Decision.ALLOW, scope=card.options[wide].scope, option=wide)
    await engine.approvals.answer(OWNER, card.id, answer)


def reason_of(events: list[Event]) -> str:
    return next(event.data.reason for event in events if isinstance(event.data, ToolJudged))
