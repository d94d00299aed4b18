"""The directory of agents by name, as configured.

Owns: finding the agent that a request names, or the one that a recorded run had.
Does not own: what an agent may do (core.agents).
"""

from dataclasses import dataclass

from palyra.core.agents import AgentSpec
from palyra.core.errors import Invalid
from palyra.core.service_runs import find_service, service_agent


@dataclass(frozen=True, slots=True)
class AgentDirectory:
    agents: dict[str, AgentSpec]
    default: str

    def find(self, name: str | None) -> AgentSpec:
        """Returns the named agent, or the default one."""
        wanted = name or self.default
        if wanted not in self.agents:
            raise Invalid("agent_unknown", f"there is no agent {wanted!r}; [[agent]] in palyra.toml adds one")
        return self.agents[wanted]

    def of_run(self, name: str) -> AgentSpec:
        """Returns the agent of a run accepted earlier. An agent that is no longer configured may use nothing."""
        agent = self.agents.get(name)
        if agent is not None:
            return agent
        service = find_service(name)
        return service_agent(service) if service is not None else AgentSpec(name=name, tools=())
