"""Erasure. Owns: how what is erased is named on record. Not: overwriting bytes (store), nor checking it (verification)."""

from collections.abc import Iterable

from palyra.core.events.system import SeqRange


def as_ranges(seqs: Iterable[int]) -> tuple[SeqRange, ...]:
    """The fewest ranges that hold exactly these seqs."""
    ranges: list[SeqRange] = []
    for seq in sorted(set(seqs)):
        if ranges and ranges[-1].last == seq - 1:
            ranges[-1] = SeqRange(first=ranges[-1].first, last=seq)
        else:
            ranges.append(SeqRange(first=seq, last=seq))
    return tuple(ranges)
