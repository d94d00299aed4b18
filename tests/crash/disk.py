"""A simulated disk. Owns: what survives a power loss, and which operation fails. Not: SQLite's calls (faulty_vfs).

Each file has live bytes (what a running process reads) and durable bytes (what is on the platter). A write or truncation
waits in `pending` until the file is synced. When the power goes, every pending change survives or not, sector by sector,
by a seeded choice: a disk may reorder and tear, but it never loses what a successful sync covered. Creating and deleting
names waits for a sync of the directory in the same way. A failed sync leaves its changes live but never retries them,
as Linux does: part of them is durable, the rest is lost unless it is written again.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

SECTOR_BYTES = 512  # The unit a disk writes whole.
FOREVER = 1 << 62


class Effect(Enum):
    """What happens at a faulty operation."""

    DIE = "die"
    IO_ERROR = "io_error"
    FULL = "full"
    TEAR = "tear"  # A write stops half way and then reports an error; other operations just fail.


@dataclass(frozen=True, slots=True)
class Fault:
    """Operations number `first` to `last` (counted from 1) meet this effect."""

    effect: Effect
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    size: int


Change = Write | Truncate
Image = Mapping[str, bytes]  # Files by path, as a process finds them.


class DiskError(Exception):
    """The operation failed; what it left behind is up to its effect."""

    def __init__(self, effect: Effect) -> None:
        super().__init__(effect.value)
        self.effect = effect


@dataclass(slots=True)
class File:
    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        _apply(self.live, change)
        self.pending.append(change)

    def settle(self) -> None:
        """A successful sync: every change so far is durable."""
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def settle_partly(self, chance: random.Random) -> None:
        """A failed sync or a power loss: any subset of the pending sectors is durable, the others never will be."""
        keep = chance.choice((0.0, 1.0, chance.random(), chance.random()))
        for change in self.pending:
            for part in _parts(change):
                if chance.random() < keep:
                    _apply(self.durable, part)
        self.pending.clear()


@dataclass(frozen=True, slots=True)
class Naming:
    """A name was given to a file, or taken away (None)."""

    name: str
    file: File | None


class Disk:
    """Files by path. Mutating operations are counted; the faults say which of them go wrong."""

    def __init__(
        self,
        chance: random.Random,
        faults: Iterable[Fault] = (),
        read_faults: Iterable[Fault] = (),
        image: Image | None = None,
        *,
        is_lying: bool = False,
    ) -> None:
        """`image` is what another disk left; a lying disk reports every sync as done and does none."""
        self.operation_count = 0
        self.read_count = 0
        self.is_dead = False
        self.was_broken_at_end = False  # An outage may be over a moment after the process closed its files.
        self.fault_count = 0
        self._chance = chance
        self._faults = tuple(faults)
        self._read_faults = tuple(read_faults)
        self._is_lying = is_lying
        self._names = {name: File(bytearray(content), bytearray(content)) for name, content in (image or {}).items()}
        self._durable_names = dict(self._names)
        self._pending_names: list[Naming] = []

    @property
    def is_broken(self) -> bool:
        """Whether the next write would fail too, so that nothing can be put right any more."""
        return self.is_dead or _effect_at(self.operation_count + 1, self._faults) is not None

    @property
    def is_over_its_faults(self) -> bool:
        """Whether it met a fault, works now, and no death is still to come."""
        dies_later = any(fault.effect is Effect.DIE and fault.first > self.operation_count for fault in self._faults)
        return self.fault_count > 0 and not self.is_broken and not dies_later

    def has(self, name: str) -> bool:
        self._require_power()
        return name in self._names

    def open(self, name: str) -> File:
        self._require_power()
        if name not in self._names:
            self._rename(Naming(name, File()))
        return self._names[name]

    def read(self, file: File, amount: int, offset: int) -> bytes:
        self._require_power()
        self.read_count += 1
        effect = _effect_at(self.read_count, self._read_faults)
        if effect is not None:
            self.fault_count += 1
            raise DiskError(effect)
        return bytes(file.live[offset : offset + amount])

    def write(self, file: File, offset: int, content: bytes) -> None:
        effect = self._next_effect()
        if effect in (None, Effect.DIE):
            file.change(Write(offset, content))
        if effect is Effect.TEAR:
            file.change(Write(offset, content[: len(content) // 2]))
        self._suffer(effect)

    def truncate(self, file: File, size: int) -> None:
        effect = self._next_effect()
        if effect in (None, Effect.DIE):
            file.change(Truncate(size))
        self._suffer(effect)

    def sync(self, file: File, is_directory_too: bool) -> None:
        effect = self._next_effect()
        if effect is None and not self._is_lying:
            file.settle()
            if is_directory_too:
                self._settle_names()
        if effect not in (None, Effect.DIE):
            file.settle_partly(self._chance)
        self._suffer(effect)

    def delete(self, name: str, is_synced: bool) -> None:
        effect = self._next_effect()
        if effect in (None, Effect.DIE):
            self._rename(Naming(name, None))
        if effect is None and is_synced and not self._is_lying:
            self._settle_names()
        self._suffer(effect)

    def repair(self) -> None:
        """No faults from here on."""
        self._faults = ()
        self._read_faults = ()

    def cut_power(self) -> None:
        """From here on nothing reaches the disk; what was pending survives or not, now and for good."""
        self.is_dead = True
        for naming in self._pending_names:
            if self._chance.random() < 0.5:
                _name(self._durable_names, naming)
        for file in self._durable_names.values():
            file.settle_partly(self._chance)

    def image(self) -> Image:
        """The files as the next process finds them: after a power loss the survivors, else all that was written."""
        if self.is_dead:
            return {name: bytes(file.durable) for name, file in self._durable_names.items()}
        return {name: bytes(file.live) for name, file in self._names.items()}

    def _next_effect(self) -> Effect | None:
        self._require_power()
        self.operation_count += 1
        return _effect_at(self.operation_count, self._faults)

    def _suffer(self, effect: Effect | None) -> None:
        if effect is None:
            return
        self.fault_count += 1
        if effect is Effect.DIE:
            self.cut_power()
        raise DiskError(effect)

    def _require_power(self) -> None:
        if self.is_dead:
            raise DiskError(Effect.DIE)

    def _rename(self, naming: Naming) -> None:
        _name(self._names, naming)
        self._pending_names.append(naming)

    def _settle_names(self) -> None:
        self._durable_names = dict(self._names)
        self._pending_names.clear()


def materialize(image: Image, directory: Path) -> None:
    """Writes an image into a real directory, to be opened with the ordinary VFS."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in image.items():
        (directory / Path(name).name).write_bytes(content)


def _effect_at(number: int, faults: tuple[Fault, ...]) -> Effect | None:
    return next((fault.effect for fault in faults if fault.first <= number <= fault.last), None)


def _name(names: dict[str, File], naming: Naming) -> None:
    if naming.file is None:
        names.pop(naming.name, None)
    else:
        names[naming.name] = naming.file


def _apply(content: bytearray, change: Change) -> None:
    match change:
        case Write(offset=offset, content=written):
            _resize(content, max(len(content), offset + len(written)))
            content[offset : offset + len(written)] = written
        case Truncate(size=size):
            _resize(content, size)


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _parts(change: Change) -> list[Change]:
    """A write as pieces that each lie in one sector; a truncation is one piece."""
    if isinstance(change, Truncate):
        return [change]
    parts: list[Change] = []
    start = change.offset
    end = change.offset + len(change.content)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        parts.append(Write(start, change.content[start - change.offset : stop - change.offset]))
        start = stop
    return parts
