"""What is said of a shell text. Owns: the scope it is judged in, and the judgement with its reasons. Not: the rules.

A judgement is free only if it has no reason to ask: every command that was found only reads, and stays in the workspace.
"""

from enum import Enum

import msgspec

from palyra.core.shell.tree import Span

REASONS_MAX = 40  # A person reads the first few; more would fill the card.
NAMES_MAX = 200  # Of paths, hosts and commands told, each.


class Network(Enum):
    """Whether the sandbox that would run the text reaches the network. CLOSED: whatever needs it asks."""

    CLOSED = "closed"
    OPEN = "open"


class ShellScope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a text would run. Paths are absolute; `roots` are the folders of the workspace.

    `repositories` are those roots whose own `.git` is what git would use there: somebody looked, since names do not tell.
    """

    cwd: str
    roots: tuple[str, ...]
    repositories: tuple[str, ...] = ()
    home: str | None = None
    network: Network = Network.CLOSED


class Code(Enum):
    """Why a text asks. Stable: policies and cards refer to it."""

    NOT_UNDERSTOOD = "not_understood"
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    UNKNOWN_PROGRAM = "unknown_program"
    UNKNOWN_COMMAND = "unknown_command"  # Of a known program, such as `docker frobnicate`.
    UNKNOWN_OPTION = "unknown_option"
    UNKNOWN_VALUE = "unknown_value"
    WRITES = "writes"
    RUNS_CODE = "runs_code"
    OUTSIDE_WORKSPACE = "outside_workspace"
    NEEDS_NETWORK = "needs_network"
    SENDS = "sends"
    DISCLOSES = "discloses"
    SETS_ENVIRONMENT = "sets_environment"
    CHANGES_SHELL = "changes_shell"
    CHANGES_SYSTEM = "changes_system"


class ShellCapability(Enum):
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"


CAPABILITY_OF: dict[Code, ShellCapability] = {
    Code.NOT_UNDERSTOOD: ShellCapability.EXECUTE,
    Code.TOO_LONG: ShellCapability.EXECUTE,
    Code.TOO_DEEP: ShellCapability.EXECUTE,
    Code.UNKNOWN_PROGRAM: ShellCapability.EXECUTE,
    Code.UNKNOWN_COMMAND: ShellCapability.EXECUTE,
    Code.UNKNOWN_OPTION: ShellCapability.EXECUTE,
    Code.UNKNOWN_VALUE: ShellCapability.READ,
    Code.WRITES: ShellCapability.WRITE,
    Code.RUNS_CODE: ShellCapability.EXECUTE,
    Code.OUTSIDE_WORKSPACE: ShellCapability.READ,
    Code.NEEDS_NETWORK: ShellCapability.NETWORK,
    Code.SENDS: ShellCapability.NETWORK,
    Code.DISCLOSES: ShellCapability.READ,
    Code.SETS_ENVIRONMENT: ShellCapability.EXECUTE,
    Code.CHANGES_SHELL: ShellCapability.EXECUTE,
    Code.CHANGES_SYSTEM: ShellCapability.WRITE,
}


class ShellReason(msgspec.Struct, frozen=True):
    code: Code
    words: str
    span: Span


class SeenCommand(msgspec.Struct, frozen=True):
    """A simple command that was found, as written; inside `sh -c` the span is that of the outer word."""

    words: tuple[str, ...]
    span: Span


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """`is_read_only` holds too if the only reason to ask is that it needs the network."""

    is_free: bool
    is_read_only: bool
    reasons: tuple[ShellReason, ...]
    commands: tuple[SeenCommand, ...]
    capabilities: frozenset[ShellCapability]
    paths: tuple[str, ...]
    hosts: tuple[str, ...]


class Findings:
    """Collects what is found while a tree is walked."""

    def __init__(self, scope: ShellScope) -> None:
        self.scope = scope
        self.command_count = 0
        self._reasons: dict[ShellReason, None] = {}
        self._commands: dict[SeenCommand, None] = {}
        self._capabilities: set[ShellCapability] = set()
        self._paths: dict[str, None] = {}
        self._hosts: dict[str, None] = {}
        self._fixed: list[Span] = []

    def enter(self, span: Span) -> None:
        """From here on everything is told at this place: it stands inside a word there."""
        self._fixed.append(span)

    def leave(self) -> None:
        self._fixed.pop()

    def ask(self, code: Code, words: str, span: Span) -> None:
        self._capabilities.add(CAPABILITY_OF[code])
        self._reasons[ShellReason(code, words, self._place(span))] = None

    def needs_network(self, program: str, host: str, span: Span) -> None:
        self._capabilities.add(ShellCapability.NETWORK)
        if host and len(self._hosts) < NAMES_MAX:
            self._hosts[host] = None
        if self.scope.network is Network.CLOSED:
            where = f" ({host})" if host else ""
            self.ask(Code.NEEDS_NETWORK, f"{program} needs the network{where}", span)

    def saw(self, words: tuple[str, ...], span: Span) -> None:
        self.command_count += 1
        if len(self._commands) < NAMES_MAX:
            self._commands[SeenCommand(words, self._place(span))] = None

    def touches(self, path: str) -> None:
        self._capabilities.add(ShellCapability.READ)
        if len(self._paths) < NAMES_MAX:
            self._paths[path] = None

    def has_reasons(self) -> bool:
        return bool(self._reasons)

    def judgement(self) -> Judgement:
        return Judgement(
            is_free=not self._reasons,
            is_read_only=all(reason.code is Code.NEEDS_NETWORK for reason in self._reasons),
            reasons=tuple(self._reasons)[:REASONS_MAX],
            commands=tuple(self._commands),
            capabilities=frozenset(self._capabilities),
            paths=tuple(self._paths),
            hosts=tuple(self._hosts),
        )

    def _place(self, span: Span) -> Span:
        return self._fixed[0] if self._fixed else span
