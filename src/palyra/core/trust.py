"""Trust of content. Owns: the four levels and how they combine (L8). Not: deciding what a level may do (policy)."""

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


def lowest(levels: Iterable[Trust]) -> Trust:
    """What is derived from several inputs has the trust of the least of them; nothing at all is system text."""
    # A window has hundreds of levels and an enum's hash is a call in Python, so they are found by identity.
    given = tuple(levels)
    for level in _FROM_LOWEST:
        if level in given:
            return level
    return Trust.SYSTEM


def is_tainting(trust: Trust) -> bool:
    """Taint is what lies below `local`."""
    return _RANK[trust] < _RANK[Trust.LOCAL]
