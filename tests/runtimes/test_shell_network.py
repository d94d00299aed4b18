"""Commands that a policy lets reach out: through the guarded proxy, and in no other way."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from palyra.adapters.net.guard import Guard
from palyra.adapters.net.proxy import GuardedProxy
from palyra.adapters.runtimes.shell.background import ShellOutput
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.events.tool import Outcome
from palyra.core.tools import ToolResult
from palyra.core.trust import Trust
from tests.runtimes.shells import PATIENCE_S, found_sandbox, make_context, make_setup

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder() -> Iterator[Path]:
    """A socket's path has a largest length that a test's own folder may exceed."""
    with TemporaryDirectory(prefix="palyra-net-") as made:
        (Path(made) / "workspace").mkdir()
        yield Path(made)


@asynccontextmanager
async def site() -> AsyncIterator[int]:
    """A page on this machine, and its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nthe page\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def reach(command: str, folder: Path, has_network: bool = True) -> ToolResult:
    tool = ShellRun(found_sandbox(), replace(make_setup(), proxy_path=str(folder / "proxy")))
    context = replace(make_context(folder / "workspace"), has_network=has_network)
    return await tool.execute({"command": command, "timeout_s": PATIENCE_S}, context)


async def test_an_open_target_is_reached_through_the_proxy_alone(folder: Path) -> None:
    async with site() as port, GuardedProxy(Guard(allow=[("127.0.0.1", port)])) as proxy:
        await proxy.start(folder / "proxy")
        fetch = f"curl -sS --max-time 40 --noproxy '' http://127.0.0.1:{port}/"
        result = await reach(fetch, folder)
        assert (result.outcome, result.output) == (Outcome.OK, "the page\n")
        assert (result.trust, result.source) == (Trust.EXTERNAL, "tool:shell.run")
        assert result.sandbox.endswith("+proxy")
        around = await reach(f"curl -sS --max-time 40 --noproxy '*' http://127.0.0.1:{port}/", folder)
        assert around.outcome is Outcome.FAILED
        closed = await reach(fetch, folder, has_network=False)
        assert closed.outcome is Outcome.FAILED
        assert "the page" not in around.output + closed.output


async def test_the_guard_refuses_what_is_not_public(folder: Path) -> None:
    async with site() as port, GuardedProxy(Guard()) as proxy:
        await proxy.start(folder / "proxy")
        result = await reach(
            f"curl -sS --max-time 40 --noproxy '' -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{port}/", folder
        )
    assert result.output == "403"


async def test_without_a_proxy_the_command_does_not_run(folder: Path) -> None:
    result = await reach("touch ran", folder)
    assert result.error is not None
    assert result.error.code == "network_unavailable"
    assert not (folder / "workspace" / "ran").exists()


async def test_waiting_for_its_own_children_a_command_does_not_wait_for_the_way_out(folder: Path) -> None:
    async with GuardedProxy(Guard()) as proxy:
        await proxy.start(folder / "proxy")
        result = await reach("sleep 0.1 & wait; echo $HTTPS_PROXY; ls /proc/self/fd | wc -l", folder)
    assert result.output == "http://127.0.0.1:3128\n4\n"


async def test_output_of_a_background_process_with_network_stays_of_outside(folder: Path) -> None:
    async with GuardedProxy(Guard()) as proxy:
        await proxy.start(folder / "proxy")
        setup = replace(make_setup(), proxy_path=str(folder / "proxy"))
        context = replace(make_context(folder / "workspace"), has_network=True)
        await ShellRun(found_sandbox(), setup).execute({"command": "echo on; sleep 60", "background": True}, context)
        result = await ShellOutput(setup).execute({}, make_context(folder / "workspace"))
        await setup.processes.close()
    assert result.trust is Trust.EXTERNAL
