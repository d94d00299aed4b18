"""Results of tool calls as a model is shown them.

Invariant: a result below `local` stands in a fence; the daemon's notes on it stand before and behind the fence.
"""

from palyra.core.context.messages import ToolMessage
from palyra.core.events.tool import Outcome, ToolFinished
from palyra.core.fences import FENCE_ID_LENGTH, fence
from palyra.core.taint import UNNAMED
from palyra.core.trust import Trust, is_tainting

UNCERTAIN = (
    "It is not known whether this call took effect: the daemon stopped while it ran. Do not repeat it on your own; "
    "the operator has been asked."
)


def tell_result(finished: ToolFinished, trust: Trust) -> ToolMessage:
    """Fences a result that came from outside; the daemon's notes on it stand before and behind the fence."""
    text = finished.output or ""
    head = ""
    if finished.error is not None:
        head = f"{finished.outcome.value}: {finished.error.code}: "
        text = f"{finished.error.message}\n{text}".rstrip()
    if is_tainting(trust) and text:
        head = head and f"{head.rstrip(' :')}\n"
        text = fence(text, finished.fence_id or finished.effect_id[:FENCE_ID_LENGTH], finished.source or UNNAMED)
    text = f"{head}{text}"
    if finished.artifact_id is not None:
        text = f"{text}\n[The whole output is artifact {finished.artifact_id}; read on with artifact.read.]"
    return ToolMessage(finished.call_id, text, is_error=finished.outcome is not Outcome.OK)
