"""The history of Discord's conversations, for what was written while no client was connected.

Owns: reading pages of it, and waiting out Discord's limits.
Does not own: what a message says to us (discord), which messages are wanted (engine.channels.catch_up).
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError

from palyra.core.errors import NotFound, Unavailable
from palyra.ports.channels import Arrival, PastMessage

if TYPE_CHECKING:
    import discord

PAGE_LENGTH = 100  # The most that Discord gives at once.
PAGE_S = 90.0  # The library waits for its limits within this.
BUSY_S_MAX = 600.0  # Discord's longest waits are some minutes.


class DiscordHistory:
    def __init__(
        self, library: Any, client: "discord.Client", read: Callable[["discord.Message"], Arrival | None]
    ) -> None:
        self._library, self._client, self._read = library, client, read

    async def page(self, conversation_id: str, before: str | None) -> tuple[PastMessage, ...]:
        library = self._library
        try:
            async with asyncio.timeout(PAGE_S):
                return await self._page(int(conversation_id), before)
        except (library.Forbidden, library.NotFound, library.InvalidData) as cause:
            raise NotFound("conversation_closed", f"Discord does not show conversation {conversation_id}") from cause
        except library.RateLimited as error:
            # The library itself waits for shorter ones.
            await asyncio.sleep(min(error.retry_after, BUSY_S_MAX))
            raise Unavailable("platform_busy", "Discord is busy") from error
        except (library.HTTPException, ClientError, OSError) as cause:
            raise Unavailable("history_unreadable", "Discord does not give the messages now") from cause
        except RuntimeError as cause:
            if not self._client.is_closed():
                raise
            raise Unavailable("connection_lost", "the client was closed") from cause

    async def _page(self, channel_id: int, before: str | None) -> tuple[PastMessage, ...]:
        await self._client.wait_until_ready()
        # A message of the history does not say which guild it is of; its conversation does.
        found = self._client.get_channel(channel_id) or await self._client.fetch_channel(channel_id)
        if not isinstance(found, self._library.abc.Messageable):
            raise NotFound("conversation_closed", "the conversation of Discord holds no messages")
        since = None if before is None else self._library.Object(id=int(before))
        return tuple([self._past(each) async for each in found.history(limit=PAGE_LENGTH, before=since)])

    def _past(self, message: "discord.Message") -> PastMessage:
        at_ms = int(message.created_at.timestamp() * 1000)
        return PastMessage(message_id=str(message.id), at_ms=at_ms, arrival=self._read(message))
