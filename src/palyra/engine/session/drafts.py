"""Drafts of the engine's own facts: their actor and their trust. Does not own: what they say."""

from palyra.core.events import Data, Draft
from palyra.core.ids import Principal, RunId, agent_principal
from palyra.core.trust import Trust

ENGINE = Principal("system:engine")


def engine_draft(data: Data, run_id: RunId | None, now_ms: int) -> Draft:
    return Draft(data=data, actor=ENGINE, trust=Trust.SYSTEM, at_ms=now_ms, run_id=run_id)


def agent_draft(data: Data, run_id: RunId, agent: str, trust: Trust, now_ms: int) -> Draft:
    return Draft(data=data, actor=agent_principal(agent), trust=trust, at_ms=now_ms, run_id=run_id)
