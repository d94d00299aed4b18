"""Tools as the rules see them. Owns: ToolSpec, what a call will touch, and what it came to. Not: executing (ports.tools)."""

import hashlib
from enum import Enum

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, FileBytes, OpenedSkill, Outcome, ParallelClass, Risk, ToolError
from palyra.core.trust import Trust

OUTPUT_INLINE_BYTES_MAX = 8 * 1024  # Larger results spill to an artifact with a preview; the model pages.
WIRE_NAME_LENGTH_MAX = 64  # What the strictest provider takes.


class Capability(Enum):
    FS_READ = "fs_read"
    FS_WRITE = "fs_write"
    PROCESS_EXEC = "process_exec"
    NETWORK = "network"
    SECRETS_READ = "secrets_read"
    MESSAGE_SEND = "message_send"
    MEMORY_WRITE = "memory_write"


class Runtime(Enum):
    INTERNAL = "internal"
    SHELL = "shell"
    WASM = "wasm"
    MCP = "mcp"


class Trait(Enum):
    """A fact about a tool that a rule asks for. A tool declares it in its own file; no rule names a tool.

    A tool that forgets one gets less by it. Only our own files declare traits: no server and no plugin can.
    """

    TOUCHES_PATH = "touches_path"  # `path` names the one file or folder that a call touches.
    RUNS_COMMAND = "runs_command"  # `command` is a command for a shell.
    SENDS_REQUEST = "sends_request"  # A call is one HTTP request: `url`, `method`, `headers` and `body`.
    READS_OUTSIDE = "reads_outside"  # What a call gives back came from outside in that call, and was not kept before.
    OPENS_SKILLS = "opens_skills"
    PAGES_RESULTS = "pages_results"  # Reads on in a result that was too long to be shown.


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the catalog. Classes here are the tool's; a call may have a milder one (CallNature).

    `version` tells code apart that the rest does not: of a tool from elsewhere the hash of what would run.
    """

    name: str
    description: str
    input_schema: JsonObject
    capabilities: frozenset[Capability] = frozenset()
    effect_class: EffectClass = EffectClass.ONCE
    parallel_class: ParallelClass = ParallelClass.NEVER
    risk: Risk = Risk.MEDIUM
    output_trust: Trust = Trust.EXTERNAL
    runtime: Runtime = Runtime.INTERNAL
    timeout_s: float = 60.0
    version: str = ""
    traits: frozenset[Trait] = frozenset()


class MissingTool(msgspec.Struct, frozen=True):
    """A tool that should be here and is not: why, and what to do about it. `name` may be a pattern: all tools of a server."""

    name: str
    reason: str


class CallNature(msgspec.Struct, frozen=True, kw_only=True):
    """What one call would do, said by its tool before it is judged, without doing it.

    `commands` are all programs that a shell's text would start, of the whole parsed tree; `writes` the files it would leave.
    `command_words` are the words of each of them, and empty unless every word of every one is literal and nothing is
    redirected to or from a file: grants for a kind of command rely on it.
    """

    effect_class: EffectClass
    parallel_class: ParallelClass
    paths: tuple[str, ...] = ()
    host: str | None = None
    address: str | None = None
    is_in_workspace: bool = True
    commands: tuple[str, ...] = ()
    command_words: tuple[tuple[str, ...], ...] = ()
    preview: str | None = None
    writes: tuple[FileBytes, ...] = ()


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A body that a call made beside its text. It becomes an artifact of the session, and the text names it."""

    name: str
    media_type: str
    body: bytes


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a call came to. `output` is text for the model; expected failures are values, not exceptions.

    `read` and `written` are the files whose bytes it saw and left; `named` the absolute paths that the text shows by name, of
    folders with a slash at the end: a name can hold an order as bytes can. `source` is where the output came from, where
    the tool knows better than its name does (core.taint.label makes it); content never chooses it. `skill` is what it
    opened.
    `is_unknown`: it may or may not have happened, as when a connection broke after the request was sent; of a `once` call the
    tape then says tool.uncertain, and a person is asked.
    """

    outcome: Outcome
    output: str = ""
    error: ToolError | None = None
    trust: Trust | None = None
    source: str | None = None
    read: tuple[FileBytes, ...] = ()
    written: tuple[FileBytes, ...] = ()
    named: tuple[str, ...] = ()
    made: tuple[Made, ...] = ()
    skill: OpenedSkill | None = None
    is_unknown: bool = False
    sandbox: str = "none"


def spec_digest(spec: ToolSpec) -> str:
    """What a verdict is about: a tool that has changed since is another tool, whatever its name.

    Traits are left out. They say what may be offered about a call, not what it does, and a release that declares one more
    must not refuse every call that waits for an answer.
    """
    parts = (
        spec.name,
        spec.description,
        spec.input_schema,
        sorted(capability.value for capability in spec.capabilities),
        spec.effect_class.value,
        spec.output_trust.value,
        spec.runtime.value,
        spec.version,
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def failed(code: str, message: str) -> ToolResult:
    return ToolResult(outcome=Outcome.FAILED, error=ToolError(code=code, message=message))


def wire_name(tool: str) -> str:
    """Provider wire names may not hold dots."""
    return tool.replace(".", "__")
