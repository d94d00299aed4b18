"""The trust of what a caller says, whichever protocol carried it. Does not own: who the caller is (authentication)."""

from palyra.core.ids import Principal
from palyra.core.taint import speaker_source
from palyra.core.trust import Trust, is_tainting


def trust_of_caller(principal: Principal) -> Trust:
    """A token stands for a person that an administrator vouched for. A token of a channel's account does not."""
    return Trust.EXTERNAL if principal.startswith("channel:") else Trust.OPERATOR


def sources_of_caller(principal: Principal) -> tuple[str, ...]:
    """Names the sources of words that are kept for later runs: none for a person."""
    return (speaker_source(principal),) if is_tainting(trust_of_caller(principal)) else ()
