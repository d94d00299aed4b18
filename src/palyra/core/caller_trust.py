"""The trust of what a caller says, whichever protocol carried it. Does not own: who the caller is (authentication).

A program is not the person whose token it has: its words are a task, but nobody who is trusted wrote them. `client` names
such a program (`client:<token>`), and is None where a person speaks.
"""

from palyra.core.ids import Principal
from palyra.core.taint import speaker_source
from palyra.core.trust import Trust, is_tainting


def trust_of_caller(principal: Principal, client: str | None = None) -> Trust:
    """A token stands for a person that an administrator vouched for, unless a program or an unlinked account speaks."""
    is_stranger = client is not None or principal.startswith("channel:")
    return Trust.EXTERNAL if is_stranger else Trust.OPERATOR


def sources_of_caller(principal: Principal, client: str | None = None) -> tuple[str, ...]:
    """Names the sources of words that are kept for later runs: none for a person."""
    return (client or speaker_source(principal),) if is_tainting(trust_of_caller(principal, client)) else ()
