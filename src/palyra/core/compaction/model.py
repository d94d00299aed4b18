"""The words of compaction: exchanges, kept items, a plan and its outcome.

Does not own: choosing them (plan, findings), checking a summary (probes).
"""

from enum import Enum

import msgspec

from palyra.core.trust import Trust

STRATEGY = "session_window_v1"  # The SESSION_COMPACTION_STRATEGY of the first description.
MIN_INPUT_TOKENS = 480  # The AUTO_SESSION_COMPACTION_MIN_INPUT_TOKENS of the first description.
TRIGGER = 0.7


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger of 0 compacts whenever the minimum is passed, as the first description says."""

    is_automatic: bool = True
    trigger: float = TRIGGER
    min_tokens: int = MIN_INPUT_TOKENS


class KeptKind(Enum):
    """What a kept sentence is. Rules, decisions and open tasks are kept word for word."""

    RULE = "rule"
    DECISION = "decision"
    TASK = "task"
    FACT = "fact"


class KeptItem(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of the conversation that stays in the context, with the place where it was said.

    `is_told` says that the summary holds it. It is not shown twice, and the next compaction has its own words again.
    """

    kind: KeptKind
    text: str
    place: int
    trust: Trust
    is_told: bool = False


class RetiredItem(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that no longer holds or a task that is done, and the later sentence that says so."""

    kind: KeptKind
    text: str
    place: int
    by: str
    by_place: int


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a proposed summary answers one probe. `kind` is `pin`, `pending` or that of a kept sentence."""

    kind: str
    about: str
    is_passed: bool


class DroppedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a message that only the summary stands for now, and the place where the whole of it is."""

    place: int
    text: str


class SaidWords(msgspec.Struct, frozen=True, kw_only=True):
    """Words that may say a task to be done, with their place on the tape."""

    text: str
    place: int
    trust: Trust


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said and what came of it, up to the next thing a person said.

    `place` is where it begins. `later` are the answers, and the ticked lines that successful calls wrote or read.
    `typed` are the person's own words, if others of `said` were pasted. Rules, and what ends rules and tasks, come from
    `own` alone.
    """

    place: int
    said: str
    said_trust: Trust
    answers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    trust: Trust = Trust.OPERATOR
    later: tuple[SaidWords, ...] = ()
    typed: str | None = None

    @property
    def own(self) -> str:
        return self.said if self.typed is None else self.typed


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction to be committed: everything up to `to_place` gives way to `items` and `summary`.

    `proposed` is the summary of a model, also if it was refused, and `probes` say how it fared.
    """

    from_place: int
    to_place: int
    items: tuple[KeptItem, ...]
    summary: str
    trust: Trust
    is_by_model: bool = False
    probes_passed: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    refusals: tuple[str, ...] = ()
    retired: tuple[RetiredItem, ...] = ()
    dropped: tuple[DroppedMessage, ...] = ()
    proposed: str = ""
    probes: tuple[ProbeResult, ...] = ()
