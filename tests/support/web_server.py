"""A web server of a test, on a free port of loopback.

Owns: that nothing of it is left afterwards. A handler whose client has gone is cancelled, so one that waits for ever does
not outlive the test; otherwise the collector finds it in the middle of another test, which then fails.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

CLOSE_S = 5.0


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Yields the address of the application while it is served."""
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await asyncio.wait_for(runner.cleanup(), CLOSE_S)


async def read_form(request: web.Request) -> tuple[dict[str, str], dict[str, tuple[str, str, bytes]]]:
    """Returns the fields of a form, and its files: name, media type and body. Files that lie on disk are closed."""
    fields, files = {}, {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            with value.file as file:
                files[name] = (value.filename, value.content_type, file.read())
        else:
            fields[name] = str(value)
    return fields, files
