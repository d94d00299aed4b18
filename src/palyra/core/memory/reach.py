"""The reach of a run: whose items it is reminded of, and by which scopes (L11).

Owns: the scopes that count for a run, and the id that names each of them.
Does not own: asking for items (ports.memory).
"""

from palyra.core.ids import Principal, SessionId
from palyra.core.memory.model import MemoryScope, ScopeFilter

CHANNEL_KIND = "channel"


def scopes_of_run(owner: Principal, session_id: SessionId, agent: str, channel: str) -> tuple[ScopeFilter, ...]:
    """Returns the scopes within which items of the owner are found. `channel` is empty outside channels."""
    scopes = [
        ScopeFilter(MemoryScope.PRINCIPAL, owner),
        ScopeFilter(MemoryScope.AGENT, agent),
        ScopeFilter(MemoryScope.SESSION, session_id),
    ]
    if channel:
        scopes.append(ScopeFilter(MemoryScope.CHANNEL, channel))
    return tuple(scopes)


def channel_of(origin: str) -> str:
    """Returns the name of the channel that a run came from; empty for every other origin.

    An origin is a kind, or a kind, a colon and a name: `channel:discord`.
    """
    kind, _, name = origin.partition(":")
    return name if kind == CHANNEL_KIND else ""
