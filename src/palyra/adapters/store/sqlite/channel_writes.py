"""Writes to the tables of channels: the SQL of each member of core.writes.ChannelWrite.

Does not own: whether a write may happen (engine.channels).
"""

from typing import assert_never

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import json_text
from palyra.core.channel_writes import (
    ChannelWrite,
    CountPairingAttempts,
    DropPairingRequest,
    KeepDeadLetter,
    PutLink,
    PutPairingCode,
    PutPairingRequest,
    PutPosition,
    QueueOutbox,
    RecordEnvelope,
    SetChannelPaused,
    SetOutbox,
)
from palyra.core.channels.identity import AccountLink
from palyra.core.channels.missed import ReadPosition
from palyra.core.channels.outbox import OutboxItem
from palyra.core.channels.pairing_codes import PairingAttempts, PairingCode, PairingRequest

_FORGOTTEN_AT_ONCE_MAX = 1_000  # So that no commit waits long behind it.


def apply_channel_write(connection: apsw.Connection, write: ChannelWrite) -> None:
    match write:
        case RecordEnvelope(envelope=taken, kept_from_ms=kept_from_ms):
            sql = "INSERT INTO channel_envelopes (channel, envelope_id, at_ms) VALUES (?, ?, ?)"
            connection.execute(sql, (taken.channel, taken.envelope_id, taken.at_ms))
            _forget(connection, "channel_envelopes", "at_ms < ?", kept_from_ms)
        case PutPosition(position=position, kept_from_ms=kept_from_ms):
            _put_position(connection, position)
            _forget(connection, "channel_positions", "at_ms < ?", kept_from_ms)
        case SetChannelPaused(channel=channel, is_paused=is_paused, at_ms=at_ms):
            sql = "INSERT OR REPLACE INTO channel_states (channel, is_paused, at_ms) VALUES (?, ?, ?)"
            connection.execute(sql, (channel, int(is_paused), at_ms))
        case PutLink(link=link):
            _put_link(connection, link)
        case PutPairingCode(code=code, kept_from_ms=kept_from_ms):
            _put_code(connection, code)
            connection.execute("DELETE FROM pairing_codes WHERE expires_at_ms < ?", (kept_from_ms,))
        case PutPairingRequest(request=request):
            _put_request(connection, request)
        case DropPairingRequest(approval_id=approval_id):
            connection.execute("DELETE FROM pairing_requests WHERE approval_id = ?", (approval_id,))
        case CountPairingAttempts(attempts=attempts):
            _put_attempts(connection, attempts)
        case QueueOutbox(item=item):
            _queue(connection, item)
        case KeepDeadLetter(item=item, kept_max=kept_max):
            _queue(connection, item)
            _drop_older(connection, item, kept_max)
        case SetOutbox(item=item, kept_from_ms=kept_from_ms):
            _set(connection, item)
            _forget(connection, "outbox", "state IN ('sent', 'discarded') AND updated_at_ms < ?", kept_from_ms)
        case _:
            assert_never(write)


def _forget(connection: apsw.Connection, table: str, condition: str, before_ms: int) -> None:
    sql = f"""
        DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {condition} LIMIT {_FORGOTTEN_AT_ONCE_MAX})
    """  # noqa: S608 - our names; every value is bound
    connection.execute(sql, (before_ms,))


def _put_position(connection: apsw.Connection, position: ReadPosition) -> None:
    """Ids of messages are numbers of growing length, so a longer one is later."""
    sql = """
        INSERT INTO channel_positions (channel, conversation_id, message_id, at_ms) VALUES (?, ?, ?, ?)
        ON CONFLICT (channel, conversation_id) DO UPDATE SET message_id = excluded.message_id, at_ms = excluded.at_ms
        WHERE (length(excluded.message_id), excluded.message_id) > (length(message_id), message_id)
    """
    connection.execute(sql, msgspec.structs.astuple(position))


def _put_link(connection: apsw.Connection, link: AccountLink) -> None:
    ended = """
        UPDATE channel_links SET revoked_at_ms = ?
        WHERE channel = ? AND sender_id = ? AND id != ? AND revoked_at_ms IS NULL
    """
    connection.execute(ended, (link.created_at_ms, link.channel, link.sender_id, link.id))
    sql = """
        INSERT OR REPLACE INTO channel_links (
            id, channel, sender_id, principal, role, display, made_by, created_at_ms, expires_at_ms, revoked_at_ms
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    """
    connection.execute(sql, msgspec.structs.astuple(link))


def _put_code(connection: apsw.Connection, code: PairingCode) -> None:
    sql = """
        INSERT OR REPLACE INTO pairing_codes (
            id, code_hash, made_by, created_at_ms, expires_at_ms, channel, principal, role, used_at_ms
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    """
    connection.execute(sql, msgspec.structs.astuple(code))


def _put_request(connection: apsw.Connection, request: PairingRequest) -> None:
    sql = """
        INSERT OR REPLACE INTO pairing_requests (
            approval_id, channel, sender_id, display, conversation_id, digest, created_at_ms, expires_at_ms,
            principal, role
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    """
    connection.execute(sql, msgspec.structs.astuple(request))


def _put_attempts(connection: apsw.Connection, attempts: PairingAttempts) -> None:
    sql = """
        INSERT OR REPLACE INTO pairing_attempts (channel, sender_id, wrong_count, since_ms, locked_until_ms)
        VALUES (?, ?, ?, ?, ?)
    """
    connection.execute(sql, msgspec.structs.astuple(attempts))


def _queue(connection: apsw.Connection, item: OutboxItem) -> None:
    sql = """
        INSERT INTO outbox (
            id, channel, conversation_id, kind, text, created_at_ms, thread_id, reply_to, session_id, buttons, files,
            state, attempts, part, not_before_ms, error, message_ids, updated_at_ms
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (id) DO NOTHING
    """
    named = (item.id, item.channel, item.conversation_id, item.kind.value, item.text, item.created_at_ms)
    connection.execute(sql, (*named, item.thread_id, item.reply_to, item.session_id, *_changing(item)))


def _drop_older(connection: apsw.Connection, item: OutboxItem, kept_max: int) -> None:
    sql = """
        DELETE FROM outbox WHERE number IN (
            SELECT number FROM outbox WHERE channel = ? AND state = ? AND kind = ? ORDER BY number DESC
            LIMIT -1 OFFSET ?
        )
    """
    connection.execute(sql, (item.channel, item.state.value, item.kind.value, kept_max))


def _set(connection: apsw.Connection, item: OutboxItem) -> None:
    sql = """
        UPDATE outbox SET text = ?, buttons = ?, files = ?, state = ?, attempts = ?, part = ?, not_before_ms = ?,
            error = ?, message_ids = ?, updated_at_ms = ?
        WHERE id = ?
    """
    connection.execute(sql, (item.text, *_changing(item), item.id))


def _changing(item: OutboxItem) -> tuple[str | int | None, ...]:
    buttons, files, ids = (json_text(each) for each in (item.buttons, item.files, item.message_ids))
    counts = (item.state.value, item.attempts, item.part, item.not_before_ms)
    return (buttons, files, *counts, item.error, ids, item.updated_at_ms)
