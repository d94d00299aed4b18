"""Servers that mean harm, or break: none of it reaches the daemon, its loop, its memory or its other servers."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from palyra.adapters.runtimes.mcp.definitions import DESCRIPTION_LENGTH_MAX, TOOLS_MAX
from palyra.adapters.runtimes.mcp.pages import PAGES_MAX
from palyra.adapters.runtimes.mcp.process import find_marked
from palyra.adapters.runtimes.mcp.results import OUTPUT_CHARS_MAX
from palyra.adapters.runtimes.mcp.server import ServerState
from palyra.adapters.runtimes.mcp.servers import McpServers
from palyra.core.events.tool import EffectClass, Outcome
from palyra.core.trust import Trust
from tests.support.mcp_servers.running import (
    QUICK,
    LoopMonitor,
    find,
    hostile,
    is_alive,
    marks,
    ready,
    resident_bytes,
    running,
    status,
    use,
)
from tests.support.tool_calls import code_of, context
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
DAEMON = """
import asyncio, sys
from pathlib import Path
from tests.support.mcp_servers.running import hostile, ready

async def main():
    async with ready(hostile("stubborn", Path(sys.argv[1])), pins=Path(sys.argv[2])):
        Path(sys.argv[1], "ready").touch()
        await asyncio.sleep(600)

asyncio.run(main())
"""


def pids(folder: Path) -> list[int]:
    return [int(line) for line in marks(folder, "started")]


def reasons(servers: McpServers) -> dict[str, str]:
    return {each.name: each.reason for each in servers.missing()}


async def test_polite_call_comes_back_with_its_source(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        result = await use(servers, "mcp.polite.echo", {"text": "hi"})
        assert (result.outcome, result.output, result.source) == (Outcome.OK, "echo hi", "mcp:polite")
        assert find(servers, "mcp.polite.echo").spec.output_trust is Trust.EXTERNAL
        assert servers.missing() == ()


async def test_tools_are_the_same_tuple_until_something_changes(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        before = servers.tools()
        assert before
        assert servers.tools() is before


async def test_texts_of_a_server_are_cleaned_cut_and_marked_as_its_own(tmp_path: Path) -> None:
    async with ready(hostile("injection", tmp_path)) as servers:
        spec = find(servers, "mcp.injection.evil").spec
        assert spec.description.startswith("[In the words of the MCP server injection, not checked by anyone] Fine.")
        assert len(spec.description) <= DESCRIPTION_LENGTH_MAX + 100
        assert spec.description.isprintable()
        assert "\u202e" not in spec.description
        note = find(servers, "mcp.injection.noted").spec.input_schema["description"]
        assert isinstance(note, str)
        assert note.startswith("abc")
        assert len(note) <= 500


async def test_strange_names_become_ours_and_never_one(tmp_path: Path) -> None:
    async with ready(hostile("injection", tmp_path)) as servers:
        names = [tool.spec.name for tool in servers.tools() if "na_me" in tool.spec.name]
        assert len(set(names)) == 2
        result = await use(servers, names[0], {"text": "x"})
        assert result.output == "na me/ü.x x"


async def test_unusable_definitions_are_left_out_with_a_reason_each(tmp_path: Path) -> None:
    async with ready(hostile("schemas", tmp_path)) as servers:
        own = [tool.spec.name for tool in servers.tools() if tool.spec.name.count(".") == 2]
        assert own == ["mcp.schemas.good"]
        told = reasons(servers)
        for name in ("no_object", "no_schema", "broken", "deep", "large", "remote", "twice"):
            assert told[f"mcp.schemas.{name}"], name
        assert "more than one tool" in told["mcp.schemas.twice"]


async def test_more_tools_than_the_limit_are_left_out_and_said(tmp_path: Path) -> None:
    async with ready(hostile("many", tmp_path)) as servers:
        assert len(status(servers, "many").tools) == TOOLS_MAX
        assert str(TOOLS_MAX) in reasons(servers)["mcp.many.*"]


@pytest.mark.parametrize("behaviour", ["pages", "circle"])
async def test_pages_without_an_end_are_followed_so_far(tmp_path: Path, behaviour: str) -> None:
    async with ready(hostile(behaviour, tmp_path)) as servers:
        assert len(marks(tmp_path, "pages")) == (PAGES_MAX if behaviour == "pages" else 0)
        if behaviour == "circle":
            assert "more than one tool" in reasons(servers)["mcp.circle.once"]


@pytest.mark.parametrize("behaviour", ["giant_first", "giant_last", "giant_middle"])
async def test_answer_of_100_mib_is_thrown_away_and_said(tmp_path: Path, behaviour: str) -> None:
    async with ready(hostile(behaviour, tmp_path)) as servers, LoopMonitor() as monitor:
        before_bytes = resident_bytes()
        name = f"mcp.{behaviour.replace('_', '-')}.echo"
        result = await use(servers, name, {"text": "x"})
        assert code_of(result) == "answer_too_large"
        assert result.error is not None
        assert "ran" in result.error.message
        assert resident_bytes() - before_bytes < 64 * MIB
        assert monitor.ticks_count > 0
        assert status(servers, behaviour.replace("_", "-")).starts_count == 1


async def test_answer_of_millions_of_parts_is_not_even_parsed(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        before_bytes = resident_bytes()
        assert code_of(await use(servers, "mcp.polite.parts", {})) == "answer_too_large"
        assert resident_bytes() - before_bytes < 64 * MIB
        assert status(servers, "polite").starts_count == 1


async def test_long_result_is_cut_and_says_so(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        result = await use(servers, "mcp.polite.big", {})
        assert OUTPUT_CHARS_MAX < len(result.output) < OUTPUT_CHARS_MAX + 200
        assert "characters are left out" in result.output


async def test_hanging_on_the_greeting_leaves_it_down_and_the_rest_running(tmp_path: Path) -> None:
    slow = hostile("hang_initialize", tmp_path, timeouts=replace(QUICK, start_s=0.5))
    (tmp_path / "b").mkdir()
    async with running(slow, hostile("polite", tmp_path / "b")) as servers:
        await until(lambda: status(servers, "hang-initialize").state is ServerState.DOWN)
        await until(lambda: status(servers, "polite").state is ServerState.READY)
        assert "did not answer the greeting" in reasons(servers)["mcp.hang-initialize.*"]
        assert (await use(servers, "mcp.polite.echo", {})).outcome is Outcome.OK


async def test_hanging_on_the_list_leaves_it_down(tmp_path: Path) -> None:
    async with running(hostile("hang_list", tmp_path, timeouts=replace(QUICK, request_s=0.3))) as servers:
        await until(lambda: status(servers, "hang-list").state is ServerState.DOWN)
        assert "tools/list" in reasons(servers)["mcp.hang-list.*"]
        assert servers.tools() == ()


async def test_hanging_call_ends_in_time_tells_the_server_and_the_server_is_replaced(tmp_path: Path) -> None:
    timeouts = replace(QUICK, ping_s=0.5)
    async with ready(hostile("hang_call", tmp_path, timeout_s=0.3, timeouts=timeouts)) as servers:
        (first,) = pids(tmp_path)
        result = await use(servers, "mcp.hang-call.echo", {})
        assert (result.outcome, result.is_unknown) == (Outcome.TIMEOUT, True)
        assert result.error is not None
        assert "not known whether it took effect" in result.error.message
        await until(lambda: len(marks(tmp_path, "cancelled")) == 1)
        await until(lambda: status(servers, "hang-call").starts_count == 2)
        await until(lambda: not is_alive(first))


async def test_cancelled_call_is_cancelled_at_the_server_and_hurts_no_other(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        slow = asyncio.create_task(use(servers, "mcp.polite.slow", {}))
        await until(lambda: marks(tmp_path, "calls") == ["slow "])
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await until(lambda: len(marks(tmp_path, "cancelled")) == 1)
        assert (await use(servers, "mcp.polite.echo", {"text": "on"})).output == "echo on"
        assert status(servers, "polite").starts_count == 1


async def test_calls_beyond_the_slots_wait_and_a_cancelled_one_frees_its_slot(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        slow = [asyncio.create_task(use(servers, "mcp.polite.slow", {})) for _ in range(9)]
        await until(lambda: len(marks(tmp_path, "calls")) == 8)
        quick = asyncio.create_task(use(servers, "mcp.polite.echo", {}))
        await asyncio.sleep(0.05)
        assert not quick.done()
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)
        assert (await quick).outcome is Outcome.OK


async def test_server_that_dies_in_a_call_leaves_it_open_whether_it_happened(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        result = await use(servers, "mcp.polite.die", {})
        assert code_of(result) == "connection_lost"
        assert result.error is not None
        assert "not known whether it took effect" in result.error.message
        assert result.trust is Trust.SYSTEM
        # The tools stay for the moment, and the next call waits for the restart.
        assert (await use(servers, "mcp.polite.echo", {"text": "again"})).output == "echo again"
        assert status(servers, "polite").starts_count == 2


async def test_lost_call_that_only_reads_may_be_repeated(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path, read_only=("die",))) as servers:
        result = await use(servers, "mcp.polite.die", {})
        assert result.error is not None
        assert "safe to repeat" in result.error.message


async def test_killed_server_comes_back_and_the_next_call_works(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        for attempt in range(1, 4):
            os.kill(pids(tmp_path)[-1], signal.SIGKILL)
            await until(lambda: status(servers, "polite").state is not ServerState.READY)
            result = await use(servers, "mcp.polite.echo", {"text": str(attempt)})
            assert result.output == f"echo {attempt}"


async def test_server_that_exits_at_once_is_tried_ever_more_rarely(tmp_path: Path) -> None:
    timeouts = replace(QUICK, backoff_first_s=0.2, backoff_max_s=600.0)
    async with running(hostile("exit", tmp_path, timeouts=timeouts)) as servers:
        await until(lambda: status(servers, "exit").starts_count >= 3)
        assert status(servers, "exit").state is ServerState.DOWN
        assert reasons(servers)["mcp.exit.*"].endswith("its process ended with code 3")
        server = servers._servers[0]
        delays = [server._fall(None) for _ in range(20)]
        assert all(later <= 600 for later in delays)
        assert delays[-1] >= 300


async def test_call_to_a_server_that_stays_away_says_that_nothing_was_sent(tmp_path: Path) -> None:
    timeouts = replace(QUICK, restart_wait_s=0.3, backoff_first_s=600.0, backoff_max_s=600.0)
    async with ready(hostile("polite", tmp_path, timeouts=timeouts)) as servers:
        tool = find(servers, "mcp.polite.echo")
        await use(servers, "mcp.polite.die", {})
        result = await tool.execute({}, context())
        assert code_of(result) == "server_down"
        await until(lambda: status(servers, "polite").state is ServerState.DOWN)
        assert servers.tools() == ()
        assert "its process ended with code 9" in reasons(servers)["mcp.polite.echo"]


async def test_unknown_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    async with running(hostile("old", tmp_path)) as servers:
        await until(lambda: status(servers, "old").state is ServerState.DOWN)
        assert "version of the protocol" in reasons(servers)["mcp.old.*"]


async def test_server_of_the_newest_version_without_a_handshake_is_understood(tmp_path: Path) -> None:
    async with ready(hostile("modern", tmp_path)) as servers:
        assert status(servers, "modern").version == "2026-07-28"
        assert (await use(servers, "mcp.modern.echo", {"text": "hi"})).output == "echo hi"


async def test_garbage_between_the_messages_is_passed_over(tmp_path: Path) -> None:
    async with ready(hostile("garbage", tmp_path)) as servers:
        for number in range(5):
            assert (await use(servers, "mcp.garbage.echo", {"text": str(number)})).output == f"echo {number}"
        assert status(servers, "garbage").starts_count == 1


async def test_wrong_ids_and_second_answers_change_nothing(tmp_path: Path) -> None:
    async with ready(hostile("twofold", tmp_path)) as servers:
        for number in range(5):
            assert (await use(servers, "mcp.twofold.echo", {"text": str(number)})).output == f"echo {number}"


async def test_flood_of_notifications_leaves_the_loop_and_the_memory_alone(tmp_path: Path) -> None:
    async with ready(hostile("flood", tmp_path)) as servers, LoopMonitor() as monitor:
        before_bytes = resident_bytes()
        for number in range(3):
            assert (await use(servers, "mcp.flood.echo", {"text": str(number)})).output == f"echo {number}"
        ticks_before = monitor.ticks_count
        await until(lambda: monitor.ticks_count > ticks_before + 100)
        assert resident_bytes() - before_bytes < 32 * MIB


async def test_questions_of_a_server_are_refused_and_a_ping_is_answered(tmp_path: Path) -> None:
    async with ready(hostile("asks", tmp_path)):
        await until(lambda: len(marks(tmp_path, "answers")) == 5)
        answers = sorted(marks(tmp_path, "answers"))
        assert sum('"error"' in each for each in answers) == 4
        assert sum("answers no questions" in each for each in answers) == 4


async def test_server_that_asks_without_end_and_never_listens_fills_nothing(tmp_path: Path) -> None:
    async with (
        running(hostile("deaf", tmp_path, timeouts=replace(QUICK, request_s=1.0))) as servers,
        LoopMonitor() as monitor,
    ):
        before_bytes = resident_bytes()
        await until(lambda: status(servers, "deaf").state is ServerState.DOWN)
        await until(lambda: monitor.ticks_count > 10)  # It is started again and again.
        assert resident_bytes() - before_bytes < 32 * MIB


async def test_stderr_without_end_is_read_and_not_kept(tmp_path: Path) -> None:
    async with ready(hostile("stderr", tmp_path)) as servers, LoopMonitor() as monitor:
        before_bytes = resident_bytes()
        for number in range(20):
            assert (await use(servers, "mcp.stderr.echo", {"text": str(number)})).outcome is Outcome.OK
        ticks_before = monitor.ticks_count
        await until(lambda: monitor.ticks_count > ticks_before + 50)
        assert resident_bytes() - before_bytes < 32 * MIB


async def test_server_that_will_not_die_dies_with_all_its_children(tmp_path: Path) -> None:
    async with ready(hostile("stubborn", tmp_path)):
        assert len(pids(tmp_path)) == 3
        assert all(is_alive(pid) for pid in pids(tmp_path))
    await until(lambda: not any(is_alive(pid) for pid in pids(tmp_path)))


async def test_children_of_a_killed_server_die_before_it_is_started_again(tmp_path: Path) -> None:
    async with ready(hostile("stubborn", tmp_path)) as servers:
        first = pids(tmp_path)
        os.kill(first[0], signal.SIGKILL)
        await until(lambda: status(servers, "stubborn").starts_count == 2)
        assert not any(is_alive(pid) for pid in first)


async def test_closing_while_servers_are_starting_leaves_no_process(tmp_path: Path) -> None:
    owner = f"test-{uuid4().hex}"  # Processes of other tests bear marks too.
    async with running(hostile("hang_initialize", tmp_path, owner=owner)):
        await until(lambda: bool(pids(tmp_path)))
        assert find_marked(owner) == pids(tmp_path)
    assert not any(is_alive(pid) for pid in pids(tmp_path))
    assert find_marked(owner) == []


async def test_servers_that_outlived_a_killed_daemon_end_when_the_next_one_starts(tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON, str(tmp_path), str(pins))
    await until((tmp_path / "ready").exists)  # A server that still answers ends with its pipe.
    daemon.kill()
    await daemon.wait()
    left = pids(tmp_path)
    assert all(is_alive(pid) for pid in left)
    async with running(hostile("polite", tmp_path), pins=pins):
        await until(lambda: not any(is_alive(pid) for pid in left))


async def test_environment_of_a_server_holds_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_SECRET_THING", "s3cr3t-value")
    async with ready(hostile("polite", tmp_path, env=lambda: {"GIVEN": "this"})) as servers:
        output = (await use(servers, "mcp.polite.env", {})).output
        assert "s3cr3t-value" not in output
        assert '"GIVEN": "this"' in output
        assert '"PATH"' in output


async def test_changed_tool_is_left_out_until_it_is_accepted(tmp_path: Path) -> None:
    async with ready(hostile("rug", tmp_path, read_only=("echo",))) as servers:
        before = find(servers, "mcp.rug.echo")
        same = find(servers, "mcp.rug.same")
        assert before.spec.effect_class is EffectClass.READ_ONLY
        (tmp_path / "changed").touch()
        await until(lambda: status(servers, "rug").changed == ("mcp.rug.echo",))
        names = [tool.spec.name for tool in servers.tools()]
        assert "mcp.rug.echo" not in names
        assert not [name for name in names if name.startswith("mcp.rug.echo")]
        assert "palyra mcp accept rug" in reasons(servers)["mcp.rug.echo"]
        assert find(servers, "mcp.rug.same") is same


async def test_change_is_seen_over_a_restart_of_the_daemon(tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    async with ready(hostile("rug", tmp_path), pins=pins) as servers:
        assert status(servers, "rug").changed == ()
    (tmp_path / "changed").touch()
    async with ready(hostile("rug", tmp_path), pins=pins) as servers:
        assert status(servers, "rug").changed == ("mcp.rug.echo",)
    pins.unlink()
    async with ready(hostile("rug", tmp_path), pins=pins) as servers:
        assert status(servers, "rug").changed == ()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_text('{"rug": {"echo": 1}}'),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text(""),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("elsewhere"),
        lambda path: (path.write_text("{}"), path.chmod(0o666)),
    ],
    ids=["json", "types", "bytes", "empty", "folder", "link", "writable"],
)
async def test_without_a_readable_file_of_pins_no_tool_is_offered(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    pins = tmp_path / "pins.json"
    spoil(pins)
    async with running(hostile("rug", tmp_path), hostile("polite", tmp_path), pins=pins) as servers:
        assert servers.tools() == ()
        assert {each.state for each in servers.status()} == {ServerState.DOWN}
        told = reasons(servers)
        assert sorted(told) == ["mcp.polite.*", "mcp.rug.*"]
        assert all(str(pins) in reason and "restart" in reason for reason in told.values())
        assert pids(tmp_path) == [], "nothing is asked of servers whose tools could not be used"


async def test_a_tool_whose_pin_cannot_be_saved_is_not_offered_until_it_can(tmp_path: Path) -> None:
    """After a restart nobody would know what its name first meant."""
    pins = tmp_path / "pins.json"
    async with running(hostile("rug", tmp_path), pins=pins) as servers:
        pins.mkdir()
        await until(lambda: status(servers, "rug").state is ServerState.READY)
        assert servers.tools() == ()
        told = reasons(servers)
        assert sorted(told) == ["mcp.rug.echo", "mcp.rug.same"]
        assert all(str(pins) in reason for reason in told.values())
        assert status(servers, "rug").changed == ()
        pins.rmdir()
        (tmp_path / "changed").touch()  # The server then says that its list changed.
        await until(lambda: status(servers, "rug").changed == ("mcp.rug.echo",))
        assert [tool.spec.name for tool in servers.tools()] == ["mcp.rug.same"]


async def test_hints_count_only_where_the_operator_trusts_them(tmp_path: Path) -> None:
    async with ready(hostile("rug", tmp_path)) as servers:
        assert find(servers, "mcp.rug.echo").spec.effect_class is EffectClass.ONCE
    async with ready(hostile("rug", tmp_path, trust_annotations=True)) as servers:
        assert find(servers, "mcp.rug.echo").spec.effect_class is EffectClass.READ_ONLY
        assert find(servers, "mcp.rug.same").spec.effect_class is EffectClass.ONCE
    async with ready(hostile("rug", tmp_path, idempotent=("s*",))) as servers:
        assert find(servers, "mcp.rug.same").spec.effect_class is EffectClass.IDEMPOTENT


async def test_failures_of_a_tool_are_values(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        failing = await use(servers, "mcp.polite.fail", {"text": "so"})
        assert (code_of(failing), failing.output) == ("tool_error", "fail so")
        refused = await use(servers, "mcp.polite.refuse", {})
        assert code_of(refused) == "server_refused"
        assert refused.output.startswith("no such thing")
        assert len(refused.output) <= 2_000
        assert refused.source == "mcp:polite"
        odd = await use(servers, "mcp.polite.odd", {})
        assert odd.outcome is Outcome.OK
        assert odd.output.count("not known here") == 3


@pytest.mark.parametrize("code", [-32000, -32001])
async def test_an_error_with_a_code_of_our_own_failures_is_the_servers_answer(tmp_path: Path, code: int) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        refused = await use(servers, "mcp.polite.refuse", {"text": str(code)})
        assert (code_of(refused), refused.is_unknown) == ("server_refused", False)
        assert refused.output.startswith("no such thing")
        assert servers.status()[0].starts_count == 1


async def test_bodies_become_made_and_structured_content_becomes_text(tmp_path: Path) -> None:
    async with ready(hostile("polite", tmp_path)) as servers:
        result = await use(servers, "mcp.polite.pictures", {})
        assert [(made.name, made.media_type, made.body) for made in result.made] == [
            ("image-1.png", "image/png", b"hello"),
            ("audio-2.bin", "application/octet-stream", b"hello"),
            ("blob-3.txt", "text/plain", b"hello"),
        ]
        assert "not base64" in result.output
        assert "[resource x://b]\ninside" in result.output
        assert "[resource x://c - see]" in result.output
        assert '"a"' in (await use(servers, "mcp.polite.structured", {})).output


async def test_progress_and_log_lines_are_emitted_cleaned_and_counted(tmp_path: Path) -> None:
    lines: list[str] = []
    listening = replace(context(), emit=lambda stream, text: lines.append(text))
    async with ready(hostile("polite", tmp_path)) as servers:
        await find(servers, "mcp.polite.log").execute({}, listening)
        assert len(lines) == 200
        assert lines[0] == "line 0[0m\n"
        lines.clear()
        slow = asyncio.create_task(find(servers, "mcp.polite.slow").execute({}, listening))
        await until(lambda: len(lines) >= 2)
        (tmp_path / "go").touch()
        assert (await slow).outcome is Outcome.OK
        assert lines[1].endswith(" of 50 step[31m\n")
