"""The history of Discord's conversations, for what was written while no client was connected.

Owns: reading pages of it, and waiting out Discord's limits.
Does not own: what a message says to us (discord), which messages are wanted (engine.channels.catch_up).
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError

from palyra.adapters.channels.discord_payloads import DiscordPlace, name_of, typed, written_at_ms
from palyra.core.errors import Invalid, NotFound, Unavailable
from palyra.ports.channels import Arrival, PastMessage

if TYPE_CHECKING:
    import discord

PAGE_LENGTH = 100  # The most that Discord gives at once.
PAGE_S = 90.0  # The library waits for its limits within this.
BUSY_S_MAX = 600.0  # Discord's longest waits are some minutes.


class DiscordHistory:
    def __init__(
        self, library: Any, client: "discord.Client", read: Callable[[object, str | None], Arrival | None]
    ) -> None:
        self._library, self._client, self._read = library, client, read

    async def page(self, conversation_id: str, before: str | None) -> tuple[PastMessage, ...]:
        library = self._library
        try:
            async with asyncio.timeout(PAGE_S):
                return await self._page(int(conversation_id), before)
        except (library.Forbidden, library.NotFound, Invalid) as cause:
            raise NotFound("conversation_closed", f"Discord does not show conversation {conversation_id}") from cause
        except library.RateLimited as error:
            # The library itself waits for shorter ones.
            await asyncio.sleep(min(error.retry_after, BUSY_S_MAX))
            raise Unavailable("platform_busy", "Discord is busy") from error
        except (library.HTTPException, ClientError, OSError, ValueError, RecursionError) as cause:
            raise Unavailable("history_unreadable", "Discord does not give the messages now") from cause
        except RuntimeError as cause:
            if not self._client.is_closed():
                raise
            raise Unavailable("connection_lost", "the client was closed") from cause

    async def _page(self, channel_id: int, before: str | None) -> tuple[PastMessage, ...]:
        await self._client.wait_until_ready()
        # A message of the history does not say which guild it is of; its conversation does.
        guild_id = await self._guild_of(channel_id)
        before_id = None if before is None else int(before)
        found: Any = await self._client.http.logs_from(channel_id, PAGE_LENGTH, before=before_id)
        pages = [self._past(each, guild_id) for each in found] if isinstance(found, list) else []
        return tuple(each for each in pages if each is not None)

    async def _guild_of(self, channel_id: int) -> str | None:
        guild = getattr(self._client.get_channel(channel_id), "guild", None)
        if guild is not None:
            return str(guild.id)
        return typed(await self._client.http.get_channel(channel_id), DiscordPlace).guild_id

    def _past(self, payload: object, guild_id: str | None) -> PastMessage | None:
        """Returns None for what has no id of Discord's: nobody could ask for those before it."""
        name = name_of(payload)
        try:
            at_ms = written_at_ms(name)
        except Invalid:
            return None
        return PastMessage(message_id=name, at_ms=at_ms, arrival=self._read(payload, guild_id))
