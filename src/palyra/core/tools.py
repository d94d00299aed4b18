"""Tools as the rules see them: ToolSpec, what a call will touch, and its result.

Does not own: executing calls (ports.tools).
"""

import hashlib
from enum import Enum

import msgspec

from palyra.core.drafts.changes import ChangeSet
from palyra.core.events.base import JsonObject
from palyra.core.events.draft import FileChange
from palyra.core.events.tool import EffectClass, FileBytes, OpenedSkill, Outcome, ParallelClass, Risk, ToolError
from palyra.core.trust import Trust

OUTPUT_INLINE_BYTES_MAX = 8 * 1024  # A larger result is spilled to an artifact; the model sees a preview and pages.
WIRE_NAME_LENGTH_MAX = 64  # As many as the strictest provider takes.


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
    CALLER = "caller"  # Executed by whoever started the run.


class Trait(Enum):
    """A fact about a tool that a rule asks for. A tool declares it in its own file, and no rule names a tool.

    A tool that forgets a trait gets fewer rights. Only this program's own files declare traits; no server or plugin
    can.
    """

    TOUCHES_PATH = "touches_path"  # `path` names the one file or folder that a call touches.
    RUNS_COMMAND = "runs_command"  # `command` is a command for a shell.
    SENDS_REQUEST = "sends_request"  # A call is one HTTP request: `url`, `method`, `headers` and `body`.
    READS_OUTSIDE = "reads_outside"  # The result came from outside in this very call, and was not stored before.
    OPENS_SKILLS = "opens_skills"
    STARTS_RUN = "starts_run"  # A call starts a run of its own, which ends with the run that called.
    OUTLIVES_RUN = "outlives_run"  # What a call makes starts runs later, as the agent of the run that called.
    WRITES_FILE = "writes_file"  # A call replaces one file. What a draft changed is judged as calls of this tool.
    PAGES_RESULTS = "pages_results"  # Reads further in a result that was too long to be shown.


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the catalog. The classes here are the tool's; a single call may have a milder one (CallNature).

    `version` tells different code apart where the other fields are equal. For a tool from elsewhere it is the hash of
    what would run. `described_by` is the source of the description while nobody has accepted it: a text in a prompt
    taints unless a person accepted it (core.taint).
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
    described_by: str = ""


class MissingTool(msgspec.Struct, frozen=True):
    """A tool that should exist and does not: why, and what to do about it.

    `name` may be a pattern, such as all tools of a server.
    """

    name: str
    reason: str


class CallNature(msgspec.Struct, frozen=True, kw_only=True):
    """What one call would do. Its tool says so before the call is judged, without doing it.

    `commands` lists the programs that a plain text for a shell starts outside of a draft. `writes` lists the files that
    the call would leave. `command_words` holds the words of each command. Both are empty unless every word is literal and
    nothing is redirected to or from a file. Grants for a kind of command rely on that. `makes_executable` says that
    a written file can be run, `makes_link` that a path becomes a symbolic link. `wants_network` says that the call asks
    for a way to the network. `capabilities` are those that this call needs beyond its tool's own. `linked_names` are
    names of links that lead to a written path: who writes it writes them. `carried` lists files whose content the call
    may carry into those it writes; one that could not be looked at has no hash. `is_unseen` says that no review of the
    workspace shows one of the files as it would be, `is_wide_dot_file` that one is a dot-file of a home, or of a folder
    above repositories.
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
    makes_executable: bool = False
    makes_link: bool = False
    wants_network: bool = False
    capabilities: frozenset[Capability] = frozenset()
    linked_names: tuple[str, ...] = ()
    carried: tuple[FileBytes, ...] = ()
    is_unseen: bool = False
    is_wide_dot_file: bool = False


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A body that a call made in addition to its text. It becomes an artifact of the session, and the text names it.

    `is_shown` says that people want to see it: a channel gets it together with the run's answer.
    """

    name: str
    media_type: str
    body: bytes
    is_shown: bool = False


class SealedDraft(msgspec.Struct, frozen=True, kw_only=True):
    """What a command changed in its draft. The changes are sealed and wait to be judged."""

    exit_status: int
    change_set: ChangeSet


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What a call has changed in the workspace. `undo` is the archive of what that replaced, if it could be kept."""

    changes: tuple[FileChange, ...]
    undo: bytes | None = None


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call. `output` is text for the model; expected failures are values, not exceptions.

    `read` and `written` list the files whose bytes the call saw and left. `named` lists the absolute paths that the
    text shows by name, folders with a slash at the end. A name can hold an instruction as bytes can. `source` is set
    where the tool knows the output's origin better than its name does, and `sources` where there are several.
    core.taint.label makes them; content never chooses them. `memory_ids` are the remembered items that the output shows.
    `skill` is the skill that the call opened. `is_unknown` says that the effect may or may not have happened, as
    when a connection broke after the request was sent. For a `once` call the tape then says tool.uncertain, and a
    person is asked. `draft` is set if the call changed something in a draft: nothing of that is applied yet. `changed`
    is what the call itself changed. `exit_status` is that of a command which ended by itself.
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
    memory_ids: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    is_unknown: bool = False
    sandbox: str = "none"
    exit_status: int | None = None
    draft: SealedDraft | None = None
    changed: Changed | None = None


def spec_digest(spec: ToolSpec) -> str:
    """Returns the hash that a verdict is bound to: a tool that has changed since is another tool, whatever its name.

    Traits are left out. They say what may be offered about a call, not what it does. Otherwise a release that declares
    one more trait would refuse every call that waits for an answer.
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
    """Replaces dots, which a tool's name at a provider may not hold."""
    return tool.replace(".", "__")
