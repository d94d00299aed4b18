"""Wires tools: which tools there are, what they depend on, their start and their end.

Does not own: whether a call may run (engine.session.gate).
A new tool is one line here. A tool whose package or program is missing is a MissingTool with the reason. Parts that
take long to load are loaded at their first use.
"""

from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from palyra.adapters.tools.catalog import ToolCatalog
from palyra.app import Home
from palyra.app.secrets import SecretSources
from palyra.app.services import LazyService, SandboxProxy
from palyra.config import Config
from palyra.core.errors import Unavailable
from palyra.core.ids import EffectId, Principal, SessionId
from palyra.core.memory.wish import MemoryAdded, MemoryOrigin, NewMemory
from palyra.core.redaction import Redactor
from palyra.core.routines.model import Routine
from palyra.core.routines.wish import RoutineWish
from palyra.core.tools import MissingTool
from palyra.ports.artifacts import Artifacts
from palyra.ports.channels import MessageQueue, MessageWish
from palyra.ports.delegation import DelegationSlot
from palyra.ports.drafts import Drafts, NoDrafts
from palyra.ports.memory import MemoryKeeper, MemorySearch, NoMemorySearch
from palyra.ports.processes import Processes
from palyra.ports.readable import DocumentReader, NoDocumentReader
from palyra.ports.references import ReferenceReaders
from palyra.ports.results import NoPastResults, PastResults
from palyra.ports.routines import RoutineMaker
from palyra.ports.schemas import SchemaCheck
from palyra.ports.search import MessageSearch
from palyra.ports.services import Service
from palyra.ports.skills import Skills
from palyra.ports.state import State
from palyra.ports.tools import Tool, ToolSource
from palyra.ports.views import ProvenanceViews

if TYPE_CHECKING:
    from palyra.adapters.browser.source import BrowserSource
    from palyra.adapters.drafts.store import FileDrafts
    from palyra.adapters.net.guard import Guard
    from palyra.adapters.runtimes.mcp.servers import McpServers
    from palyra.adapters.runtimes.shell.processes import ShellProcesses

SKILLS_FRESH_S = (
    1.0  # How old the list in a prompt may be: looking at every folder at every turn would cost more than judging.
)


class ToolDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that tools depend on."""

    home: Home
    config: Config
    secrets: SecretSources
    artifacts: Artifacts
    schemas: SchemaCheck
    redactor: Redactor
    state: State
    search: MessageSearch
    memory: MemorySearch
    results: PastResults
    provenance: ProvenanceViews
    drafts: "FileDrafts"
    documents: DocumentReader = msgspec.field(default_factory=NoDocumentReader)


class ToolSet(msgspec.Struct, frozen=True, kw_only=True):
    """The tools, and the services that run beside them as long as the daemon does."""

    catalog: ToolCatalog
    processes: Processes
    skills: Skills
    references: ReferenceReaders
    services: tuple[Service, ...]
    routines: "LateRoutines"
    memory: "LateMemory"
    messages: "LateMessages"
    forget: Callable[[SessionId], Awaitable[None]]
    kept: Callable[[], Awaitable[tuple[SessionId, ...]]]
    delegation: DelegationSlot
    begun: Callable[[], Awaitable[None]]


class StoredContent(msgspec.Struct, frozen=True, kw_only=True):
    artifacts: Artifacts
    state: State
    search: MessageSearch
    memory: MemorySearch = NoMemorySearch()
    results: PastResults = NoPastResults()
    drafts: Drafts = NoDrafts()


class StartingTools(msgspec.Struct, frozen=True):
    """What tools that start runs or keep items reach the engine through. The engine fills it in when it is built."""

    delegation: DelegationSlot = msgspec.field(default_factory=DelegationSlot)
    routines: "LateRoutines" = msgspec.field(default_factory=lambda: LateRoutines())
    memory: "LateMemory" = msgspec.field(default_factory=lambda: LateMemory())
    messages: "LateMessages" = msgspec.field(default_factory=lambda: LateMessages())


def build_tools(dependencies: ToolDependencies) -> ToolSet:
    """Builds the tools for a daemon. Nothing is started and nothing heavy is loaded yet."""
    from palyra.adapters.net.guard import Guard
    from palyra.adapters.runtimes.shell.processes import ShellProcesses
    from palyra.adapters.skills.skill_index import FolderSkills
    from palyra.app.plugins import plugin_tools

    guard = Guard((address.host, address.port) for address in dependencies.config.http.allow)
    skills = FolderSkills(dependencies.home.root, fresh_s=SKILLS_FRESH_S)
    processes = ShellProcesses(lambda text: dependencies.redactor.text(text).text)
    plugins = plugin_tools(dependencies.home)
    sandbox_proxy = SandboxProxy(guard)
    delegation = DelegationSlot()
    browser = _browser(dependencies, guard)
    sources: list[ToolSource] = [LazySource(partial(_shell, dependencies, processes, sandbox_proxy)), plugins, browser]
    services: list[Service] = [
        sandbox_proxy,
        LazyService("background processes", "process", processes),
        LazyService("dropped drafts", "sandbox", dependencies.drafts.trash),
        LazyService("plugins", "sandbox", plugins),
        LazyService("browser", "browser", browser),
    ]
    begun: Callable[[], Awaitable[None]] = _begun_already
    if dependencies.config.mcp_servers:
        servers = _servers(dependencies)
        sources.append(servers)
        services.append(servers)
        begun = servers.wait_begun
    stored = StoredContent(
        artifacts=dependencies.artifacts,
        state=dependencies.state,
        search=dependencies.search,
        memory=dependencies.memory,
        results=dependencies.results,
        drafts=dependencies.drafts,
    )
    starting = StartingTools(delegation)
    return ToolSet(
        catalog=ToolCatalog(own_tools(guard, stored, skills, starting), sources),
        processes=processes,
        skills=skills,
        references=reference_readers(guard, dependencies.documents),
        services=tuple(services),
        routines=starting.routines,
        memory=starting.memory,
        messages=starting.messages,
        forget=browser.forget,
        kept=browser.kept,
        delegation=delegation,
        begun=begun,
    )


async def _begun_already() -> None:
    """Waits for nothing: all tools are there from the start."""


def reference_readers(guard: "Guard", documents: DocumentReader) -> ReferenceReaders:
    """Returns what references are read by: `@file`, `@folder`, `@diff`, `@staged` and `@url`."""
    from palyra.adapters.references.changes import GitChanges
    from palyra.adapters.references.files import WorkspaceFiles
    from palyra.adapters.references.pages import GuardedPages

    return ReferenceReaders(files=WorkspaceFiles(), changes=GitChanges(), pages=GuardedPages(guard, documents))


def own_tools(guard: "Guard", stored: StoredContent, skills: Skills, starting: StartingTools) -> list[Tool]:
    """Returns the tools that every daemon has, wherever it runs."""
    from palyra.adapters.tools.agent_delegate import AgentDelegate
    from palyra.adapters.tools.artifact_read import ArtifactRead
    from palyra.adapters.tools.channel_send import ChannelSend
    from palyra.adapters.tools.fs_list import FsList
    from palyra.adapters.tools.fs_patch import FsPatch
    from palyra.adapters.tools.fs_read import FsRead
    from palyra.adapters.tools.fs_search import FsSearch
    from palyra.adapters.tools.fs_undo import FsUndo
    from palyra.adapters.tools.fs_write import FsWrite
    from palyra.adapters.tools.http_fetch import HttpFetch
    from palyra.adapters.tools.memory_retain import MemoryRetain
    from palyra.adapters.tools.memory_search import MemorySearchTool
    from palyra.adapters.tools.routine_create import RoutineCreate
    from palyra.adapters.tools.session_search import SessionSearch
    from palyra.adapters.tools.skill_open import SkillOpen
    from palyra.adapters.tools.time_now import TimeNow

    return [
        TimeNow(),
        FsRead(),
        FsList(),
        FsSearch(),
        FsWrite(),
        FsPatch(),
        FsUndo(stored.results, stored.artifacts, stored.drafts),
        HttpFetch(guard),
        ArtifactRead(stored.artifacts, stored.state, stored.results),
        SessionSearch(stored.search),
        MemorySearchTool(stored.memory),
        MemoryRetain(starting.memory),
        SkillOpen(skills),
        AgentDelegate(starting.delegation),
        RoutineCreate(starting.routines),
        ChannelSend(starting.messages, stored.artifacts, stored.state),
    ]


class LateRoutines:
    """The routines of an engine, for tools that are built before it."""

    def __init__(self) -> None:
        self._maker: RoutineMaker | None = None

    def bind(self, maker: RoutineMaker) -> None:
        self._maker = maker

    async def make(self, principal: Principal, wish: RoutineWish, effect_id: EffectId) -> Routine:
        return await self._bound.make(principal, wish, effect_id)

    def describe(self, wish: RoutineWish) -> str:
        return self._bound.describe(wish)

    @property
    def _bound(self) -> RoutineMaker:
        if self._maker is None:
            raise Unavailable("routines_unavailable", "routines need a running daemon")
        return self._maker


class LateMemory:
    """The memory of an engine, for tools that are built before it."""

    def __init__(self) -> None:
        self._keeper: MemoryKeeper | None = None

    def bind(self, keeper: MemoryKeeper) -> None:
        self._keeper = keeper

    async def keep(self, owner: Principal, wish: NewMemory, origin: MemoryOrigin) -> MemoryAdded:
        if self._keeper is None:
            raise Unavailable("memory_unavailable", "memory needs a running daemon")
        return await self._keeper.keep(owner, wish, origin)


class LateMessages:
    """The outbox of an engine, for a tool that is built before it."""

    def __init__(self) -> None:
        self._queue: MessageQueue | None = None

    def bind(self, queue: MessageQueue) -> None:
        self._queue = queue

    async def send(self, message: MessageWish) -> str:
        if self._queue is None:
            raise Unavailable("channels_unavailable", "channels need a running daemon")
        return await self._queue.send(message)


class LazySource:
    """A source that is built at its first use.

    The rules of every program that a shell may start take long to load.
    """

    def __init__(self, build: Callable[[], ToolSource]) -> None:
        self._build = build

    def tools(self) -> tuple[Tool, ...]:
        return self._source.tools()

    def missing(self) -> tuple[MissingTool, ...]:
        return self._source.missing()

    @cached_property
    def _source(self) -> ToolSource:
        return self._build()


def _shell(dependencies: ToolDependencies, processes: "ShellProcesses", sandbox_proxy: SandboxProxy) -> ToolSource:
    from palyra.adapters.runtimes.shell.groups_find import step_down
    from palyra.adapters.runtimes.shell.run import ShellSetup
    from palyra.adapters.runtimes.shell.tools import ShellTools

    step_down()
    return ShellTools(
        ShellSetup(
            processes=processes,
            taints_workspace=dependencies.provenance.taints_workspace,
            hidden=str(dependencies.home.root),
            proxy_path=str(sandbox_proxy.path),
            drafts=dependencies.drafts,
            drafts_home=dependencies.drafts.home,
        )
    )


def _browser(dependencies: ToolDependencies, guard: "Guard") -> "BrowserSource":
    from palyra.adapters.browser.sessions import BrowserSettings
    from palyra.adapters.browser.source import BrowserSource

    section = dependencies.config.browser
    settings = BrowserSettings(executable=section.executable, idle_s=section.idle_s, sessions_max=section.sessions_max)
    return BrowserSource(guard, dependencies.home.root / "browser", settings)


def _servers(dependencies: ToolDependencies) -> "McpServers":
    from palyra.adapters.runtimes.mcp.servers import McpServers
    from palyra.app.mcp_servers import server_settings

    settings = [server_settings(section, dependencies.secrets) for section in dependencies.config.mcp_servers]
    return McpServers(settings, dependencies.schemas, dependencies.home.root / "mcp.json")


def try_sandbox() -> tuple[bool, str]:
    """Tells whether commands can be sandboxed here, by running one, and what does it or why nothing can."""
    from palyra.adapters.runtimes.shell.groups import NoGroups
    from palyra.adapters.runtimes.shell.sandbox import NoSandbox, find_sandbox

    found = find_sandbox()
    if isinstance(found, NoSandbox):
        return False, found.reason
    if isinstance(found.groups, NoGroups):
        return True, f"{found.name}, by {found.program}; no control groups: {found.groups.reason}"
    return True, f"{found.name}+{found.groups.words}, by {found.program}"


def try_drafts(home: Home) -> tuple[bool, str]:
    """Tells whether commands can run in drafts here, by running one, or why they can only read."""
    from palyra.adapters.runtimes.shell.overlay import OverlayCheck
    from palyra.adapters.runtimes.shell.sandbox import NoSandbox, find_sandbox

    found = find_sandbox()
    if isinstance(found, NoSandbox):
        return False, "there is no sandbox"
    # A home that is not there yet is not made for a look: what it will lie in has the same disk.
    there = next(place for place in (home.drafts, *home.drafts.absolute().parents) if place.is_dir())
    missing = OverlayCheck(found, there).missing_here()
    if missing is not None:
        return False, missing.reason
    return True, f"commands write into drafts in {home.drafts}; what they changed is judged and then applied"
