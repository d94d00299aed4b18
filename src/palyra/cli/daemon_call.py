"""One call of the daemon by a command.

Owns: connecting a client in an event loop of its own.
Does not own: which daemon it is (target), the client (client).
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from palyra.cli.options import chosen_url, home_of
from palyra.cli.target import target_of

if TYPE_CHECKING:
    from palyra.cli.client import Client as Client
else:
    Client = Any  # A name for annotations. The client is imported when a command asks the daemon, and not before.

Answer = TypeVar("Answer")


def ask_daemon(context: typer.Context, act: "Callable[[Client], Awaitable[Answer]]") -> Answer:
    """Calls `act` with a connected client, in an event loop of its own."""
    import asyncio

    from palyra.cli.client import Client

    target = target_of(home_of(context), chosen_url(context))

    async def call() -> Answer:
        async with Client(target) as client:
            return await act(client)

    return asyncio.run(call())
