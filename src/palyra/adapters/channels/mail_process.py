"""Reads a mail in a process of its own, because anybody may send one: whatever reading it takes ends there.

Owns: starting that process, its limits, what goes into it and comes out of it, and which mails are too large.
Does not own: reading (mail_reader).
Invariants: a mail that takes too much time or memory becomes an unread message, and the daemon answers meanwhile. A
process that somebody else ended says nothing about its mail, which is then read again.
"""

import asyncio
import contextlib
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

import msgspec

from palyra.adapters.channels.mail_reader import FetchedMail, MailReader, ReadMail, ids_of
from palyra.core.channels.unread import UnreadMessage, read_or_mark, unread
from palyra.core.errors import Invalid, Unavailable

MAIL_BYTES_MAX = 10 * 1024 * 1024
IN_PROCESS_BYTES_MAX = 8 * 1024  # Parsers that take the square of this take a fraction of a second.
CPU_S = 5  # A mail of 10 MiB takes a tenth of it. Those behind a flood wait for each.
READ_S = 60.0  # More than the process's own limit of CPU time takes on a busy machine.
MEMORY_BYTES_MAX = 768 * 1024 * 1024
LIMITS = (
    (resource.RLIMIT_AS, MEMORY_BYTES_MAX),
    (resource.RLIMIT_CPU, CPU_S),
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_FSIZE, 0),
)
_CHILD = "palyra.adapters.channels.mail_process"
_ENDED_BY_OTHERS = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


class MailTask(msgspec.Struct, frozen=True, kw_only=True):
    reader: MailReader
    mail: FetchedMail


class MailReply(msgspec.Struct, frozen=True, kw_only=True):
    """One of both, or neither: then a program sent the mail, or we did."""

    read: ReadMail | None = None
    unread: UnreadMessage | None = None


async def read_apart(reader: MailReader, mail: FetchedMail) -> ReadMail | UnreadMessage | None:
    """Reads a mail. Raises only Unavailable."""
    if len(mail.raw) > MAIL_BYTES_MAX:
        return await _refused(reader, mail, f"it has more than {MAIL_BYTES_MAX // 1024**2} MiB")
    if len(mail.raw) <= IN_PROCESS_BYTES_MAX:
        return await asyncio.to_thread(_read, reader, mail)
    process = await _start()
    try:
        async with asyncio.timeout(READ_S):
            said, _ = await process.communicate(msgspec.msgpack.encode(MailTask(reader=reader, mail=mail)))
    except TimeoutError as cause:
        raise Unavailable("mail_reader_slow", "reading a mail takes too long; it is tried again") from cause
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
    if process.returncode in _ENDED_BY_OTHERS:
        raise Unavailable("mail_reader_ended", "the process that read a mail was ended; it is tried again")
    try:
        reply = msgspec.msgpack.decode(said, type=MailReply)
    except msgspec.DecodeError:
        return await _refused(reader, mail, "reading it takes too much time or memory")
    return reply.read or reply.unread


def main() -> None:
    """Reads the one mail on its input. The process limits itself before it reads a byte."""
    for kind, limit in LIMITS:
        resource.setrlimit(kind, (limit, limit))
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=MailTask)
    found = _read(task.reader, task.mail)
    reply = MailReply(unread=found) if isinstance(found, UnreadMessage) else MailReply(read=found)
    sys.stdout.buffer.write(msgspec.msgpack.encode(reply))
    sys.stdout.buffer.flush()


def _read(reader: MailReader, mail: FetchedMail) -> ReadMail | UnreadMessage | None:
    return read_or_mark(reader.channel, ids_of(mail), lambda: reader.read(mail))


async def _refused(reader: MailReader, mail: FetchedMail, why: str) -> UnreadMessage:
    ids = await asyncio.to_thread(ids_of, mail)
    return unread(reader.channel, ids, Invalid("mail_too_costly", why))


async def _start() -> Process:
    """Starts the process. It gets no environment, and no signal that a terminal sends to the daemon."""
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", _CHILD),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as cause:
        raise Unavailable("mail_reader_failed", f"the reader of mails cannot start: {cause.strerror}") from cause


if __name__ == "__main__":
    main()
