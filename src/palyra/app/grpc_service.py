"""Starts gRPC beside HTTP, without making the daemon's start wait for it.

Owns: when the server is loaded, started and stopped, and what is said of its state.
Does not own: the server (gateway.grpc), whether an address is safe (gateway.grpc.port).
"""

import asyncio
import importlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from palyra.app.open_files import GRPC_PART, share
from palyra.config import Config
from palyra.config.records import ServerConfig
from palyra.core.errors import PalyraError, Unavailable
from palyra.gateway.access.authentication import Authentication
from palyra.gateway.grpc.port import check_grpc_bind, hold_port
from palyra.gateway.grpc.settings import CONNECTIONS_MAX, GrpcSettings
from palyra.gateway.http.application import Gateway
from palyra.gateway.services import GrpcState

if TYPE_CHECKING:
    from palyra.gateway.grpc.server import GrpcServer

log = structlog.get_logger()

# The core of gRPC writes past our log, and says something at every process that is started. It is asked to be silent.
_CORE_VARIABLES = {"GRPC_ENABLE_FORK_SUPPORT": "0", "GRPC_VERBOSITY": "NONE"}


@asynccontextmanager
async def serving_grpc(config: Config, gateway: Gateway, access: Authentication) -> AsyncIterator[None]:
    """Serves gRPC while the block runs. The server starts in the background.

    A taken port is an error if the operator chose it. The default port may belong to another daemon of this machine:
    then this one goes on without gRPC, and says so.
    """
    settings = grpc_settings(config)
    held = hold(config, settings) if settings is not None else None
    if settings is None or held is None:
        gateway.services.grpc_state = GrpcState("off" if settings is None else "port taken")
        yield
        return
    side = _GrpcSide(settings, gateway, access)
    starting = asyncio.create_task(side.start(held), name="grpc")
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait({starting})
        held.close()
        if not starting.cancelled() and starting.exception() is not None:
            log.error("grpc_broken", exc_info=starting.exception())
        await side.stop()


def grpc_settings(config: Config) -> GrpcSettings | None:
    server = config.server
    if server.grpc is None:
        return None
    return GrpcSettings(
        host=server.grpc.host,
        port=server.grpc.port,
        tls_cert=server.tls_cert,
        tls_key=server.tls_key,
        client_ca=server.grpc_client_ca,
        is_insecure=server.insecure,
        connections_max=share(CONNECTIONS_MAX, GRPC_PART),
    )


def hold(config: Config, settings: GrpcSettings) -> socket.socket | None:
    """Takes the port; None if it is the default one and somebody else has it."""
    check_grpc_bind(settings)
    try:
        return hold_port(settings)
    except Unavailable as error:
        if config.server.grpc != ServerConfig().grpc:
            raise
        log.warning("grpc_off", message=error.message)
        return None


class _GrpcSide:
    def __init__(self, settings: GrpcSettings, gateway: Gateway, access: Authentication) -> None:
        self._settings = settings
        self._gateway = gateway
        self._access = access
        self._server: GrpcServer | None = None

    async def start(self, held: socket.socket) -> None:
        services = self._gateway.services
        services.grpc_state = GrpcState("starting")
        for name, value in _CORE_VARIABLES.items():
            os.environ.setdefault(name, value)
        # A thread loads gRPC: that takes a tenth of a second, in which the loop has other things to do.
        await asyncio.to_thread(importlib.import_module, "palyra.gateway.grpc.server")
        from palyra.gateway.grpc.call_edge import CallEdge
        from palyra.gateway.grpc.server import GrpcServer

        server = GrpcServer(CallEdge(services, self._access), self._settings)
        held.close()
        try:
            await server.start()
        except PalyraError as error:
            services.grpc_state = GrpcState("failed", error.message)
            log.error("grpc_failed", code=error.code, message=error.message)
            return
        self._server = server
        services.grpc_state = GrpcState("ok", server.address)
        log.info("grpc_ready", address=server.address, tls=self._settings.tls_cert is not None)

    async def stop(self) -> None:
        """Streams end first, over HTTP too: the daemon stops, and their clients may resume elsewhere."""
        if self._server is not None:
            self._gateway.end_streams()
            await self._server.stop()
