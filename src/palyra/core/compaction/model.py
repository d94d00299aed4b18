"""The words of compaction: exchanges, kept items, a plan and its outcome.

Does not own: choosing them (plan, findings), checking a summary (probes).
"""

from enum import Enum

import msgspec

from palyra.core.trust import Trust

STRATEGY = "session_window_v1"  # The SESSION_COMPACTION_STRATEGY of the seeds.
MIN_INPUT_TOKENS = 480  # The AUTO_SESSION_COMPACTION_MIN_INPUT_TOKENS of the seeds.
TRIGGER = 0.7


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger of 0 compacts whenever the minimum is passed, as the seeds describe it."""

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
    """A sentence of the conversation that stays in the context, with the place where it was said."""

    kind: KeptKind
    text: str
    place: int
    trust: Trust


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said and what came of it, up to the next thing a person said."""

    place: int
    said: str
    said_trust: Trust
    answers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    trust: Trust = Trust.OPERATOR


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction to be committed: everything up to `to_place` gives way to `items` and `summary`."""

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
