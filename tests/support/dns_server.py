"""A DNS server on loopback with scripted answers, and a resolver that asks only it."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import cast

A, CNAME, AAAA = 1, 5, 28
ALIAS = "alias:"  # Prefix of an answer that is another name.
_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!2HIH")


class DnsServer(asyncio.DatagramProtocol):
    """`zone[name]` lists the answers to successive questions for a name; the last one stays.

    A name in `silent` gets none.
    """

    def __init__(self) -> None:
        self.zone: dict[str, list[list[str]]] = {}
        self.silent: set[str] = set()
        self.asked: list[tuple[str, int]] = []
        self.port = 0
        self._count = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = _read_name(data, _HEADER.size)
        (kind,) = struct.unpack_from("!H", data, end)
        self.asked.append((name, kind))
        if name in self.silent or self._transport is None:
            return
        records = b"".join(self._records(name, kind))
        count = self._count
        head = _HEADER.pack(struct.unpack_from("!H", data)[0], 0x8180 if count else 0x8183, 1, count, 0, 0)
        self._transport.sendto(head + data[_HEADER.size : end + 4] + records, addr)

    async def resolve(self, name: str) -> Sequence[str]:
        """Asks for both kinds of addresses, as a system's resolver does."""
        answers = [address for kind in (A, AAAA) for address in await _ask(self.port, name, kind)]
        if not answers:
            raise OSError("no such name")
        return answers

    def _records(self, name: str, kind: int) -> list[bytes]:
        script = self.zone.get(name, [[]])
        nth = sum(1 for asked in self.asked if asked == (name, kind)) - 1
        answers = script[min(nth, len(script) - 1)]
        records: list[bytes] = []
        for answer in answers:
            owner = _write_name(name)
            if answer.startswith(ALIAS):
                name = answer.removeprefix(ALIAS)
                records.append(_record(owner, CNAME, _write_name(name)))
            elif (":" in answer) == (kind == AAAA):
                records.append(_record(owner, kind, ip_address(answer).packed))
        self._count = len(records)
        return records


@asynccontextmanager
async def dns_server() -> AsyncIterator[DnsServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(DnsServer, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()


class _Question(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.answer.done():
            self.answer.set_result(data)


async def _ask(port: int, name: str, kind: int) -> list[str]:
    loop = asyncio.get_running_loop()
    transport, question = await loop.create_datagram_endpoint(_Question, remote_addr=("127.0.0.1", port))
    try:
        transport.sendto(_HEADER.pack(1, 0x0100, 1, 0, 0, 0) + _write_name(name) + struct.pack("!2H", kind, 1))
        return _read_addresses(await question.answer)
    finally:
        transport.close()


def _read_addresses(message: bytes) -> list[str]:
    count = _HEADER.unpack_from(message)[3]
    _, position = _read_name(message, _HEADER.size)
    position += 4
    found: list[str] = []
    for _ in range(count):
        _, position = _read_name(message, position)
        kind, _, _, size = _RECORD.unpack_from(message, position)
        position += _RECORD.size
        if kind in (A, AAAA):
            found.append(str(ip_address(message[position : position + size])))
        position += size
    return found


def _record(owner: bytes, kind: int, body: bytes) -> bytes:
    return owner + _RECORD.pack(kind, 1, 0, len(body)) + body


def _write_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\x00"


def _read_name(message: bytes, position: int) -> tuple[str, int]:
    labels: list[str] = []
    while size := message[position]:
        labels.append(message[position + 1 : position + 1 + size].decode())
        position += size + 1
    return ".".join(labels), position + 1
