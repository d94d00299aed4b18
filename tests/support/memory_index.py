"""Checks everything that the index of remembered items must agree with, more than the verifier can in a bounded time."""

import apsw

from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.memory_index import find_misindexed
from palyra.adapters.store.sqlite.memory_vectors import NUMBER_BYTES

_BAD_PARTITIONS = """
    SELECT partitions.id FROM memory_partitions AS partitions
    WHERE items_count <> (SELECT count(*) FROM memory_entries WHERE partition = partitions.id)
    UNION SELECT entries.partition FROM memory_entries AS entries
        JOIN memory_items AS items ON items.number = entries.number
        LEFT JOIN memory_partitions AS partitions ON partitions.id = entries.partition
        WHERE (items.owner, items.scope, items.scope_id, items.kind, items.trust)
            IS NOT (partitions.owner, partitions.scope, partitions.scope_id, partitions.kind, partitions.trust)
"""
_BAD_VECTORS = """
    SELECT 'memory vector ' || number || ' has no entry' FROM memory_vectors
        WHERE number NOT IN (SELECT number FROM memory_entries)
    UNION ALL SELECT 'memory vector ' || vectors.number || ' is in a block of another partition or version'
        FROM memory_vectors AS vectors JOIN memory_entries AS entries ON entries.number = vectors.number
        LEFT JOIN memory_blocks AS blocks ON blocks.id = vectors.block
        WHERE (blocks.partition, blocks.version) IS NOT (entries.partition, entries.vector_version)
    UNION ALL SELECT 'memory entry ' || number || ' has lost its vector' FROM memory_entries
        WHERE vector_version <> '' AND number NOT IN (SELECT number FROM memory_vectors)
"""


def check_index(connection: apsw.Connection) -> list[str]:
    """Returns what is wrong with the index, in words; nothing if it agrees with the items.

    A missing vector is no fault, nor one of another version or width: such items are found by their words until they
    have a new one.
    """
    faults = [
        f"memory item number {number} is {'indexed, but not active' if is_stray else 'not in the index'}"
        for number, is_stray in find_misindexed(connection)
    ]
    faults += [
        f"memory partition {found} does not agree with its items" for (found,) in fetch(connection, _BAD_PARTITIONS)
    ]
    return faults + _find_bad_vectors(connection)


def _find_bad_vectors(connection: apsw.Connection) -> list[str]:
    """Returns what is wrong with vectors and blocks, in words."""
    faults = [str(fault) for (fault,) in fetch(connection, _BAD_VECTORS)]
    kept: dict[int, set[int]] = {}
    for number, block in fetch(connection, "SELECT number, block FROM memory_vectors"):
        kept.setdefault(block, set()).add(number)
    for block, count, numbers in fetch(connection, "SELECT id, items_count, numbers FROM memory_blocks"):
        held = _numbers(numbers)
        if len(held) != count or set(held) != kept.get(block, set()):
            faults.append(f"memory block {block} does not hold the vectors that belong to it")
    return faults


def _numbers(packed: bytes) -> list[int]:
    steps = range(0, len(packed), NUMBER_BYTES)
    return [int.from_bytes(packed[at : at + NUMBER_BYTES], "little", signed=True) for at in steps]
