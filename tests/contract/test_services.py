"""What every service of a real daemon must do: start, tell its health, restart, and end more than once."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.adapters.net.client import HttpClient
from palyra.adapters.net.guard import Guard
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import PolicyFolder
from palyra.adapters.runtimes.wasm import runtime as wasm
from palyra.adapters.runtimes.wasm.runtime import CALLS_AT_ONCE_MAX
from palyra.app import Home
from palyra.app.daemon import prepare_home
from palyra.app.engine_builder import DaemonParts, build_engine
from palyra.app.services import LazyService, SandboxProxy
from palyra.config.records import Config, McpServerConfig
from palyra.core.errors import Unavailable
from palyra.core.events.tool import Outcome
from palyra.core.redaction import KnownSecrets
from palyra.engine.engine import Engine
from palyra.ports.services import DOMAINS, HEALTH_S_MAX, Service, ServiceHealth, ServiceState
from tests.browser.scenes import scene
from tests.browser.test_lifecycle import COUNTER, pids
from tests.runtimes.wasm_plugins import ECHO, SPIN, Bench, module
from tests.support.mcp_servers.running import HOSTILE, hostile, ready, running
from tests.support.tool_calls import code_of, execute
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
HEALTH_TRIES = 10
NAMES = ["MCP servers", "background processes", "browser", "dropped drafts", "embedder", "plugins", "sandbox proxy"]


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    home = Home(tmp_path / "home")
    prepare_home(home)
    server = McpServerConfig(name="fine", command=(sys.executable, str(HOSTILE), "plain", str(tmp_path)))
    client = HttpClient()
    policy = CedarPolicy(PolicyFolder(home.policies))
    made = build_engine(home, Config(mcp_servers=(server,)), DaemonParts(client, KnownSecrets(), policy))
    yield made
    await made.close()
    await client.close()


async def health(service: Service) -> ServiceHealth:
    """Returns the first answer. A busy machine may hold up one or another of them, but not all."""
    answers: list[ServiceHealth] = []
    took_s = HEALTH_S_MAX
    while took_s >= HEALTH_S_MAX:
        assert len(answers) < HEALTH_TRIES, f"it took {took_s:.1f} s"
        began_s = time.monotonic()
        answers.append(await service.health())
        took_s = time.monotonic() - began_s
    return answers[0]


def service_named(engine: Engine, name: str) -> Service:
    return next(each for each in engine._setup.services if each.name == name)


async def test_services_of_a_daemon_have_names_of_their_own_and_known_domains(engine: Engine) -> None:
    services = engine._setup.services
    assert sorted(each.name for each in services) == NAMES
    assert {each.domain for each in services} <= DOMAINS
    assert [each.name for each in services if each.restarts_itself] == ["MCP servers"]


@pytest.mark.parametrize("name", NAMES)
async def test_service_starts_restarts_and_ends_twice(engine: Engine, name: str) -> None:
    service = service_named(engine, name)
    assert (await health(service)).state is ServiceState.IDLE
    await service.start()
    first = await health(service)
    await service.restart()
    assert (await health(service)).state is first.state is not ServiceState.FAILED
    await service.close()
    assert (await health(service)).state is ServiceState.IDLE
    await service.close()


@pytest.fixture
async def proxy() -> AsyncIterator[SandboxProxy]:
    made = SandboxProxy(Guard())
    await made.start()
    yield made
    await made.close()


async def test_proxy_whose_folder_was_cleaned_away_fails_and_a_restart_mends_it(proxy: SandboxProxy) -> None:
    assert (await health(proxy)).state is ServiceState.OK
    shutil.rmtree(proxy.path.parent)
    assert (await health(proxy)).state is ServiceState.FAILED
    await proxy.restart()
    assert (await health(proxy)).state is ServiceState.OK
    assert (proxy.path.parent.stat().st_mode & 0o077, proxy.path.stat().st_mode & 0o077) == (0, 0)


async def test_proxy_that_only_listens_and_never_answers_has_failed(proxy: SandboxProxy) -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    proxy.path.unlink()
    async with await asyncio.start_unix_server(stay_silent, str(proxy.path)):
        assert (await health(proxy)).state is ServiceState.FAILED


async def test_proxy_does_not_use_a_folder_that_somebody_else_put_there(proxy: SandboxProxy, tmp_path: Path) -> None:
    shutil.rmtree(proxy.path.parent)
    proxy.path.parent.symlink_to(tmp_path)
    with pytest.raises(Unavailable):
        await proxy.restart()
    assert list(tmp_path.iterdir()) == []
    assert (await health(proxy)).state is ServiceState.FAILED
    proxy.path.parent.unlink()


async def test_mcp_server_that_cannot_start_is_reported_by_name(tmp_path: Path) -> None:
    async with running(hostile("plain", tmp_path, name="lost", command=("/nowhere/at/all",))) as servers:
        await until(lambda: servers.status()[0].starts_count > 1)
        found = await health(servers)
        assert found.state is ServiceState.FAILED
        assert "lost is down: " in found.reason


async def test_mcp_servers_that_run_are_well_and_a_restart_leaves_them_alone(tmp_path: Path) -> None:
    async with ready(hostile("plain", tmp_path)) as servers:
        await servers.restart()
        assert (await health(servers)).state is ServiceState.OK
        assert servers.status()[0].starts_count == 1


async def test_plugins_work_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    tool = bench.tool(module(ECHO), "json")
    for _ in range(2):
        assert (await execute(tool, {"a": 1})).outcome is Outcome.OK
        bench.runtime.close()


async def test_plugins_fail_once_every_thread_is_taken_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wasm, "STUCK_S", -1000.0)  # Every call counts as one that did not end in time.
    bench = Bench(tmp_path)
    tool = bench.tool(module(SPIN), limits="fuel = 1000000000000, timeout_s = 60")
    stuck = [asyncio.create_task(execute(tool, {})) for _ in range(CALLS_AT_ONCE_MAX)]
    try:
        await until(lambda: bench.runtime.health().state is ServiceState.FAILED)
        threads = bench.runtime._threads
        assert threads is not None
        waiting = asyncio.create_task(execute(tool, {}))
        # A call that is not yet in the queue would begin in the new threads instead.
        await until(lambda: threads._work_queue.qsize() == 1)
        bench.runtime.close()
        assert bench.runtime.health().state is ServiceState.IDLE
        assert code_of(await waiting) == "plugins_restarted"
    finally:
        for call in stuck:
            call.cancel()
        await asyncio.wait(stuck)


async def test_hanging_browser_fails_and_a_restart_keeps_its_logins(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT_S), scene(tmp_path) as own:
        service = LazyService("browser", "browser", own.browsers)
        url = own.page("/", COUNTER)
        assert "visit 1" in await own.output("open", url=url)
        await service.restart()  # The browser that ends in order has written its profile.
        assert "visit 2" in await own.output("open", url=url)
        assert (await health(service)).state is ServiceState.OK
        for pid in pids(own):
            os.kill(pid, signal.SIGSTOP)
        assert (await health(service)).state is ServiceState.OK  # It may only be slow.
        await until(lambda: _has_failed(service), pause_s=0.2)
        await service.restart()
        assert (pids(own), (await health(service)).state) == ([], ServiceState.IDLE)
        assert "visit 1" not in await own.output("open", url=url)
        assert (await health(service)).state is ServiceState.OK


async def _has_failed(service: Service) -> bool:
    return (await health(service)).state is ServiceState.FAILED
