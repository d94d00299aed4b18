"""How a record names the events that were erased.

Does not own: overwriting bytes (adapters.store), checking erasures (verification).
"""

from collections.abc import Iterable

from palyra.core.events.system import SeqRange


def as_ranges(seqs: Iterable[int]) -> tuple[SeqRange, ...]:
    """Returns the fewest ranges that hold exactly these seqs."""
    ranges: list[SeqRange] = []
    for seq in sorted(set(seqs)):
        if ranges and ranges[-1].last == seq - 1:
            ranges[-1] = SeqRange(first=ranges[-1].first, last=seq)
        else:
            ranges.append(SeqRange(first=seq, last=seq))
    return tuple(ranges)
