"""Wires the daemon: which adapter implements which port while it serves, its start and its end.

Does not own: rules.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.adapters.net.client import HttpClient
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import PolicyFolder
from palyra.adapters.tools.catalog import ToolCatalog
from palyra.app import Home
from palyra.app.default_models import choose_models
from palyra.app.model_facts import build_prices, describe_model, make_budgets
from palyra.app.models import build_router
from palyra.app.policies import record_changes, watch
from palyra.app.secrets import open_sources
from palyra.app.tools import StoredContent, ToolDependencies, build_tools, own_tools
from palyra.config import Config
from palyra.config.choices import Headless
from palyra.core.agents import DEFAULT_INSTRUCTIONS, AgentSpec
from palyra.core.errors import Invalid, Unavailable
from palyra.core.redaction import KnownSecrets, Redactor
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.gateway.http.settings import HttpSettings
from palyra.ports.search import NoSearch
from palyra.ports.skills import NoSkills
from palyra.ports.state import NoState

if TYPE_CHECKING:
    from palyra.adapters.store.sqlite.journal import SqliteJournal
    from palyra.engine.setup import Views

# Records are many and short-lived, and hardly ever form cycles. The default pace cost a tenth of the time.
GC_THRESHOLDS = (50_000, 20, 100)
# While many answers stream at once, the journal's thread would otherwise wait ten times as long for its turn.
SWITCH_INTERVAL_S = 0.0005

DAY_MS = 86_400_000

Announce = Callable[[str, str], None]


def _drop_message(words: str) -> None:
    """Drops the message; the log has it."""


def run_daemon(home: Home, config: Config, announce: Announce, tell: Callable[[str], None] = _drop_message) -> None:
    """Runs `serve` on its own event loop, with a log on standard error: lines for a terminal, else JSON."""
    import uvloop

    from palyra.app.logs import configure_log

    known = KnownSecrets()
    configure_log(known)
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(serve(home, config, announce, tell, known))


async def serve(
    home: Home,
    config: Config,
    announce: Announce,
    tell: Callable[[str], None] = _drop_message,
    known: KnownSecrets | None = None,
) -> None:
    """Wires everything, resumes the work of an earlier process, serves HTTP until a signal, then drains.

    `announce` receives the daemon's address and a link that logs a browser in. `tell` receives which models were chosen
    if the file names none.
    """
    import structlog

    from palyra.app.credentials import login_link, noting_uses, open_credentials
    from palyra.gateway.access.authentication import Authentication
    from palyra.gateway.http.application import Gateway
    from palyra.gateway.http.server import serve_http

    log = structlog.get_logger()
    known = known or KnownSecrets()
    prepare_home(home)
    folder = PolicyFolder(home.policies)
    policy = CedarPolicy(folder)
    tokens, credentials = open_credentials(home, policy)
    stop = _stop_signal()
    choice = await choose_models(config)
    client = HttpClient()
    engine = build_engine(home, choice.config, client, known, policy)
    settings = http_settings(config)
    watching: asyncio.Task[None] | None = None
    try:
        resumed = await engine.start()
        record_changes(folder, engine)
        watching = asyncio.create_task(watch(folder), name="policies")
        access = Authentication(credentials, settings.requests_per_minute, time.monotonic)
        gateway = Gateway(engine, access, settings)
        async with serve_http(settings, gateway) as server, noting_uses(tokens):
            announce(server.address, server.address + login_link(home, credentials))
            if choice.words:
                tell(choice.words)
                log.info("models_chosen", models=[model.name for model in choice.config.models], why=choice.words)
            # Everything made so far lives as long as the daemon, so the collector need not look at it again.
            gc.collect()
            gc.freeze()
            log.info("ready", address=server.address, home=str(home.root), sessions_resumed=resumed)
            # Prices take a quarter of a second to load: a thread does it now, so that nobody's first turn waits.
            await asyncio.to_thread(engine.status.models)
            # The same goes for the tools: the sandbox is tried, plugins and skills are read.
            await asyncio.to_thread(engine.status.tools)
            await engine.wait_for(stop)
            log.info("draining", limit_s=config.run.drain_s)
            await engine.drain(config.run.drain_s)
    finally:
        if watching is not None:
            watching.cancel()
        await engine.close()
        await client.close()


def build_engine(home: Home, config: Config, client: HttpClient, known: KnownSecrets, policy: CedarPolicy) -> Engine:
    """Connects adapters with ports. A new tool, provider or store is one line here."""
    from palyra.adapters.artifacts.files import FileArtifacts
    from palyra.adapters.clock import SystemClock
    from palyra.adapters.keys.sealer import FileSealer
    from palyra.adapters.keys.signer import FileSigner
    from palyra.adapters.schema import JsonSchemaCheck
    from palyra.adapters.store.sqlite.connection import JournalSettings
    from palyra.adapters.store.sqlite.journal import open_journal
    from palyra.engine.setup import EnginePorts, EngineSetup

    clock = SystemClock()
    signer = FileSigner(home.signing_key, home.public_keys)
    settings = JournalSettings(path=journal_path(home, config), durability=config.journal.durability.value)
    secrets = open_sources(home, config, known)
    prices = build_prices(config)
    journal = open_journal(settings, signer, clock)
    artifacts, schemas, sealer = FileArtifacts(home.artifacts), JsonSchemaCheck(), FileSealer(home.vault_key)
    tools = build_tools(
        ToolDependencies(
            home=home,
            config=config,
            secrets=secrets,
            artifacts=artifacts,
            schemas=schemas,
            redactor=Redactor(sealer.marker_key, known),
            state=journal.state,
            search=journal.search,
            provenance=journal.provenance,
        )
    )
    ports = EnginePorts(
        router=build_router(home, config, client, secrets, partial(describe_model, config, prices)),
        prices=prices,
        policy=policy,
        catalog=tools.catalog,
        schemas=schemas,
        artifacts=artifacts,
        signer=signer,
        sealer=sealer,
        processes=tools.processes,
        skills=tools.skills,
        references=tools.references,
        forget=tools.forget,
        kept=tools.kept,
        upkeep=journal.upkeep,
    )
    setup = EngineSetup(
        journal=journal,
        views=make_views(journal),
        ports=ports,
        clock=clock,
        agents=make_agents(home, config),
        settings=make_settings(config),
        budgets=make_budgets(config),
        policy_state=policy.state,
        known=known,
        services=tools.services,
    )
    return Engine(setup, lambda: verify_in_process(home))


def make_views(journal: "SqliteJournal") -> "Views":
    from palyra.engine.setup import Views

    return Views(
        sessions=journal.sessions,
        runs=journal.runs,
        approvals=journal.approvals,
        state=journal.state,
        usage=journal.usage,
        provenance=journal.provenance,
        jobs=journal.jobs,
    )


def build_catalog() -> ToolCatalog:
    """Returns the tools for offline commands, which ask what a recorded call was, and run none."""
    from palyra.adapters.artifacts.files import FileArtifacts
    from palyra.adapters.net.guard import Guard
    from palyra.adapters.runtimes.shell.unavailable import ShellLook
    from palyra.adapters.shell import TreeSitterShell

    stored = StoredContent(artifacts=FileArtifacts(Path(os.devnull)), state=NoState(), search=NoSearch())
    return ToolCatalog([*own_tools(Guard(), stored, NoSkills()), ShellLook(TreeSitterShell())])


def make_agents(home: Home, config: Config) -> dict[str, AgentSpec]:
    agents = {
        agent.name: AgentSpec(
            name=agent.name,
            instructions=agent.instructions or DEFAULT_INSTRUCTIONS,
            route=agent.route or "",
            tools=agent.tools,
            workspace=tuple(_workspace_root(home, agent.name, root) for root in agent.workspace)
            or (str(home.workspace),),
        )
        for agent in config.agents
    }
    return agents or {"main": AgentSpec(name="main", workspace=(str(home.workspace),))}


def _workspace_root(home: Home, agent: str, root: str) -> str:
    """Returns a workspace's root. No tool reaches anything of the home but its workspace, whatever the file says."""
    wanted = home.root / Path(root).expanduser()
    real, own = wanted.resolve(), home.root.resolve()
    holds_home = own.is_relative_to(real)
    lies_in_home = real.is_relative_to(own) and not real.is_relative_to(home.workspace.resolve())
    if holds_home or lies_in_home:
        raise Invalid(
            "workspace_invalid",
            f"agent {agent}: the workspace {root} would open {home.root} to tools, with its keys and its journal; "
            f"use a folder below {home.workspace}, or one outside {home.root}",
        )
    return str(wanted)


def make_settings(config: Config) -> EngineSettings:
    from palyra.core.run.loop import make_limits

    default = next((agent.name for agent in config.agents if agent.default), None)
    first = config.agents[0].name if config.agents else "main"
    return EngineSettings(
        limits=make_limits(config.run.wall_clock_s * 1000, config.run.max_tool_calls, config.run.parallel_tools),
        approval_timeout_ms=config.approvals.timeout_s * 1000,
        waits_headless=config.approvals.headless is Headless.WAIT,
        runs_active_max=config.limits.runs_active_max,
        runs_queued_max=config.limits.runs_queued_per_session_max,
        default_agent=default or first,
        retention_ms=None if config.journal.retention_days is None else config.journal.retention_days * DAY_MS,
    )


def http_settings(config: Config) -> HttpSettings:
    server = config.server
    return HttpSettings(
        host=server.http.host,
        port=server.http.port,
        tls_cert=server.tls_cert,
        tls_key=server.tls_key,
        is_insecure=server.insecure,
        hosts=server.hosts,
        requests_per_minute=config.limits.requests_per_minute,
    )


def journal_path(home: Home, config: Config) -> Path:
    """Returns the one place of the journal, so that the offline tools find what the daemon wrote."""
    if config.journal.url != "sqlite:journal.db":
        raise Invalid("journal_url", f"{config.journal.url} is not part of this release yet; use sqlite:journal.db")
    return home.journal


async def verify_in_process(home: Home) -> dict[str, object]:
    """Verifies on a snapshot, in a process that has a lower priority and limits.

    Checking takes as long as the journal is, and in a thread it would slow every run down.
    """
    from palyra.app.verify_process import verify_journal

    return await verify_journal(home)


def prepare_home(home: Home) -> None:
    """Creates the home so that nobody but the operator can read it."""
    for directory in (home.root, home.workspace, home.artifacts, home.public_keys):
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as cause:
            raise Unavailable(
                "home_unwritable", f"{directory} cannot be made: {cause.strerror}; check --home"
            ) from cause


def _stop_signal() -> asyncio.Event:
    """Makes SIGTERM and SIGINT ask for an orderly end; a second signal has its usual effect."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
    return stop
