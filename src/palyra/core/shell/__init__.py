"""Shell commands by their tree. Owns: whether a shell text only reads and stays in the workspace. Not: parsing, running it."""

from palyra.core.shell.judge import judge
from palyra.core.shell.judgement import Code, Judgement, Network, SeenCommand, ShellCapability, ShellReason, ShellScope

__all__ = ["Code", "Judgement", "Network", "SeenCommand", "ShellCapability", "ShellReason", "ShellScope", "judge"]
