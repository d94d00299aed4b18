"""Queries for channels: deliveries, pauses, how far conversations were read, links and pairing."""

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.channels.identity import AccountLink
from palyra.core.channels.missed import ReadPosition
from palyra.core.channels.model import TakenEnvelope
from palyra.core.channels.pairing_codes import PairingAttempts, PairingCode, PairingRequest
from palyra.core.ids import ApprovalId

_LINK = "id, channel, sender_id, principal, role, display, made_by, created_at_ms, expires_at_ms, revoked_at_ms"
_CODE = "id, code_hash, made_by, created_at_ms, expires_at_ms, channel, principal, role, used_at_ms"
_REQUEST = """
    approval_id, channel, sender_id, display, conversation_id, digest, created_at_ms, expires_at_ms, principal, role
"""

Cell = str | int


class SqliteChannels:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def envelope(self, channel: str, envelope_id: str) -> TakenEnvelope | None:
        sql = "SELECT at_ms FROM channel_envelopes WHERE channel = ? AND envelope_id = ?"
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (channel, envelope_id)))
        return TakenEnvelope(channel=channel, envelope_id=envelope_id, at_ms=found[0][0]) if found else None

    async def is_paused(self, channel: str) -> bool:
        sql = "SELECT is_paused FROM channel_states WHERE channel = ?"
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (channel,)))
        return bool(found and found[0][0])


class SqlitePositions:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def position(self, channel: str, conversation_id: str) -> ReadPosition | None:
        sql = "SELECT message_id, at_ms FROM channel_positions WHERE channel = ? AND conversation_id = ?"
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (channel, conversation_id)))
        if not found:
            return None
        message_id, at_ms = found[0]
        return ReadPosition(channel=channel, conversation_id=conversation_id, message_id=message_id, at_ms=at_ms)

    async def positions(self, channel: str, limit: int) -> tuple[ReadPosition, ...]:
        sql = """
            SELECT channel, conversation_id, message_id, at_ms FROM channel_positions
            WHERE channel = ? ORDER BY at_ms DESC, conversation_id LIMIT ?
        """
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (channel, page_limit(limit))))
        fields = ReadPosition.__struct_fields__
        return tuple([ReadPosition(**dict(zip(fields, cells, strict=True))) for cells in found])


class SqlitePairing:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def link(self, channel: str, sender_id: str) -> AccountLink | None:
        sql = f"""
            SELECT {_LINK} FROM channel_links WHERE channel = ? AND sender_id = ? AND revoked_at_ms IS NULL
        """  # noqa: S608 - our names; every value is bound
        found = await self._links(sql, channel, sender_id)
        return found[0] if found else None

    async def link_by_id(self, link_id: str) -> AccountLink | None:
        found = await self._links(f"SELECT {_LINK} FROM channel_links WHERE id = ?", link_id)  # noqa: S608 - our names
        return found[0] if found else None

    async def links(self, channel: str | None, after: str, limit: int) -> tuple[AccountLink, ...]:
        sql = f"""
            SELECT {_LINK} FROM channel_links
            WHERE revoked_at_ms IS NULL AND id > ? AND (? = '' OR channel = ?) ORDER BY id LIMIT ?
        """  # noqa: S608 - our names; every value is bound
        return await self._links(sql, after, channel or "", channel or "", page_limit(limit))

    async def code(self, code_hash: str) -> PairingCode | None:
        found = await self._codes(f"SELECT {_CODE} FROM pairing_codes WHERE code_hash = ?", code_hash)  # noqa: S608
        return found[0] if found else None

    async def codes(self, now_ms: int) -> tuple[PairingCode, ...]:
        sql = f"""
            SELECT {_CODE} FROM pairing_codes WHERE used_at_ms IS NULL AND expires_at_ms > ? ORDER BY id LIMIT 1000
        """  # noqa: S608 - our names; every value is bound
        return await self._codes(sql, now_ms)

    async def attempts(self, channel: str, sender_id: str) -> PairingAttempts | None:
        sql = """
            SELECT wrong_count, since_ms, locked_until_ms FROM pairing_attempts WHERE channel = ? AND sender_id = ?
        """
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (channel, sender_id)))
        if not found:
            return None
        wrong_count, since_ms, locked_until_ms = found[0]
        return PairingAttempts(
            channel=channel,
            sender_id=sender_id,
            wrong_count=wrong_count,
            since_ms=since_ms,
            locked_until_ms=locked_until_ms,
        )

    async def request(self, approval_id: ApprovalId) -> PairingRequest | None:
        sql = f"SELECT {_REQUEST} FROM pairing_requests WHERE approval_id = ?"  # noqa: S608 - our names
        found = await self._requests(sql, approval_id)
        return found[0] if found else None

    async def requests(self, limit: int) -> tuple[PairingRequest, ...]:
        sql = f"SELECT {_REQUEST} FROM pairing_requests ORDER BY created_at_ms, approval_id LIMIT ?"  # noqa: S608
        return await self._requests(sql, page_limit(limit))

    async def _links(self, sql: str, *bindings: Cell) -> tuple[AccountLink, ...]:
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        fields = AccountLink.__struct_fields__
        return tuple([AccountLink(**dict(zip(fields, cells, strict=True))) for cells in found])

    async def _codes(self, sql: str, *bindings: Cell) -> tuple[PairingCode, ...]:
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        fields = PairingCode.__struct_fields__
        return tuple([PairingCode(**dict(zip(fields, cells, strict=True))) for cells in found])

    async def _requests(self, sql: str, *bindings: Cell) -> tuple[PairingRequest, ...]:
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        fields = PairingRequest.__struct_fields__
        return tuple([PairingRequest(**dict(zip(fields, cells, strict=True))) for cells in found])
