"""Log lines of what went wrong in runs: failed runs as warnings, failed model and tool calls as notes.

Owns: which ids such a line has. Does not own: the form of the log (app.logs).
Invariant: a line has ids, names and codes, and no text of anybody.
"""

from collections.abc import Sequence

import structlog

from palyra.core.events import Event
from palyra.core.events.model import ModelFailed
from palyra.core.events.run import RunFailed
from palyra.core.events.tool import Outcome, ToolFinished, ToolUncertain
from palyra.core.ids import RunId

log = structlog.get_logger()

_TOLD = frozenset({RunFailed, ModelFailed, ToolFinished, ToolUncertain})  # Most events are none of these.
_QUIET = frozenset({Outcome.OK, Outcome.DENIED, Outcome.CANCELLED})  # Nothing is wrong with these.


class RunLog:
    def recorded(self, events: Sequence[Event]) -> None:
        for event in events:
            if type(event.data) not in _TOLD:
                continue
            ids = {"run_id": event.run_id, "session_id": event.stream, "seq": event.seq}
            match event.data:
                case RunFailed(reason=reason):
                    log.warning("run_failed", reason=reason.value, **ids)
                case ModelFailed(code=code, turn=turn, model=model):
                    log.info("model_failed", code=code.value, turn=turn, model=model, **ids)
                case ToolFinished(outcome=outcome, tool=tool, call_id=call_id) if outcome not in _QUIET:
                    named = {} if tool is None else {"tool": tool}  # Only outcomes with content from outside name it.
                    log.info("tool_failed", outcome=outcome.value, call_id=call_id, **named, **ids)
                case ToolUncertain(call_id=call_id):
                    log.warning("tool_uncertain", call_id=call_id, **ids)
                case _:
                    pass

    def first_text(self, run_id: RunId, turn: int) -> None:
        return
