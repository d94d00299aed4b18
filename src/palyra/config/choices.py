"""The closed sets of words that settings in palyra.toml may have.

Does not own: which setting takes which set (records).
"""

from enum import Enum


class Durability(Enum):
    FULL = "full"
    NORMAL = "normal"


class Headless(Enum):
    """What happens to a question in a run where nobody can be asked."""

    DENY = "deny"
    WAIT = "wait"


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
