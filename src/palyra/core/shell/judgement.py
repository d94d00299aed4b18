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


class Scope(msgspec.Struct, frozen=True, kw_only=True):
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


class Capability(Enum):
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"


CAPABILITY_OF: dict[Code, Capability] = {
    Code.NOT_UNDERSTOOD: Capability.EXECUTE,
    Code.TOO_LONG: Capability.EXECUTE,
    Code.TOO_DEEP: Capability.EXECUTE,
    Code.UNKNOWN_PROGRAM: Capability.EXECUTE,
    Code.UNKNOWN_COMMAND: Capability.EXECUTE,
    Code.UNKNOWN_OPTION: Capability.EXECUTE,
    Code.UNKNOWN_VALUE: Capability.READ,
    Code.WRITES: Capability.WRITE,
    Code.RUNS_CODE: Capability.EXECUTE,
    Code.OUTSIDE_WORKSPACE: Capability.READ,
    Code.NEEDS_NETWORK: Capability.NETWORK,
    Code.SENDS: Capability.NETWORK,
    Code.DISCLOSES: Capability.READ,
    Code.SETS_ENVIRONMENT: Capability.EXECUTE,
    Code.CHANGES_SHELL: Capability.EXECUTE,
    Code.CHANGES_SYSTEM: Capability.WRITE,
}


class Reason(msgspec.Struct, frozen=True):
    code: Code
    words: str
    span: Span


class Seen(msgspec.Struct, frozen=True):
    """A simple command that was found, as written; inside `sh -c` the span is that of the outer word."""

    words: tuple[str, ...]
    span: Span


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """`is_read_only` holds too if the only reason to ask is that it needs the network."""

    is_free: bool
    is_read_only: bool
    reasons: tuple[Reason, ...]
    commands: tuple[Seen, ...]
    capabilities: frozenset[Capability]
    paths: tuple[str, ...]
    hosts: tuple[str, ...]


class Sheet:
    """Collects what is found while a tree is walked."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.command_count = 0
        self._reasons: dict[Reason, None] = {}
        self._commands: dict[Seen, None] = {}
        self._capabilities: set[Capability] = set()
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
        self._reasons[Reason(code, words, self._place(span))] = None

    def needs_network(self, program: str, host: str, span: Span) -> None:
        self._capabilities.add(Capability.NETWORK)
        if host and len(self._hosts) < NAMES_MAX:
            self._hosts[host] = None
        if self.scope.network is Network.CLOSED:
            where = f" ({host})" if host else ""
            self.ask(Code.NEEDS_NETWORK, f"{program} needs the network{where}", span)

    def saw(self, words: tuple[str, ...], span: Span) -> None:
        self.command_count += 1
        if len(self._commands) < NAMES_MAX:
            self._commands[Seen(words, self._place(span))] = None

    def touches(self, path: str) -> None:
        self._capabilities.add(Capability.READ)
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
