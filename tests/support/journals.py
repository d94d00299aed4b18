"""Journals for tests: a real signer with a fixed key, a clock that tests move, and drafts of a run's events."""

import itertools
from collections.abc import Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palyra.core.attestation import SigningKey, attest_all
from palyra.core.checkpoint import Anchor, key_id
from palyra.core.events import Data, Draft, Event
from palyra.core.events.model import (
    BudgetState,
    Finish,
    ModelOutput,
    ModelRequested,
    RouteCandidate,
    RouteMode,
    RoutePlanned,
    ToolCall,
    Usage,
    UsageRecorded,
)
from palyra.core.events.run import EndReason, MessageAssistant, MessageUser, RunAccepted, RunDone, RunLimits, RunStarted
from palyra.core.events.session import Parent, SessionBranched, SessionCreated
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    EffectClass,
    FileBytes,
    Outcome,
    ToolFinished,
    ToolJudged,
    ToolProposed,
    ToolStarted,
    Verdict,
)
from palyra.core.ids import (
    ULID_RANDOM_BYTES,
    Principal,
    RunId,
    SessionId,
    StreamId,
    derive_approval_id,
    derive_effect_id,
    digest_call,
    make_call_id,
    make_ulid,
)
from palyra.core.trust import Trust
from palyra.ports.signer import Signer

START_MS = 1_750_000_000_000
ALICE = Principal("user:alice")
BOB = Principal("user:bob")
LIMITS = RunLimits(wall_clock_ms=900_000, max_tool_calls=64, max_turns=72, parallel_tools=4)


class FixedSigner:
    """Signs with real Ed25519 under a key made of one repeated byte, so that two signers differ by `seed` alone."""

    def __init__(self, seed: int = 7) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)

    @property
    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def has_begun(self) -> bool:
        return False

    def head(self) -> Anchor | None:
        return None

    def note_head(self, head: Anchor) -> None:
        """Remembers nothing: a test that needs it uses a key in a file."""

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


class FixedClock:
    """Stands still until a test moves it."""

    def __init__(self, at_ms: int = START_MS) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms

    def advance(self, by_ms: int) -> None:
        self.at_ms += by_ms


class Ids:
    """Makes ids in ascending order, the same in every test."""

    def __init__(self, start: int = 1) -> None:
        self._numbers = itertools.count(start)

    def session(self) -> SessionId:
        return SessionId(StreamId(self._ulid()))

    def run(self) -> RunId:
        return RunId(self._ulid())

    def _ulid(self) -> str:
        return make_ulid(START_MS, next(self._numbers).to_bytes(ULID_RANDOM_BYTES, "big"))


def draft(data: Data, run_id: RunId | None = None, actor: Principal = ALICE, at_ms: int = START_MS) -> Draft:
    return Draft(data=data, actor=actor, trust=Trust.OPERATOR, at_ms=at_ms, run_id=run_id)


def session_created(owner: Principal = ALICE, key: str | None = None, label: str | None = None) -> Draft:
    return draft(SessionCreated(owner=owner, agent="default", key=key, label=label), actor=owner)


def session_branched(parent: Event, owner: Principal = ALICE) -> Draft:
    """Returns the first event of a branch that leaves its parent's tape after `parent`."""
    origin = Parent(session_id=SessionId(parent.stream), seq=parent.seq, hash=parent.hash)
    return draft(SessionBranched(owner=owner, agent="default", parent=origin), actor=owner)


def run_accepted(run_id: RunId, actor: Principal = ALICE, idempotency_key: str | None = None) -> Draft:
    data = RunAccepted(agent="default", origin="api", can_ask=True, limits=LIMITS, idempotency_key=idempotency_key)
    return draft(data, run_id, actor)


def run_started(run_id: RunId) -> Draft:
    return draft(RunStarted(), run_id)


def run_done(run_id: RunId) -> Draft:
    return draft(RunDone(reason=EndReason.FINAL_ANSWER, message="answered"), run_id)


def message_user(text: str, run_id: RunId | None = None) -> Draft:
    return draft(MessageUser(text=text), run_id)


def usage_recorded(run_id: RunId, cost_usd: float | None = 0.0021, model: str = "small") -> Draft:
    data = UsageRecorded(model=model, input_tokens=1200, output_tokens=80, cached_tokens=0, cost_usd=cost_usd, turn=1)
    return draft(data, run_id)


def approval_requested(run_id: RunId, cause: str = "c1", kind: ApprovalKind = ApprovalKind.TOOL) -> Draft:
    data = ApprovalRequested(
        approval_id=derive_approval_id(run_id, cause, 1),
        kind=kind,
        digest=digest_call("shell.run", {"command": cause}),
        rule="shell_asks",
        expires_at_ms=START_MS + 900_000,
        tool="shell.run",
    )
    return draft(data, run_id)


def run_cycle(run_id: RunId, text: str = "How many lines has README?", answer: str = "It has 120.") -> Sequence[Draft]:
    """Returns the thirteen events of one run with one tool call, from acceptance to its end."""
    call_id = make_call_id(run_id, 1)
    arguments: dict[str, object] = {"path": "README.md", "limit": 200}
    effect_id = derive_effect_id(run_id, 1, "fs.read", arguments)
    call = ToolCall(call_id=call_id, tool="fs.read", arguments=arguments)
    candidate = RouteCandidate(model="small", reasons=("cheapest",), health="ok", estimated_cost_usd=0.0025)
    middle: tuple[Data, ...] = (
        RoutePlanned(turn=1, mode=RouteMode.ENFORCED, chosen="small", budget=BudgetState.OK, candidates=(candidate,)),
        ModelRequested(turn=1, model="small"),
        ModelOutput(
            turn=1,
            text="I shall look at the file first.",
            tool_calls=(call,),
            finish=Finish.TOOL_CALLS,
            usage=Usage(input_tokens=1200, output_tokens=80),
        ),
    )
    tool: tuple[Data, ...] = (
        ToolProposed(call_id=call_id, tool="fs.read", arguments=arguments),
        ToolJudged(
            call_id=call_id,
            verdict=Verdict.ALLOW,
            rule="workspace_reads",
            reason="inside the workspace",
            effect_class=EffectClass.READ_ONLY,
        ),
        ToolStarted(call_id=call_id, effect_id=effect_id),
        ToolFinished(
            call_id=call_id,
            effect_id=effect_id,
            outcome=Outcome.OK,
            error=None,
            attestation=None,
            output="# Palyra\n" * 20,
        ),
        MessageAssistant(text=answer),
    )
    opening = (run_accepted(run_id), message_user(text, run_id), run_started(run_id))
    turn = (*(draft(data, run_id) for data in middle), usage_recorded(run_id))
    return (*opening, *turn, *(draft(data, run_id) for data in tool), run_done(run_id))


def attested(drafts: Iterable[Draft], signer: Signer | None = None) -> tuple[Draft, ...]:
    """Returns the drafts with every outcome attested, as an engine commits them."""
    by = signer or FixedSigner()
    return attest_all(tuple(drafts), {}, SigningKey(key_id(by.public_key), by.sign))


def tainted_write(run_id: RunId) -> Draft:
    """Returns a result from outside that left a file behind."""
    written = FileBytes(root="/w", path="notes.md", sha256="ab" * 32, taint=("http:a",))
    data = ToolFinished(
        call_id=make_call_id(run_id, 1),
        effect_id=derive_effect_id(run_id, 1, "http.fetch", {}),
        outcome=Outcome.OK,
        error=None,
        attestation=None,
        source="http:a",
        tool="http.fetch",
        written=(written,),
    )
    return Draft(data=data, actor=ALICE, trust=Trust.EXTERNAL, at_ms=START_MS, run_id=run_id)
