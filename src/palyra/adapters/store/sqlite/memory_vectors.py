"""Vectors of remembered items: kept in full, and as blocks of signs that a search reads whole.

Does not own: making them (ports.embedder), scores (core.memory.scores).
A block holds the signs of up to BLOCK_ITEMS_MAX vectors of one partition and one version: 32 bytes for 256 parts. The
distance of signs finds candidates among 100,000 items in a few milliseconds; full vectors then measure the best.
Invariant: a vector is in exactly one block, and only vectors of one version are compared.
numpy is imported at first use: loading it would double the time that a start takes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw

from palyra.adapters.store.sqlite.connection import fetch, json_text

if TYPE_CHECKING:
    import numpy

BLOCK_ITEMS_MAX = 1_024  # Adding one vector writes one block anew: at most 40 KiB.
NUMBER_BYTES = 8
FARTHEST = 2**15 - 1  # More signs than a vector has parts.

_FREE_BLOCK = f"""
    SELECT id, numbers, signs FROM memory_blocks
    WHERE partition = ? AND version = ? AND items_count < {BLOCK_ITEMS_MAX} ORDER BY items_count DESC LIMIT 1
"""  # noqa: S608 - our number
_BLOCKS = """
    SELECT numbers, signs FROM memory_blocks
    WHERE version = ? AND partition IN (SELECT value FROM json_each(?))
"""
_EXPIRED = """
    SELECT number FROM memory_entries
    WHERE expires_at_ms <= ? AND partition IN (SELECT value FROM json_each(?))
"""


def store_vectors(connection: apsw.Connection, version: str, vectors: Sequence[tuple[int, bytes]]) -> None:
    """Keeps vectors (little-endian 32-bit floats) by item number. Items that are gone meanwhile are left out."""
    import numpy

    given = dict(vectors)
    sql = "SELECT number, partition FROM memory_entries WHERE number IN (SELECT value FROM json_each(?))"
    homes: dict[int, list[int]] = {}
    for number, partition in fetch(connection, sql, (json_text(list(given)),)):
        homes.setdefault(partition, []).append(number)
    drop_vectors(connection, list(given))
    for partition, numbers in homes.items():
        full = numpy.frombuffer(b"".join(given[number] for number in numbers), dtype="<f4").reshape(len(numbers), -1)
        signs = numpy.packbits(full > 0, axis=1)
        blocks = _fill_blocks(connection, (partition, version), numbers, [row.tobytes() for row in signs])
        halves = [row.tobytes() for row in full.astype("<f2")]
        rows = list(zip(numbers, blocks, halves, strict=True))
        connection.executemany("INSERT INTO memory_vectors (number, block, vector) VALUES (?, ?, ?)", rows)
        keys = [(version, number) for number in numbers]
        connection.executemany("UPDATE memory_entries SET vector_version = ? WHERE number = ?", keys)


def drop_vectors(connection: apsw.Connection, numbers: Sequence[int]) -> None:
    """Removes the vectors of items, if they have some, from the table and from their blocks."""
    sql = "SELECT number, block FROM memory_vectors WHERE number IN (SELECT value FROM json_each(?))"
    leaving: dict[int, set[int]] = {}
    for number, block in fetch(connection, sql, (json_text(list(numbers)),)):
        leaving.setdefault(block, set()).add(number)
    for block, gone in leaving.items():
        _thin_block(connection, block, gone)
        keys = [(number,) for number in gone]
        connection.executemany("DELETE FROM memory_vectors WHERE number = ?", keys)
        connection.executemany("UPDATE memory_entries SET vector_version = '' WHERE number = ?", keys)


def nearest_signs(
    connection: apsw.Connection, asked: tuple[str, bytes], partitions: Sequence[int], at_ms: int, count: int
) -> list[int]:
    """Returns the numbers of items whose signs are nearest to those of the asked vector, (version, floats)."""
    import numpy

    version, vector = asked
    signs = numpy.packbits(numpy.frombuffer(vector, dtype="<f4") > 0)
    wanted = json_text(list(partitions))
    # A block of another width belongs to a model that changed without a new version: it cannot be compared.
    found = [row for row in fetch(connection, _BLOCKS, (version, wanted)) if _width(*row) == len(signs)]
    if not found:
        return []
    numbers = numpy.frombuffer(b"".join(row[0] for row in found), dtype="<i8")
    rows = numpy.frombuffer(b"".join(row[1] for row in found), dtype=numpy.uint8).reshape(-1, len(signs))
    differing = _differing(rows, signs)
    expired = [number for (number,) in fetch(connection, _EXPIRED, (at_ms, wanted))]
    if expired:
        differing[numpy.isin(numbers, numpy.array(expired, dtype="<i8"))] = FARTHEST
        count = min(count, len(numbers) - len(expired))
    if count <= 0:
        return []
    if count >= len(numbers):
        return [int(number) for number in numbers]
    return [int(number) for number in numbers[numpy.argpartition(differing, count - 1)[:count]]]


def measure_vectors(connection: apsw.Connection, asked: tuple[str, bytes], numbers: Sequence[int]) -> dict[int, float]:
    """Returns the cosine of each item's vector with the asked one; items without a vector of that version have none."""
    import numpy

    version, vector = asked
    sql = """
        SELECT entries.number, vectors.vector FROM json_each(?) AS wanted
        CROSS JOIN memory_entries AS entries ON entries.number = wanted.value
        CROSS JOIN memory_vectors AS vectors ON vectors.number = entries.number
        WHERE entries.vector_version = ?
    """
    width_bytes = len(vector) // 2
    found = [row for row in fetch(connection, sql, (json_text(list(numbers)), version)) if len(row[1]) == width_bytes]
    if not found:
        return {}
    matrix = numpy.frombuffer(b"".join(row[1] for row in found), dtype="<f2").reshape(len(found), -1)
    cosines = matrix.astype("<f4") @ numpy.frombuffer(vector, dtype="<f4")
    return {number: float(cosine) for (number, _), cosine in zip(found, cosines, strict=True)}


def _fill_blocks(
    connection: apsw.Connection, home: tuple[int, str], numbers: Sequence[int], signs: Sequence[bytes]
) -> list[int]:
    """Adds signs to blocks of a partition and version that have room, then to new ones. Returns the block of each."""
    placed: list[int] = []
    while len(placed) < len(numbers):
        start = len(placed)
        block, held_numbers, held_signs = _block_with_room(connection, home, len(signs[start]))
        room = BLOCK_ITEMS_MAX - len(held_numbers) // NUMBER_BYTES
        added = numbers[start : start + room]
        held_numbers += b"".join(number.to_bytes(NUMBER_BYTES, "little", signed=True) for number in added)
        held_signs += b"".join(signs[start : start + room])
        sql = "UPDATE memory_blocks SET items_count = ?, numbers = ?, signs = ? WHERE id = ?"
        connection.execute(sql, (len(held_numbers) // NUMBER_BYTES, held_numbers, held_signs, block))
        placed += [block] * len(added)
    return placed


def _block_with_room(connection: apsw.Connection, home: tuple[int, str], width: int) -> tuple[int, bytes, bytes]:
    found = [row for row in fetch(connection, _FREE_BLOCK, home) if _width(row[1], row[2]) == width]
    if found:
        return found[0][0], bytes(found[0][1]), bytes(found[0][2])
    sql = "INSERT INTO memory_blocks (partition, version, items_count, numbers, signs) VALUES (?, ?, 0, x'', x'')"
    connection.execute(sql, home)
    return connection.last_insert_rowid(), b"", b""


def _thin_block(connection: apsw.Connection, block: int, gone: set[int]) -> None:
    rows = fetch(connection, "SELECT numbers, signs FROM memory_blocks WHERE id = ?", (block,))
    if not rows:
        return
    numbers, signs = rows[0]
    width = _width(numbers, signs)
    stays = [at for at, number in enumerate(_numbers(numbers)) if number not in gone]
    if not stays:
        connection.execute("DELETE FROM memory_blocks WHERE id = ?", (block,))
        return
    kept_numbers = b"".join(numbers[at * NUMBER_BYTES : (at + 1) * NUMBER_BYTES] for at in stays)
    kept_signs = b"".join(signs[at * width : (at + 1) * width] for at in stays)
    sql = "UPDATE memory_blocks SET items_count = ?, numbers = ?, signs = ? WHERE id = ?"
    connection.execute(sql, (len(stays), kept_numbers, kept_signs, block))


def _width(numbers: bytes, signs: bytes) -> int:
    return len(signs) * NUMBER_BYTES // max(1, len(numbers))


def _numbers(packed: bytes) -> list[int]:
    steps = range(0, len(packed), NUMBER_BYTES)
    return [int.from_bytes(packed[at : at + NUMBER_BYTES], "little", signed=True) for at in steps]


def _differing(rows: "numpy.ndarray[Any, Any]", signs: "numpy.ndarray[Any, Any]") -> "numpy.ndarray[Any, Any]":
    """Returns how many signs of each row differ; eight bytes are compared at once where the width allows."""
    import numpy

    if len(signs) % NUMBER_BYTES == 0:
        rows, signs = rows.view(numpy.uint64), signs.view(numpy.uint64)
    # Adding columns is several times as fast as summing short rows.
    counts = numpy.bitwise_count(rows ^ signs)
    total: numpy.ndarray[Any, Any] = counts[:, 0].astype(numpy.int16)
    for column in range(1, counts.shape[1]):
        total += counts[:, column]
    return total
