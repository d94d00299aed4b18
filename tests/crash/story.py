"""The scripted story of a load. Owns: a seeded choice of what to try next. Not: trying it (load), nor judging it (audit).

It goes in waves: the steps of one wave are tried at once and touch different tapes (rivals aside), so what each should
come to is known. A step that was acknowledged moves the story on; one that was not leaves it where it was.
"""

import random
from dataclasses import dataclass, field, replace

import msgspec

from palyra.core.events import Draft
from palyra.core.events.model import Finish, ModelOutput, Usage
from palyra.core.events.run import MessageAssistant
from palyra.core.ids import ArtifactId, MemoryId, NodeId, RunId, StreamId, is_system_stream, make_ulid
from palyra.core.writes import (
    ClearHeartbeat,
    EraseSecrets,
    Fence,
    ForgetMemory,
    LinkArtifact,
    PutMemory,
    ReleaseLease,
    SealSecret,
    SetHeartbeat,
    TakeLease,
    Write,
)
from palyra.ports.journal import Append, Erasure
from tests.crash.ledger import EPOCH_MS, Ledger
from tests.support.journals import (
    ALICE,
    draft,
    message_user,
    run_accepted,
    run_done,
    run_started,
    session_created,
    usage_recorded,
)
from tests.support.memory import item_of

NODE = NodeId("node-under-test")
LEASE_MS = 3_600_000
_SHARED_LEASE = "lease-"  # Leases that later commits may renew, release or use as a fence.
TEXT_CHARS_MAX = 600  # Of at most three bytes: see steady_groups, which wants events below 2 KiB.
WAVES_A_HOUSEKEEPING = 3  # Every third wave is an erasure or, in turn, a checkpoint.
TAPES_MAX = 6  # More would spread the load so thin that no run ends.


@dataclass(frozen=True, slots=True)
class Tape:
    """Where a session's tape stands. Without `is_own` its runs belong to an earlier story and are left alone."""

    stream: StreamId
    seq: int
    run_id: RunId | None = None
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to try. A doomed one must be refused; a contested one may be, since a rival wants the same place."""

    number: int
    appends: tuple[Append, ...]
    writes: tuple[Write, ...]
    fence: Fence | None
    after: tuple[Tape, ...]
    is_doomed: bool = False
    is_contested: bool = False


@dataclass(frozen=True, slots=True)
class Erase:
    number: int
    erasure: Erasure
    seqs: tuple[int, ...]  # Those it covers, also when it names the whole tape.


@dataclass(frozen=True, slots=True)
class Checkpoint:
    number: int


Step = Commit | Erase | Checkpoint


@dataclass(slots=True)
class Story:
    """One seeded story. `first_number` keeps the numbers of two stories on one journal apart."""

    chance: random.Random
    first_number: int = 1
    tapes: dict[StreamId, Tape] = field(default_factory=dict)
    lease_tokens: dict[str, int] = field(default_factory=dict)
    memory_ids: list[MemoryId] = field(default_factory=list)
    text_chars_max: int = TEXT_CHARS_MAX
    steps_count: int = 0
    waves_count: int = 0

    def next_wave(self) -> tuple[Step, ...]:
        self.waves_count += 1
        if self.waves_count % WAVES_A_HOUSEKEEPING == 0 and self.tapes:
            return (self._housekeeping(),)
        free = self.chance.sample(sorted(self.tapes), len(self.tapes))
        wave: list[Step] = []
        for _ in range(self.chance.randint(1, 5)):
            wave.append(self._commit(free))
        if free and self.chance.random() < 0.4:
            wave.extend(self._rivals(free.pop()))
        if free and self.chance.random() < 0.5:
            wave.append(self._doomed(free.pop()))
        return tuple(wave)

    def move_on(self, step: Step) -> None:
        """The step was acknowledged."""
        match step:
            case Commit(after=after, writes=writes):
                self.tapes.update({tape.stream: tape for tape in after})
                for write in writes:
                    self._move_lease(write)
                    self.memory_ids += [item.id for item in write.items] if isinstance(write, PutMemory) else []
            case Erase(erasure=erasure) if erasure.seqs is None:
                del self.tapes[erasure.stream]

    def _move_lease(self, write: Write) -> None:
        if isinstance(write, TakeLease) and write.name.startswith(_SHARED_LEASE):
            self.lease_tokens[write.name] = write.expected_token + 1

    def _housekeeping(self) -> Step:
        """An erasure or a checkpoint, by turns; a checkpoint where nothing may be erased."""
        number = self._next_number()
        idle = sorted(tape.stream for tape in self.tapes.values() if tape.run_id is None and tape.is_own)
        if not idle or self.waves_count % (2 * WAVES_A_HOUSEKEEPING) == 0:
            return Checkpoint(number)
        tape = self.tapes[self.chance.choice(idle)]
        every = tuple(range(1, tape.seq + 1))
        # Some, but never the first alone: without its creation a session has no owner and can have no more runs.
        some = tuple(sorted(self.chance.sample(every[1:], tape.seq // 2)))
        seqs = some if some and self.chance.random() < 0.8 else None
        erasure = Erasure(stream=tape.stream, seqs=seqs, reason="forget", actor=ALICE, at_ms=EPOCH_MS + number)
        return Erase(number, erasure, seqs or every)

    def _commit(self, free: list[StreamId]) -> Commit:
        """One to three tapes in one transaction, or only writes."""
        number = self._next_number()
        if self.chance.random() < 0.15:
            return Commit(number, (), self._lone_writes(number), None, ())
        moves = [self._move(number, index, free) for index in range(self.chance.choice((1, 1, 2, 3)))]
        fence, lease_writes = self._leases(number)
        appends = tuple(append for append, _, _ in moves)
        writes = tuple(write for _, writes, _ in moves for write in writes)
        return Commit(number, appends, (*writes, *lease_writes), fence, tuple(after for _, _, after in moves))

    def _rivals(self, stream: StreamId) -> tuple[Step, Step]:
        """Two commits for the same place on one tape: at most one gets it."""
        first, second = (self._chatter_commit(stream) for _ in range(2))
        return replace(first, is_contested=True), replace(second, is_contested=True)

    def _doomed(self, stream: StreamId) -> Commit:
        """A commit whose last part is stale, behind parts and writes that would be fine."""
        commit = self._chatter_commit(stream)
        kind = self.chance.choice(("head", "second head", "fence", "lease"))
        append = commit.appends[0]
        stale = Append(append.stream, max(0, append.expected_seq - 1), append.drafts)
        fresh = self._move(commit.number, 7, [])[0]
        match kind:
            case "head":
                return replace(commit, appends=(stale,), is_doomed=True)
            case "second head":
                return replace(commit, appends=(fresh, stale), is_doomed=True)
            case "fence":
                return replace(commit, fence=Fence("never-taken", 3), is_doomed=True)
            case _:
                late = TakeLease("never-taken", NODE, 9, EPOCH_MS + LEASE_MS)
                return replace(commit, writes=(*commit.writes, late), is_doomed=True)

    def _chatter_commit(self, stream: StreamId) -> Commit:
        number = self._next_number()
        tape = self.tapes[stream]
        append = Append(stream, tape.seq, self._chatter(number))
        writes = (self._link(number, 0, stream),)
        return Commit(number, (append,), writes, None, (replace(tape, seq=tape.seq + len(append.drafts)),))

    def _move(self, number: int, index: int, free: list[StreamId]) -> tuple[Append, tuple[Write, ...], Tape]:
        """The next thing that happens on a free tape, or on a new one."""
        if not free or (len(self.tapes) < TAPES_MAX and self.chance.random() < 0.3):
            tape = Tape(StreamId(self._ulid(number)), 0)
            drafts: tuple[Draft, ...] = (_at(session_created(), number), *self._chatter(number))
            return _moved(tape, drafts, (self._link(number, index, tape.stream),), None)
        tape = self.tapes[free.pop()]
        if not tape.is_own or self.chance.random() < 0.2:
            return _moved(tape, self._chatter(number), (), tape.run_id)
        if tape.run_id is None:
            return self._run_begins(number, tape, RunId(self._ulid(number)))
        if self.chance.random() < 0.6:
            return self._turn(number, index, tape, tape.run_id)
        drafts = (draft(MessageAssistant(text=self._text()), tape.run_id), run_done(tape.run_id))
        ending: tuple[Write, ...] = (ClearHeartbeat(tape.run_id), EraseSecrets(tape.run_id), *self._forgotten())
        return _moved(tape, tuple(_at(made, number) for made in drafts), ending, None)

    def _run_begins(self, number: int, tape: Tape, run_id: RunId) -> tuple[Append, tuple[Write, ...], Tape]:
        drafts = (run_accepted(run_id), message_user(self._text(), run_id), run_started(run_id))
        writes = (
            SetHeartbeat(run_id, NODE, EPOCH_MS + number),
            SealSecret(run_id, f"secret-{number}", self.chance.randbytes(40)),
            self._memory(number, run_id),
        )
        return _moved(tape, tuple(_at(made, number) for made in drafts), writes, run_id)

    def _turn(self, number: int, index: int, tape: Tape, run_id: RunId) -> tuple[Append, tuple[Write, ...], Tape]:
        output = ModelOutput(
            turn=1,
            text=self._text(),
            tool_calls=(),
            finish=Finish.STOP,
            usage=Usage(input_tokens=10, output_tokens=number),
        )
        drafts = (draft(output, run_id), usage_recorded(run_id, self.chance.random()))
        writes = (SetHeartbeat(run_id, NODE, EPOCH_MS + number), self._link(number, index, tape.stream))
        return _moved(tape, tuple(_at(made, number) for made in drafts), (*writes, *self._forgotten()), run_id)

    def _chatter(self, number: int) -> tuple[Draft, ...]:
        return tuple(_at(message_user(self._text()), number) for _ in range(self.chance.randint(1, 3)))

    def _text(self) -> str:
        """Several to a page, or less than one; `text_chars_max` says how long the longest are."""
        length = self.chance.choice((30, 200, 200, 400, self.text_chars_max))
        return self.chance.choice(("é", "x", "日")) * length

    def _leases(self, number: int) -> tuple[Fence | None, tuple[Write, ...]]:
        """Takes a new lease, or uses one up: as a fence, renewed, or released. A used one leaves the story's pool."""
        if not self.lease_tokens or self.chance.random() < 0.3:
            return None, (TakeLease(f"{_SHARED_LEASE}{number}", NODE, 0, EPOCH_MS + LEASE_MS),)
        if self.chance.random() < 0.5:
            return None, ()
        name = self.chance.choice(sorted(self.lease_tokens))
        token = self.lease_tokens.pop(name)
        renewal = TakeLease(name, NODE, token, EPOCH_MS + LEASE_MS + number)
        return self.chance.choice(((Fence(name, token), ()), (None, (renewal,)), (None, (ReleaseLease(name, token),))))

    def _lone_writes(self, number: int) -> tuple[Write, ...]:
        """Writes without events, under names no other commit touches: their presence tells the commit's."""
        return (
            SetHeartbeat(RunId(self._ulid(number)), NODE, EPOCH_MS + number),
            TakeLease(f"lone-{number}", NODE, 0, EPOCH_MS + LEASE_MS),
            SealSecret(RunId(self._ulid(number)), "alone", self.chance.randbytes(5_000)),
        )

    def _memory(self, number: int, run_id: RunId) -> PutMemory:
        """Remembers items of several sizes, each with its entries in the index."""
        made = [item_of(f"{run_id} {place} {self._text()}") for place in range(3)]
        return PutMemory(tuple(msgspec.structs.replace(item, id=MemoryId(self._ulid(number))) for item in made))

    def _forgotten(self) -> tuple[ForgetMemory, ...]:
        if not self.memory_ids:
            return ()
        return (ForgetMemory((self.memory_ids.pop(self.chance.randrange(len(self.memory_ids))),)),)

    def _link(self, number: int, index: int, stream: StreamId) -> LinkArtifact:
        artifact = ArtifactId(f"{number:060x}{index:04x}")
        return LinkArtifact(artifact, stream, self.chance.randint(1, 1 << 20), "text/plain", EPOCH_MS + number)

    def _ulid(self, number: int) -> str:
        return make_ulid(EPOCH_MS + number, self.chance.randbytes(10))

    def _next_number(self) -> int:
        self.steps_count += 1
        return self.first_number + self.steps_count - 1


def resume(ledger: Ledger, chance: random.Random, first_number: int) -> Story:
    """A new story on a journal that an earlier one left: it goes on with a few of the tapes it finds there."""
    erased = {attempt.erasing.stream for attempt in ledger.attempts() if attempt.erasing}
    heads: dict[StreamId, int] = {}
    for attempt in ledger.attempts():
        for fact in attempt.facts:
            if fact.stream not in erased and not is_system_stream(fact.stream):
                heads[fact.stream] = max(heads.get(fact.stream, 0), fact.seq)
    chosen = chance.sample(sorted(heads), min(len(heads), TAPES_MAX // 2))
    return Story(chance, first_number, {stream: Tape(stream, heads[stream], is_own=False) for stream in chosen})


def _at(made: Draft, number: int) -> Draft:
    return msgspec.structs.replace(made, at_ms=EPOCH_MS + number)


def _moved(
    tape: Tape, drafts: tuple[Draft, ...], writes: tuple[Write, ...], run_id: RunId | None
) -> tuple[Append, tuple[Write, ...], Tape]:
    after = replace(tape, seq=tape.seq + len(drafts), run_id=run_id)
    return Append(tape.stream, tape.seq, drafts), writes, after
