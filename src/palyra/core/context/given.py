"""Messages of an earlier conversation that a caller brought along, as a model is shown them.

Does not own: which of them a caller may bring (gateway), where they stand (window).
Invariant: a tool's result from there stands in a fence.
"""

from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.events.run import GivenRole, MessageGiven
from palyra.core.fences import fence
from palyra.core.taint import UNNAMED
from palyra.core.trust import Trust, is_tainting


def given_message(data: MessageGiven, trust: Trust) -> Message:
    match data.role:
        case GivenRole.USER:
            return UserMessage(data.text, data.attachments)
        case GivenRole.ASSISTANT:
            return AssistantMessage(data.text, tuple(PastCall(c.call_id, c.tool, c.arguments) for c in data.calls))
        case GivenRole.TOOL:
            text = data.text
            if is_tainting(trust) and text:
                text = fence(text, data.fence_id or "given", data.source or UNNAMED)
            return ToolMessage(data.call_id or "", text)
