"""The tapes that a session's history is made of: its own, and those of the sessions that it branched from.

Does not own: how they are shown (conversation, session_diff).
"""

from collections.abc import AsyncIterator

from palyra.cli.client import Client
from palyra.core.errors import NotFound
from palyra.core.events.base import JsonObject

ANCESTORS_MAX = 64  # As many as the daemon follows.

Part = tuple[str, int | None]  # A tape of a session's history, up to a seq. None: to its end.


async def parts_of(client: Client, record: JsonObject) -> AsyncIterator[Part]:
    """Yields the parts of a session's history, the youngest first."""
    yield str(record["id"]), None
    for _ in range(ANCESTORS_MAX - 1):
        if not isinstance(parent := record.get("parent_id"), str):
            break
        seq = record.get("parent_seq")
        yield parent, seq if isinstance(seq, int) else 0
        try:
            record = await client.get(f"/sessions/{parent}")
        except NotFound:
            break


async def events_before(client: Client, record: JsonObject, count: int) -> list[JsonObject]:
    """Returns at most so many of the last events of the sessions that this one branched from, the oldest first."""
    found: list[JsonObject] = []
    async for name, last_seq in parts_of(client, record):
        if last_seq is None or len(found) >= count:
            continue
        after = max(0, last_seq - count + len(found))
        try:
            events = await client.items(f"/sessions/{name}/tape", last_seq - after, after=after) if last_seq else []
        except NotFound:
            break
        found[:0] = events
    return found


def said_line(event: JsonObject) -> str:
    """Returns what a person or a model said in this event, a person's words with the sign of the prompt; else nothing."""
    data = event.get("data")
    text = str(data.get("text") or "") if isinstance(data, dict) else ""
    sign = {"message.user": "› ", "message.assistant": ""}.get(str(event.get("type")))
    return f"{sign}{text}" if text and sign is not None else ""
