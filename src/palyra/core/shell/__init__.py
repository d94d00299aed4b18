"""Shell commands by their tree. Owns: whether a shell text only reads and stays in the workspace. Not: parsing, running it."""

from palyra.core.shell.judge import judge
from palyra.core.shell.judgement import Capability, Code, Judgement, Network, Reason, Scope, Seen

__all__ = ["Capability", "Code", "Judgement", "Network", "Reason", "Scope", "Seen", "judge"]
