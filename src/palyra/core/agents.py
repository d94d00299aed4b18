"""Agents: a named definition of instructions, model, allowed tools and workspace.

Does not own: configuration files (config).
"""

from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

ANSWERS_REMEMBERED_MAX = 4_096  # Every tool is asked about twice a turn; agents and tools are few.
DEFAULT_INSTRUCTIONS = (
    "You are a careful assistant that works with real tools on the operator's own machine. Use tools when they help, "
    "say plainly what you did and what came of it, and never claim an effect that a tool did not report."
)


# Files at the root of a workspace that tell an agent how to work there, in the order in which a model is shown them.
DEFAULT_INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", "PALYRA.md", "MEMORY.md")


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`tools` holds patterns of tool names; `*` allows the whole catalog. An empty route means the default route.

    `delegates` holds patterns of the agents that it may start child runs of, besides itself.
    `instruction_files` are paths below each root of the workspace.
    """

    name: str
    instructions: str = DEFAULT_INSTRUCTIONS
    route: str = ""
    tools: tuple[str, ...] = ("*",)
    workspace: tuple[str, ...] = ()
    delegates: tuple[str, ...] = ("*",)
    instruction_files: tuple[str, ...] = DEFAULT_INSTRUCTION_FILES


def may_use(agent: AgentSpec, tool: str) -> bool:
    return is_named(tool, agent.tools)


def may_delegate(agent: AgentSpec, other: str) -> bool:
    return other == agent.name or is_named(other, agent.delegates)


@lru_cache(ANSWERS_REMEMBERED_MAX)
def is_named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
