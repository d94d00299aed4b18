"""The runtime of the injection tests. Owns: tools that are what the table says, and a list of what really ran. Not: verdicts."""

from collections import defaultdict
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome, ParallelClass, ToolError
from palyra.core.ids import SessionId
from palyra.core.taint import label
from palyra.core.tools import CallNature, Runtime, ToolResult, ToolSpec, Trait
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext
from tests.corpora.injection_tools import ADDRESSED, Deed, Entry

ANYTHING: JsonObject = {"type": "object"}


class Ran(msgspec.Struct, frozen=True):
    tool: str
    arguments: JsonObject


class Failure(Exception):
    """What a performed tool says went wrong."""


Perform = Callable[[str, JsonObject], str]


class Stage:
    """What stands behind the tools, one for each session, and what was done there, told by the tools themselves."""

    def __init__(self) -> None:
        self._performers: dict[SessionId, Perform] = {}
        self.ran: dict[SessionId, list[Ran]] = defaultdict(list)

    def set_up(self, session_id: SessionId, perform: Perform) -> None:
        self._performers[session_id] = perform

    def perform(self, session_id: SessionId, tool: str, arguments: JsonObject) -> str:
        self.ran[session_id].append(Ran(tool, arguments))
        return self._performers[session_id](tool, arguments)


class StagedTool:
    """A tool of the table."""

    def __init__(self, name: str, entry: Entry, stage: Stage, runtime: Runtime = Runtime.INTERNAL) -> None:
        self._entry = entry
        self._stage = stage
        is_looking = entry.deed in (Deed.LOOKS, Deed.OPENS)
        self._parallel = ParallelClass.READ_ONLY_SAFE if is_looking else ParallelClass.NEVER
        self._name = name
        self._spec = ToolSpec(
            name=f"mcp.{name}" if runtime is Runtime.MCP else name,
            description=f"{entry.deed.value}.",
            input_schema=ANYTHING,
            capabilities=entry.capabilities,
            effect_class=entry.effect_class,
            parallel_class=self._parallel,
            risk=entry.risk,
            output_trust=entry.trust,
            runtime=runtime,
            traits=frozenset({Trait.READS_OUTSIDE}),
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        path = arguments.get("file_path")
        return CallNature(
            effect_class=self._entry.effect_class,
            parallel_class=self._parallel,
            paths=(path,) if self._entry.deed is Deed.OPENS and isinstance(path, str) else (),
            host=_host(arguments) if self._entry.deed in ADDRESSED else None,
            address=_address(arguments) if self._entry.deed in ADDRESSED else None,
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        try:
            output = self._stage.perform(context.session_id, self._name, arguments)
        except Failure as failure:
            error = ToolError(code="failed", message="The service refused.")
            return ToolResult(outcome=Outcome.FAILED, output=str(failure), error=error, trust=Trust.EXTERNAL)
        # An account that is read stands for an MCP server: what it gives back comes straight from outside.
        is_account = self._entry.deed is Deed.LOOKS and self._entry.trust is Trust.EXTERNAL
        source = label("mcp", self._name.partition(".")[0]) if is_account else None
        return ToolResult(outcome=Outcome.OK, output=output, source=source)


def _address(arguments: JsonObject) -> str | None:
    url = arguments.get("url")
    return url if isinstance(url, str) else None


def _host(arguments: JsonObject) -> str | None:
    url = _address(arguments)
    if url is None:
        return None
    return urlsplit(url if "//" in url else f"//{url}").hostname
