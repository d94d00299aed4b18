"""The generic webhook: what trying it finds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from palyra.adapters.channels.webhook import WebhookChannel, WebhookSettings
from palyra.adapters.clock import SystemClock
from palyra.adapters.net.client import HttpClient
from palyra.core.errors import Unavailable
from tests.support.waiting import WAIT_S


@asynccontextmanager
async def webhook(outbound_url: str | None) -> AsyncIterator[WebhookChannel]:
    client = HttpClient()
    settings = WebhookSettings(name="tickets", secret=lambda: "secret", outbound_url=outbound_url)
    try:
        yield WebhookChannel(settings, client, SystemClock())
    finally:
        await client.close()


async def test_an_address_where_nothing_listens_does_not_pass_the_check() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with webhook(f"http://127.0.0.1:{port}/answers") as channel:
        with pytest.raises(Unavailable, match=f"no connection to 127.0.0.1:{port}"):
            await channel.check()


async def test_the_check_connects_and_sends_nothing() -> None:
    heard: list[bytes] = []
    is_over = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()
        is_over.set()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/answers"
        async with webhook(url) as channel:
            found = await channel.check()
        await asyncio.wait_for(is_over.wait(), WAIT_S)
    assert (found.known_as, found.note) == (None, f"{url} takes connections; no message was sent there")
    assert heard == [b""]


async def test_a_webhook_without_an_address_says_that_it_sends_no_answers() -> None:
    async with webhook(None) as channel:
        found = await channel.check()
    assert found.note == "it takes messages in, and sends no answers, because it has no outbound_url"
