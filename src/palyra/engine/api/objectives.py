"""Objectives that a caller gives with a run: which are accepted.

Owns: refusing those that could never be checked. Does not own: their form (core.run.objectives), checking them
(engine.session.objective_check).
"""

from dataclasses import dataclass

from palyra.core.errors import Invalid
from palyra.core.references.calls import read_call
from palyra.core.run.objectives import FileObjective, ToolObjective, parse_objectives
from palyra.engine.api.requests import RunRequest
from palyra.engine.session.reference_judge import ReferenceJudge, ReferenceSender


@dataclass(frozen=True, slots=True)
class ObjectiveIntake:
    judge: ReferenceJudge

    def require(self, request: RunRequest, sender: ReferenceSender) -> None:
        """Refuses a file that the sender could not read with fs.read, and a tool that nobody has."""
        callers = {tool.name for tool in request.caller_tools}
        for number, objective in enumerate(parse_objectives(request.objectives), 1):
            match objective:
                case FileObjective(path=path):
                    verdict = self.judge.judge(read_call(path), sender)
                    if verdict.code is not None:
                        raise Invalid("objective_invalid", f"objective {number}: {verdict.reason}")
                case ToolObjective(tool=tool) if tool not in callers and self.judge.catalog.find(tool) is None:
                    raise Invalid("objective_invalid", f"objective {number}: there is no tool {tool!r}")
                case _:
                    continue
