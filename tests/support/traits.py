"""Traits of tools that tests name without having them: what the real tools of these names declare."""

from palyra.core.offers import CallShape
from palyra.core.tools import Runtime, Trait

_TRAITS = {
    "fs.list": Trait.TOUCHES_PATH,
    "fs.read": Trait.TOUCHES_PATH,
    "fs.write": Trait.TOUCHES_PATH,
    "shell.run": Trait.RUNS_COMMAND,
    "http.fetch": Trait.SENDS_REQUEST,
    "skill.open": Trait.OPENS_SKILLS,
    "artifact.read": Trait.PAGES_RESULTS,
}
_READS_OUTSIDE = ("http.", "browser.", "mcp.")


def traits_of(tool: str) -> frozenset[Trait]:
    found = {_TRAITS[tool]} if tool in _TRAITS else set()
    found |= {Trait.WRITES_FILE} if tool == "fs.write" else set()
    return frozenset(found | ({Trait.READS_OUTSIDE} if tool.startswith(_READS_OUTSIDE) else set()))


def shape_of(tool: str, **more: object) -> CallShape:
    runtime = Runtime.MCP if tool.startswith("mcp.") else Runtime.INTERNAL
    return CallShape(traits=traits_of(tool), runtime=runtime, **more)  # type: ignore[arg-type]


def reads_outside(tool: str) -> bool:
    return Trait.READS_OUTSIDE in traits_of(tool)
