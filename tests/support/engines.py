"""Engines for tests: a whole engine on a real journal in a folder, with scripted turns and tools that leave marks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from palyra.adapters.artifacts.files import FileArtifacts
from palyra.adapters.clock import SystemClock
from palyra.adapters.cron import SimulatedCron
from palyra.adapters.documents.files import WorkspaceDocumentFiles
from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.keys.sealer import FileSealer
from palyra.adapters.keys.signer import FileSigner
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.prices.tables import PriceTables
from palyra.adapters.providers.route_table import ModelRoute, RouteTable
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.readable.reader import IsolatedReader
from palyra.adapters.schema import JsonSchemaCheck
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from palyra.adapters.tools.agent_delegate import AgentDelegate
from palyra.adapters.tools.catalog import ToolCatalog
from palyra.adapters.tools.fs_read import FsRead
from palyra.adapters.tools.fs_write import FsWrite
from palyra.adapters.tools.time_now import TimeNow
from palyra.core.agents import AgentSpec
from palyra.core.budget import Budget
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass
from palyra.core.ids import Principal, SessionId
from palyra.core.routines.wish import ConfiguredRoutine
from palyra.core.tools import CallNature, Capability, MissingTool, ToolResult, ToolSpec
from palyra.core.trust import Trust
from palyra.engine.channels.directory import ConfiguredChannel, MayAnswer, nobody_may_answer
from palyra.engine.engine import Engine
from palyra.engine.setup import EnginePorts, EngineSettings, EngineSetup, HealingSetup, Views
from palyra.ports.anchors import Anchors, NoAnchors
from palyra.ports.clock import Clock
from palyra.ports.delegation import DelegationSlot
from palyra.ports.embedder import Embedder, EmbeddingBatches, NoEmbedder
from palyra.ports.journal import Journal
from palyra.ports.learned_skills import LearnedSkills, NoLearnedSkills
from palyra.ports.memory import MemoryStores
from palyra.ports.policy import Policy
from palyra.ports.prices import Prices
from palyra.ports.processes import NoProcesses, Processes
from palyra.ports.provider import Provider
from palyra.ports.references import ReferenceReaders
from palyra.ports.router import ModelCard
from palyra.ports.skills import NoSkills, Skills
from palyra.ports.telemetry import Meter, NoMeter, RunObserver
from palyra.ports.tools import Tool, ToolCallContext, ToolSource
from palyra.ports.workspace_documents import DocumentFiles

OWNER = Principal("user:owner")
ALICE = Principal("user:alice")

Hook = Callable[[ToolCallContext], None]


class MarkTool:
    """Leaves a line in a file outside the journal every time it really executes."""

    def __init__(self, name: str, effect_class: EffectClass, marks: Path, pause_s: float = 0.0) -> None:
        self._marks = marks
        self._pause_s = pause_s
        capability = {EffectClass.ONCE: {Capability.MESSAGE_SEND}, EffectClass.IDEMPOTENT: {Capability.FS_WRITE}}
        self._spec = ToolSpec(
            name=name,
            description=f"leaves a mark ({effect_class.value})",
            input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            capabilities=frozenset(capability.get(effect_class, ())),
            effect_class=effect_class,
            parallel_class=ParallelClass.NEVER if effect_class is EffectClass.ONCE else ParallelClass.READ_ONLY_SAFE,
            output_trust=Trust.LOCAL,
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        paths = ("marks",) if self._spec.effect_class is EffectClass.IDEMPOTENT else ()
        return CallNature(effect_class=self._spec.effect_class, parallel_class=self._spec.parallel_class, paths=paths)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        with self._marks.open("a") as file:
            file.write(f"{context.effect_id} {self._spec.name} {arguments['text']}\n")
        await asyncio.sleep(self._pause_s)
        return ToolResult(outcome=Outcome.OK, output=f"marked {arguments['text']}")


def mark_tools(marks: Path, pause_s: float = 0.0) -> list[Tool]:
    return [
        MarkTool("mark.read", EffectClass.READ_ONLY, marks, pause_s),
        MarkTool("mark.keep", EffectClass.IDEMPOTENT, marks, pause_s),
        MarkTool("mark.send", EffectClass.ONCE, marks, pause_s),
    ]


class Workshop:
    """Everything an engine needs, in one folder. `open` may be called again, as after a restart."""

    def __init__(
        self, root: Path, provider: Provider | Sequence[Script], settings: EngineSettings | None = None
    ) -> None:
        self.root = root
        self.marks = root / "marks"
        self.workspace = root / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.notes = root / "memory"
        self.notes.mkdir(exist_ok=True)
        self.settings = settings or EngineSettings()
        self.clock: Clock = SystemClock()
        self.policy: Policy = CedarPolicy()
        self.provider: Provider = ScriptedProvider(provider) if isinstance(provider, Sequence) else provider
        self.agents = {"main": AgentSpec(name="main", workspace=(str(self.workspace),))}
        self.providers: dict[str, Provider] = {}
        self.route: tuple[str, ...] = ("scripted",)
        self.routes: dict[str, ModelRoute] = {}
        self.describe: Callable[[str], ModelCard] | None = None
        self.prices: Prices = PriceTables({})
        self.budgets: tuple[Budget, ...] = ()
        self.routines: tuple[ConfiguredRoutine, ...] = ()
        self.channels: tuple[ConfiguredChannel, ...] = ()
        self.may_answer: MayAnswer = nobody_may_answer
        self.token_holders: tuple[Principal, ...] = ()
        self.tools: list[Tool] = [TimeNow(), FsRead(), FsWrite(), *mark_tools(self.marks)]
        self.sources: list[ToolSource] = []
        self.missing: list[MissingTool] = []
        self.processes: Processes = NoProcesses()
        self.forget: Callable[[SessionId], Awaitable[None]] = _forget_nothing
        self.kept: Callable[[], Awaitable[tuple[SessionId, ...]]] = _keep_nothing
        self.skills: Skills = NoSkills()
        self.has_delegation = False
        self.references = ReferenceReaders()
        self.embedder: Embedder | EmbeddingBatches = NoEmbedder()
        self.document_files: DocumentFiles = WorkspaceDocumentFiles()
        self.learned_skills: LearnedSkills = NoLearnedSkills()
        self.anchors: Anchors = NoAnchors()
        self.tools_begun: Callable[[], Awaitable[None]] = _begun_already
        self.drafts = FileDrafts(root / "drafts")
        self.journal_settings = JournalSettings(path=root / "journal.db")
        self.journal_tools: Callable[[SqliteJournal, FileArtifacts], Sequence[Tool]] = lambda journal, artifacts: ()
        self.healing = HealingSetup()
        self.meter: Meter = NoMeter()
        self.observers: tuple[RunObserver, ...] = ()
        self.policy_state: Callable[[], str] = lambda: "ok"
        self.wrap_journal: Callable[[Journal], Journal] = lambda journal: journal

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        engine = self.build()
        await engine.start()
        try:
            yield engine
        finally:
            await engine.close()

    def build(self) -> Engine:
        signer = FileSigner(self.root / "signing.key", self.root / "keys")
        journal = open_journal(self.journal_settings, signer, self.clock)
        artifacts = FileArtifacts(self.root / "artifacts")
        delegation = DelegationSlot()
        own = [*self.tools, AgentDelegate(delegation)] if self.has_delegation else self.tools
        ports = EnginePorts(
            router=RouteTable(
                self.providers or {"scripted": self.provider},
                {"": ModelRoute(self.route), **self.routes},
                self.clock,
                self.describe,
            ),
            prices=self.prices,
            policy=self.policy,
            catalog=ToolCatalog([*own, *self.journal_tools(journal, artifacts)], self.sources, self.missing),
            schemas=JsonSchemaCheck(),
            artifacts=artifacts,
            signer=signer,
            sealer=FileSealer(self.root / "vault.key"),
            cron=SimulatedCron(),
            skills=self.skills,
            references=self.references,
            processes=self.processes,
            upkeep=journal.upkeep,
            forget=self.forget,
            kept=self.kept,
            delegation=delegation,
            documents=IsolatedReader(),
            document_files=self.document_files,
            notes_root=str(self.notes),
            embedder=self.embedder,
            learned_skills=self.learned_skills,
            anchors=self.anchors,
            tools_begun=self.tools_begun,
            drafts=self.drafts,
            draft_leftovers=self.drafts.leftovers,
        )
        views = Views(
            sessions=journal.sessions,
            runs=journal.runs,
            approvals=journal.approvals,
            state=journal.state,
            usage=journal.usage,
            provenance=journal.provenance,
            jobs=journal.jobs,
            incidents=journal.incidents,
            routines=journal.routines,
            marks=journal.marks,
            memory=MemoryStores(views=journal.memory, upkeep=journal.memory, search=journal.memory_search),
            vectors=journal.memory_search,
            learning=journal.learning,
            workload=journal.workload,
            channels=journal.channels,
            positions=journal.positions,
            pairing=journal.pairing,
            outbox=journal.outbox,
        )
        setup = EngineSetup(
            journal=self.wrap_journal(journal),
            views=views,
            ports=ports,
            clock=self.clock,
            agents=self.agents,
            settings=self.settings,
            budgets=self.budgets,
            policy_state=self.policy_state,
            healing=replace(self.healing, log=self.healing.log or journal.upkeep),
            routines=self.routines,
            meter=self.meter,
            observers=self.observers,
            channels=self.channels,
            may_answer=self.may_answer,
            token_holders=lambda: self.token_holders,
        )
        return Engine(setup, _no_verify)

    def executed(self) -> list[str]:
        return self.marks.read_text().splitlines() if self.marks.exists() else []


async def _begun_already() -> None:
    """Waits for nothing."""


async def _forget_nothing(session_id: SessionId) -> None: ...


async def _keep_nothing() -> tuple[SessionId, ...]:
    return ()


async def _no_verify() -> dict[str, object]:
    return {"ok": True}
