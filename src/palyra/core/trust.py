"""Trust of content: the four levels and how they combine (L8). Does not own: deciding what a level may do (policy)."""

from collections.abc import Iterable
from enum import Enum


class Trust(Enum):
    """Where content came from, from most to least trusted."""

    SYSTEM = "system"
    OPERATOR = "operator"
    LOCAL = "local"
    EXTERNAL = "external"


_RANK = {Trust.SYSTEM: 3, Trust.OPERATOR: 2, Trust.LOCAL: 1, Trust.EXTERNAL: 0}
_FROM_LOWEST = (Trust.EXTERNAL, Trust.LOCAL, Trust.OPERATOR)
_UNTAINTED = (Trust.SYSTEM, Trust.OPERATOR, Trust.LOCAL)


def lowest(levels: Iterable[Trust]) -> Trust:
    """Returns the lowest trust: content made from several inputs has the least of theirs.

    No input at all is `system`.
    """
    # A window has hundreds of levels and an enum's hash is a call in Python, so identity is compared.
    given = tuple(levels)
    for level in _FROM_LOWEST:
        if level in given:
            return level
    return Trust.SYSTEM


def is_at_least(trust: Trust, other: Trust) -> bool:
    """Tells whether a level is as trusted as another, or more."""
    return _RANK[trust] >= _RANK[other]


def is_tainting(trust: Trust) -> bool:
    """Tells whether the level lies below `local`, which makes it taint."""
    # It is asked of every item of a summary, twice a turn, so identity is compared here too.
    return trust not in _UNTAINTED
