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
