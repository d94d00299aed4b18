"""The HTTP server.

Owns: binding, the settings of uvicorn, starting and stopping.
Does not own: signals (app), requests (application).
Invariants: without TLS it listens to this machine only, unless the operator insists. Stopping first ends all streams
cleanly, then lets answers under way finish, for a bounded time.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from ipaddress import ip_address

import uvicorn

from palyra.core.errors import Invalid, Unavailable
from palyra.gateway.http.application import Gateway
from palyra.gateway.http.connection import bounded
from palyra.gateway.http.settings import KEEP_ALIVE_S, SHUTDOWN_TIMEOUT_S, HttpSettings

BACKLOG = 1024


class HttpServer:
    def __init__(self, settings: HttpSettings, gateway: Gateway, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self._settings = settings
        self._gateway = gateway
        self._listener = listener
        self._server = uvicorn.Server(_config(settings, gateway))
        self._ticking: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        scheme = "https" if self._settings.tls_cert is not None else "http"
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{scheme}://{host}:{self.port}"

    async def start(self) -> None:
        """As uvicorn starts itself, but without its signal handlers: signals are the daemon's."""
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._listener])
        self._ticking = asyncio.create_task(self._server.main_loop())

    async def stop(self) -> None:
        """Streams first: uvicorn would wait for them. Stopping again changes nothing."""
        if self._ticking is None:
            return
        self._ticking.cancel()
        self._ticking = None
        self._gateway.end_streams()
        await self._server.shutdown(sockets=[self._listener])


@asynccontextmanager
async def serve_http(settings: HttpSettings, gateway: Gateway) -> AsyncIterator[HttpServer]:
    """Listens while the block runs. Port 0 takes any free one; `HttpServer.port` tells which."""
    check_bind(settings)
    with closing(_bind(settings)) as listener:
        server = HttpServer(settings, gateway, listener)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


def check_bind(settings: HttpSettings) -> None:
    """Invalid for a bind that would send tokens and everything else over a network in the clear."""
    if (settings.tls_cert is None) is not (settings.tls_key is None):
        raise Invalid("tls_incomplete", "TLS needs both tls_cert and tls_key in [server]")
    if settings.tls_cert is None and not is_loopback(settings.host) and not settings.is_insecure:
        message = f"{settings.host} can be reached from other machines: set tls_cert and tls_key, or pass --insecure"
        raise Invalid("bind_insecure", message)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _config(settings: HttpSettings, gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        gateway,
        http=bounded(settings.connections_max),
        ws="none",
        lifespan="off",
        interface="asgi3",
        loop="none",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        log_level="error",  # A warning for each request that is no HTTP would let strangers fill the log.
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(SHUTDOWN_TIMEOUT_S),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def _bind(settings: HttpSettings) -> socket.socket:
    try:
        return socket.create_server((settings.host, settings.port), family=_family(settings.host), backlog=BACKLOG)
    except OSError as cause:
        why = os.strerror(cause.errno) if cause.errno else str(cause)
        message = f"cannot listen on {settings.host}:{settings.port}: {why}; change http in [server]"
        raise Unavailable("address_unusable", message) from cause


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
