"""A web server of a test, on a free port of loopback.

Owns: that nothing of it is left afterwards. A handler whose client has gone is cancelled, so one that waits for ever does
not outlive the test; otherwise the collector finds it in the middle of another test, which then fails.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import BodyPartReader, web

from tests.support.waiting import WAIT_S


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Yields the address of the application while it is served."""
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await asyncio.wait_for(runner.cleanup(), WAIT_S)


async def read_form(request: web.Request) -> tuple[dict[str, str], dict[str, tuple[str, str, bytes]]]:
    """Returns the fields of a form, and its files: name, media type and body.

    Everything stays in memory. aiohttp's own `post` leaves a file open if the client dies while it sends.
    """
    if not request.content_type.startswith("multipart/"):
        return {name: str(value) for name, value in (await request.post()).items()}, {}
    fields, files = {}, {}
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        assert part.name is not None
        if part.filename is None:
            fields[part.name] = await part.text()
        else:
            files[part.name] = (part.filename, part.headers["Content-Type"], bytes(await part.read()))
    return fields, files
