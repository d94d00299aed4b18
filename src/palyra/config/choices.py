"""Words a setting may have. Owns: every closed set of values in palyra.toml. Not: which setting takes which (records)."""

from enum import Enum


class Durability(Enum):
    FULL = "full"
    NORMAL = "normal"


class Headless(Enum):
    """What becomes of a question in a run where nobody can be asked."""

    DENY = "deny"
    WAIT = "wait"


class HealingMode(Enum):
    OBSERVE_ONLY = "observe_only"
    AUTO = "auto"
    DISABLED = "disabled"


class Misfire(Enum):
    """What becomes of times a routine missed while no daemon ran."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(Enum):
    """What becomes of a routine that is due while its last run goes on."""

    FORBID = "forbid"
    QUEUE = "queue"
    REPLACE = "replace"


class ChannelKind(Enum):
    DISCORD = "discord"
    SLACK = "slack"
    TELEGRAM = "telegram"
    WEBHOOK = "webhook"
    EMAIL = "email"


class DirectMessages(Enum):
    DENY = "deny"
    PAIRING = "pairing"
    ALLOW = "allow"


class Broadcast(Enum):
    DENY = "deny"
    MENTION_ONLY = "mention_only"
    ALLOW = "allow"
