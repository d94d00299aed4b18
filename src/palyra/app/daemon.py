"""Wires the daemon: which adapter implements which port while it serves, its start and its end. Does not own: rules."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from functools import partial

from palyra.adapters.net.client import HttpClient
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.policy.folder import PolicyFolder
from palyra.app import Home
from palyra.app.default_models import choose_models
from palyra.app.engine_builder import DaemonParts, build_engine, make_modes
from palyra.app.loop_blocks import make_loop_watch, watched
from palyra.app.open_files import HTTP_PART, raise_limit, share
from palyra.app.policies import record_changes, watch
from palyra.app.stop_signals import StopSignals
from palyra.config import Config
from palyra.core.errors import Unavailable
from palyra.core.healing.model import HealingDomain
from palyra.core.redaction import KnownSecrets
from palyra.engine.engine import Engine
from palyra.engine.healing.loop_watch import RESTART_EXIT_CODE
from palyra.engine.session.session_loop import JOURNAL_CLOSED
from palyra.gateway.http.settings import CONNECTIONS_MAX, HttpSettings

# Records are many and short-lived, and hardly ever form cycles. The default pace cost a tenth of the time.
GC_THRESHOLDS = (50_000, 20, 100)
# While many answers stream at once, the journal's thread would otherwise wait ten times as long for its turn.
SWITCH_INTERVAL_S = 0.0005

Announce = Callable[[str, str, str], None]
Tell = Callable[[str], None]


def _drop_message(words: str) -> None:
    """Drops the message; the log has it."""


def run_daemon(home: Home, config: Config, announce: Announce, tell: Tell = _drop_message) -> None:
    """Runs `serve` on its own event loop, with a log on standard error: lines for a terminal, else JSON.

    If the journal's writer ended, the process ends with RESTART_EXIT_CODE: a new one may open what this one cannot.
    """
    import uvloop

    from palyra.app.logs import configure_log

    known = KnownSecrets()
    configure_log(known)
    raise_limit()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        uvloop.run(serve(home, config, announce, tell, known))
    except Unavailable as error:
        if error.code != JOURNAL_CLOSED:
            raise
        tell(f"error: {error}")
        raise SystemExit(RESTART_EXIT_CODE) from error


async def serve(
    home: Home, config: Config, announce: Announce, tell: Tell = _drop_message, known: KnownSecrets | None = None
) -> None:
    """Wires everything, resumes the work of an earlier process, serves HTTP and gRPC until a signal, then drains.

    `announce` receives the daemon's address, a link that logs a browser in, and which models were chosen if the file
    names none. `tell` receives what a stop waits for.
    """
    import structlog

    from palyra.app.credentials import login_link, noting_uses, open_credentials, workers
    from palyra.app.grpc_service import serving_grpc
    from palyra.gateway.access.authentication import Authentication
    from palyra.gateway.http.application import Gateway
    from palyra.gateway.http.server import serve_http

    log = structlog.get_logger()
    known = known or KnownSecrets()
    prepare_home(home)
    folder = PolicyFolder(home.policies)
    policy = CedarPolicy(folder)
    tokens, credentials = open_credentials(home, policy)
    stop = StopSignals()
    choice = await choose_models(config)
    client = HttpClient()
    loop_watch = make_loop_watch(home, make_modes(config).of(HealingDomain.LOOP))
    engine = build_engine(home, choice.config, DaemonParts(client, known, policy, loop_watch, partial(workers, tokens)))
    settings = http_settings(config)
    watching: asyncio.Task[None] | None = None
    try:
        resumed = await engine.start()
        record_changes(folder, engine)
        watching = asyncio.create_task(watch(folder), name="policies")
        access = Authentication(credentials, settings.requests_per_minute, time.monotonic)
        gateway = Gateway(engine, access, settings)
        beside = serving_grpc(config, gateway, access)
        async with serve_http(settings, gateway) as server, noting_uses(tokens), watched(loop_watch), beside:
            if choice.words:
                log.info("models_chosen", models=[model.name for model in choice.config.models], why=choice.words)
            # Everything made so far lives as long as the daemon, so the collector need not look at it again.
            gc.collect()
            gc.freeze()
            log.info("ready", address=server.address, home=str(home.root), sessions_resumed=resumed)
            announce(server.address, server.address + login_link(home, credentials), choice.words)
            # Prices take a quarter of a second to load, and so do the tools: the sandbox is tried, plugins and skills are
            # read. A thread does it now, so that nobody's first turn waits.
            await asyncio.to_thread(lambda: (engine.status.models(), engine.status.tools()))
            await engine.wait_for(stop.asked)
            log.info("draining", limit_s=config.run.drain_s)
            await _drain(engine, config.run.drain_s, stop.hurried, tell)
    finally:
        if watching is not None:
            watching.cancel()
        await engine.close()
        await client.close()
    tell("stopped")


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
        streams_max=config.limits.streams_max,
        streams_per_token_max=config.limits.streams_per_token_max,
        connections_max=share(CONNECTIONS_MAX, HTTP_PART),
    )


def prepare_home(home: Home) -> None:
    """Creates the home so that nobody but the operator can read it."""
    for directory in (home.root, home.workspace, home.artifacts, home.public_keys):
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as cause:
            raise Unavailable(
                "home_unwritable", f"{directory} cannot be made: {cause.strerror}; check --home"
            ) from cause


async def _drain(engine: Engine, limit_s: float, hurried: asyncio.Event, tell: Tell) -> None:
    """Lets active runs finish, until the limit or a second signal. What is left goes on at the next start."""
    draining = asyncio.create_task(engine.drain(limit_s), name="drain")
    hurrying = asyncio.create_task(hurried.wait(), name="second signal")
    try:
        count = engine.status.active_count
        if count and limit_s:
            runs = "1 active run" if count == 1 else f"{count} active runs"
            tell(f"stopping: waits up to {limit_s:g} s for {runs}; Ctrl-C again stops now, and the next start resumes")
        await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        draining.cancel()
        hurrying.cancel()
