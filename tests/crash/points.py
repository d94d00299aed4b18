"""The points of a campaign. Owns: which fault happens where, from a seed and a number. Not: running one (trial).

The first lap cuts the power at every write, sync, truncation and deletion of one load, the second lap makes each of
them fail, one after the other; the points after that are chosen by chance, with other stories.
"""

import random
from dataclasses import dataclass
from enum import Enum

from tests.crash.disk import FOREVER, Effect, Fault

OUTAGE_OPERATIONS_MAX = 12
FLAKY_OPERATIONS = 80
FLAKY_SHARE = 0.2
LATER_DEATH_OPERATIONS_MAX = 80
RECOVERY_OPERATIONS_MAX = 60
STORIES_COUNT = 16  # Stories the points after the first two laps are spread over.


class Kind(Enum):
    POWER_LOSS = "power loss"
    POWER_LOSS_TWICE = "power loss, again in recovery"
    ERROR = "one I/O error"
    FULL = "disk full once"
    TORN_WRITE = "one torn write"
    OUTAGE = "outage that ends"
    FULL_FOR_GOOD = "disk full for good"
    ERROR_THEN_POWER_LOSS = "I/O error, then power loss"
    READ_ERROR = "one read error"
    FLAKY = "errors now and then"


ERRORS = (Kind.ERROR, Kind.TORN_WRITE, Kind.FULL, Kind.OUTAGE, Kind.FULL_FOR_GOOD)


@dataclass(frozen=True, slots=True)
class Point:
    """`operation` counts the reads for a read error, everything else counts the writes, syncs, truncations, deletions."""

    number: int
    kind: Kind
    story_seed: int
    operation: int
    chance_seed: int

    def __str__(self) -> str:
        return f"point {self.number} ({self.kind.value} at operation {self.operation} of story {self.story_seed})"


@dataclass(frozen=True, slots=True)
class Length:
    """How long a load is when nothing goes wrong."""

    operation_count: int
    read_count: int


def first_story_seed(seed: int) -> int:
    return seed * 1000


def story_seed_of(number: int, seed: int, first: Length) -> int:
    """Which story a point is about: the first two laps share one."""
    if number <= 2 * first.operation_count:
        return first_story_seed(seed)
    return first_story_seed(seed) + 1 + number % STORIES_COUNT


def choose(number: int, seed: int, first: Length, own: Length) -> Point:
    """Point `number` (from 1). `first` is the length of the first story, `own` that of the point's own story."""
    story_seed = story_seed_of(number, seed, first)
    chance = random.Random(f"{seed}/{number}")
    chance_seed = chance.getrandbits(32)
    lap, place = divmod(number - 1, first.operation_count)
    if lap == 0:
        return Point(number, Kind.POWER_LOSS, story_seed, place + 1, chance_seed)
    if lap == 1:
        return Point(number, ERRORS[place % len(ERRORS)], story_seed, place + 1, chance_seed)
    kind = chance.choice(tuple(Kind))
    length = own.read_count if kind is Kind.READ_ERROR else own.operation_count
    return Point(number, kind, story_seed, chance.randint(1, length), chance_seed)


def faults_of(point: Point) -> tuple[Fault, ...]:
    """The faults of the writing operations."""
    chance = random.Random(point.chance_seed)
    at = point.operation
    match point.kind:
        case Kind.POWER_LOSS | Kind.POWER_LOSS_TWICE:
            return (Fault(Effect.DIE, at, at),)
        case Kind.ERROR:
            return (Fault(Effect.IO_ERROR, at, at),)
        case Kind.FULL:
            return (Fault(Effect.FULL, at, at),)
        case Kind.TORN_WRITE:
            return (Fault(Effect.TEAR, at, at),)
        case Kind.OUTAGE:
            return (Fault(Effect.IO_ERROR, at, at + chance.randint(1, OUTAGE_OPERATIONS_MAX)),)
        case Kind.FULL_FOR_GOOD:
            return (Fault(Effect.FULL, at, FOREVER),)
        case Kind.ERROR_THEN_POWER_LOSS:
            death = at + chance.randint(1, LATER_DEATH_OPERATIONS_MAX)
            return (Fault(Effect.IO_ERROR, at, at), Fault(Effect.DIE, death, death))
        case Kind.FLAKY:
            return _now_and_then(at, chance, (Effect.IO_ERROR, Effect.TEAR, Effect.FULL))
        case Kind.READ_ERROR:
            return ()


def read_faults_of(point: Point) -> tuple[Fault, ...]:
    match point.kind:
        case Kind.READ_ERROR:
            return (Fault(Effect.IO_ERROR, point.operation, point.operation),)
        case Kind.FLAKY:
            # There are about half as many reads as writes, so this is about the same moment.
            return _now_and_then(point.operation // 2, random.Random(~point.chance_seed), (Effect.IO_ERROR,))
        case _:
            return ()


def recovery_faults_of(point: Point) -> tuple[Fault, ...]:
    """The second death of a power loss that comes twice."""
    at = random.Random(point.chance_seed).randint(1, RECOVERY_OPERATIONS_MAX)
    return (Fault(Effect.DIE, at, at),)


def _now_and_then(first: int, chance: random.Random, effects: tuple[Effect, ...]) -> tuple[Fault, ...]:
    numbers = [number for number in range(first, first + FLAKY_OPERATIONS) if chance.random() < FLAKY_SHARE]
    return tuple(Fault(chance.choice(effects), number, number) for number in [first, *numbers])
