"""Builds the engine of a daemon: which adapter implements which port.

Owns: connecting adapters with ports, and turning the configuration into the engine's settings.
Does not own: rules, the daemon's start and end (daemon), which tools there are (tools).
Adapters are imported inside the functions that need them, so that a command loads only what it uses.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog

from palyra.adapters.anchors.places import open_places
from palyra.adapters.cron import SimulatedCron
from palyra.adapters.documents.files import WorkspaceDocumentFiles
from palyra.adapters.net.client import HttpClient
from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.readable.reader import IsolatedReader
from palyra.adapters.skills.learned import HomeLearnedSkills
from palyra.adapters.tools.catalog import ToolCatalog
from palyra.adapters.tools.past_results import JournalResults
from palyra.app import Home
from palyra.app.channels import answers_by_policy, make_channels, origins_max
from palyra.app.model_facts import build_prices, describe_model, make_budgets
from palyra.app.models import build_router
from palyra.app.secrets import SecretSources, open_sources
from palyra.app.telemetry import make_telemetry
from palyra.app.tools import StartingTools, StoredContent, ToolDependencies, ToolSet, build_tools, own_tools
from palyra.app.verify_process import verify_journal
from palyra.config import Config
from palyra.config.choices import Headless
from palyra.core.agents import DEFAULT_INSTRUCTIONS, AgentSpec
from palyra.core.compaction.model import CompactionSettings
from palyra.core.errors import Invalid
from palyra.core.healing.model import HealingModes
from palyra.core.ids import Principal, parse_principal
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.redaction import KnownSecrets, Redactor
from palyra.core.routines.wish import ConfiguredRoutine, RoutineWish, make_definition
from palyra.engine.engine import Engine
from palyra.engine.healing.loop_watch import LoopWatch
from palyra.engine.setup import EnginePorts, EngineSettings, EngineSetup, HealingSetup, Views
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.embedder import EmbeddingBatches, VectorIndex
from palyra.ports.memory import MemoryStores
from palyra.ports.schemas import SchemaCheck
from palyra.ports.sealer import Sealer
from palyra.ports.search import NoSearch
from palyra.ports.services import Service
from palyra.ports.signer import Signer
from palyra.ports.skills import NoSkills
from palyra.ports.state import NoState
from palyra.ports.token_counter import TokenCounter

if TYPE_CHECKING:
    from palyra.adapters.drafts.store import FileDrafts
    from palyra.adapters.embedders.bundled import BundledEmbedder
    from palyra.adapters.store.sqlite.journal import SqliteJournal
    from palyra.app.embedders import ChosenEmbedder

DAY_MS = 86_400_000
CLOCK_BEHIND_MS_MAX = 60_000  # Less is what the adjustment of a clock does.
_SCANNED_BYTES = 64 * 1024
_SCANNED_OVERLAP_BYTES = 4 * 1024  # A secret, with the name before it, is shorter.

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DaemonParts:
    """What the daemon opened before its engine."""

    client: HttpClient
    known: KnownSecrets
    policy: CedarPolicy
    loop_watch: LoopWatch | None = None
    token_holders: Callable[[], tuple[Principal, ...]] = lambda: ()


class Stores(NamedTuple):
    """What a home holds."""

    journal: "SqliteJournal"
    artifacts: Artifacts
    drafts: "FileDrafts"
    schemas: SchemaCheck
    signer: Signer
    sealer: Sealer
    clock: Clock


def build_engine(home: Home, config: Config, parts: DaemonParts) -> Engine:
    """Connects adapters with ports. A new tool, provider or store is one line here or in `tools`."""
    from palyra.adapters.drafts.folders import sweep_trials
    from palyra.adapters.drafts.trash import sweep_trash
    from palyra.adapters.runtimes.shell.leftovers import end_left

    secrets = open_sources(home, config, parts.known)
    stores = open_stores(home, config, parts.known)
    sweep_trials(home.drafts)
    sweep_trash(home.drafts)
    end_left(str(home.root))
    tools = build_tools(
        ToolDependencies(
            home=home,
            config=config,
            secrets=secrets,
            artifacts=stores.artifacts,
            schemas=stores.schemas,
            redactor=Redactor(stores.sealer.marker_key, parts.known),
            state=stores.journal.state,
            search=stores.journal.search,
            memory=stores.journal.memory_search,
            results=JournalResults(stores.journal, stores.journal.sessions, stores.journal.runs),
            provenance=stores.journal.provenance,
            documents=IsolatedReader(),
            drafts=stores.drafts,
        )
    )
    embedding = _make_embedding(config, parts, secrets, stores.journal.memory_search)
    telemetry = make_telemetry(config, stores.clock)
    setup = EngineSetup(
        journal=stores.journal,
        views=make_views(stores.journal),
        ports=_make_ports(home, config, parts, stores, _Made(secrets, tools, embedding)),
        clock=stores.clock,
        agents=make_agents(home, config),
        settings=make_settings(config),
        budgets=make_budgets(config),
        policy_state=parts.policy.state,
        known=parts.known,
        services=(*tools.services, embedding.service, *telemetry.services),
        healing=_make_healing(home, config, parts, stores, (*tools.services, embedding.service)),
        routines=make_routines(config),
        meter=telemetry.meter,
        observers=telemetry.observers,
        channels=make_channels(config, secrets, parts.client, stores.clock, stores.sealer.marker_key),
        may_answer=answers_by_policy(parts.policy),
        token_holders=parts.token_holders,
    )
    engine = Engine(setup, partial(verify_journal, home))
    tools.routines.bind(engine.routines)
    tools.memory.bind(engine.memory)
    tools.messages.bind(engine.outbox)
    stores.journal.memory_search.use(engine.embedder, embedding.words)
    return engine


def holds_secret(known: KnownSecrets, body: bytes) -> bool:
    """Looks piece by piece, so that other threads get their turn. What is hardly any text shows no secret."""
    redactor = Redactor(b"", known)
    for start in range(0, len(body), _SCANNED_BYTES):
        piece = body[start : start + _SCANNED_BYTES + _SCANNED_OVERLAP_BYTES].decode("utf-8", "replace")
        if piece.count("\ufffd") <= len(piece) // 8 and redactor.text(piece.replace("\x00", "\n")).secrets:
            return True
    return False


def open_stores(home: Home, config: Config, known: KnownSecrets) -> Stores:
    from palyra.adapters.artifacts.files import FileArtifacts, Sealing
    from palyra.adapters.clock import SystemClock, advance_clock
    from palyra.adapters.drafts.store import FileDrafts
    from palyra.adapters.keys.sealer import SEALED_ADDED_BYTES, FileSealer
    from palyra.adapters.keys.signer import FileSigner
    from palyra.adapters.schema import JsonSchemaCheck
    from palyra.adapters.store.sqlite.connection import JournalSettings
    from palyra.adapters.store.sqlite.journal import open_journal

    clock = SystemClock()
    signer = FileSigner(home.signing_key, home.public_keys)
    settings = JournalSettings(path=journal_path(home, config), durability=config.journal.durability.value)
    journal = open_journal(settings, signer, clock)
    behind_ms = advance_clock(journal.signed_at_ms)
    if behind_ms > CLOCK_BEHIND_MS_MAX:
        log.warning("clock_behind_journal", behind_s=behind_ms // 1000, see="docs/verify.md, A clock that was set back")
    sealer = FileSealer(home.vault_key)
    sealing = Sealing(partial(holds_secret, known), sealer.seal_body, sealer.unseal_body, SEALED_ADDED_BYTES)
    return Stores(
        journal=journal,
        artifacts=FileArtifacts(home.artifacts, sealing),
        drafts=FileDrafts(home.drafts),
        schemas=JsonSchemaCheck(),
        signer=signer,
        sealer=sealer,
        clock=clock,
    )


class _Embedding(NamedTuple):
    """The chosen embedder, the bundled one that compares single words, and what the watchdog sees of both."""

    chosen: "ChosenEmbedder"
    words: "BundledEmbedder"
    service: Service


class _Made(NamedTuple):
    secrets: SecretSources
    tools: ToolSet
    embedding: _Embedding


def _make_embedding(config: Config, parts: DaemonParts, secrets: SecretSources, index: VectorIndex) -> _Embedding:
    from palyra.adapters.embedders.bundled import BundledEmbedder
    from palyra.app.embedders import EmbedderService, choose_embedder

    chosen = choose_embedder(config, parts.client, secrets)
    words = chosen if isinstance(chosen, BundledEmbedder) else BundledEmbedder()
    return _Embedding(chosen, words, EmbedderService(chosen, words, index))


def _make_ports(home: Home, config: Config, parts: DaemonParts, stores: Stores, made: _Made) -> EnginePorts:
    secrets, tools, embedding = made
    prices = build_prices(config)
    router = build_router(home, config, parts.client, secrets, partial(describe_model, config, prices))
    if isinstance(embedding.chosen, EmbeddingBatches):
        router.put(embedding.chosen.model, embedding.chosen)
    return EnginePorts(
        router=router,
        prices=prices,
        policy=parts.policy,
        catalog=tools.catalog,
        schemas=stores.schemas,
        artifacts=stores.artifacts,
        signer=stores.signer,
        sealer=stores.sealer,
        cron=SimulatedCron(),
        processes=tools.processes,
        skills=tools.skills,
        references=tools.references,
        forget=tools.forget,
        tools_begun=tools.begun,
        kept=tools.kept,
        upkeep=stores.journal.upkeep,
        delegation=tools.delegation,
        drafts=stores.drafts,
        draft_leftovers=stores.drafts.leftovers,
        counter=_make_counter(config),
        documents=IsolatedReader(),
        document_files=WorkspaceDocumentFiles(),
        notes_root=_notes_root(home),
        embedder=embedding.chosen,
        learned_skills=HomeLearnedSkills(home.root),
        anchors=open_places(config.journal.anchors, parts.client),
    )


def _make_counter(config: Config) -> TokenCounter:
    from palyra.adapters.vocabulary.bundled import BundledVocabularies

    return BundledVocabularies({model.name: model.id or model.name for model in config.models})


def _make_healing(
    home: Home, config: Config, parts: DaemonParts, stores: Stores, services: tuple[Service, ...]
) -> HealingSetup:
    """A model that is given more time than usual for its first token is not taken for stuck within it."""
    from palyra.adapters.machine import LocalMachine
    from palyra.core.healing.rules import STUCK_MS

    timeouts = [max(each.first_token_timeout_s, each.idle_timeout_s) for each in config.providers]
    return HealingSetup(
        modes=make_modes(config),
        model_patience_ms=max(STUCK_MS, *(int(each * 1000) for each in timeouts), 0),
        machine=LocalMachine(home.root, home.artifacts),
        log=stores.journal.upkeep,
        services=services,
        loop_blocks=tuple if parts.loop_watch is None else parts.loop_watch.take,
    )


def make_modes(config: Config) -> HealingModes:
    return HealingModes(mode=config.healing.mode, domains=config.healing.domains)


def make_views(journal: "SqliteJournal") -> Views:
    return Views(
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


def build_catalog() -> ToolCatalog:
    """Returns the tools for offline commands, which ask what a recorded call was, and run none."""
    from palyra.adapters.artifacts.files import FileArtifacts
    from palyra.adapters.net.guard import Guard
    from palyra.adapters.runtimes.shell.unavailable import ShellLook

    stored = StoredContent(artifacts=FileArtifacts(Path(os.devnull)), state=NoState(), search=NoSearch())
    return ToolCatalog([*own_tools(Guard(), stored, NoSkills(), StartingTools()), ShellLook()])


def _notes_root(home: Home) -> str:
    """The notes of principals: in the home, where no tool of an agent reaches."""
    folder = home.root / "memory"
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)


def make_agents(home: Home, config: Config) -> dict[str, AgentSpec]:
    agents = {
        agent.name: AgentSpec(
            name=agent.name,
            instructions=agent.instructions or DEFAULT_INSTRUCTIONS,
            route=agent.route or "",
            tools=agent.tools,
            delegates=agent.delegates,
            instruction_files=agent.instruction_files,
            workspace=tuple(_workspace_root(home, agent.name, root) for root in agent.workspace)
            or (str(home.workspace),),
        )
        for agent in config.agents
    }
    return agents or {"main": AgentSpec(name="main", workspace=(str(home.workspace),))}


def _workspace_root(home: Home, agent: str, root: str) -> str:
    """Returns a workspace's root. No tool reaches anything of the home but its workspace, whatever the file says."""
    wanted = home.root / Path(root).expanduser()
    real, own = wanted.resolve(), home.root.resolve()
    holds_home = own.is_relative_to(real)
    lies_in_home = real.is_relative_to(own) and not real.is_relative_to(home.workspace.resolve())
    if holds_home or lies_in_home:
        raise Invalid(
            "workspace_invalid",
            f"agent {agent}: the workspace {root} would open {home.root} to tools, with its keys and its journal; "
            f"use a folder below {home.workspace}, or one outside {home.root}",
        )
    return str(wanted)


def make_settings(config: Config) -> EngineSettings:
    from palyra.core.run.loop import make_limits

    default = next((agent.name for agent in config.agents if agent.default), None)
    first = config.agents[0].name if config.agents else "main"
    return EngineSettings(
        limits=make_limits(config.run.wall_clock_s * 1000, config.run.max_tool_calls, config.run.parallel_tools),
        approval_timeout_ms=config.approvals.timeout_s * 1000,
        waits_headless=config.approvals.headless is Headless.WAIT,
        runs_active_max=config.limits.runs_active_max,
        runs_queued_max=config.limits.runs_queued_per_session_max,
        origins_max=origins_max(config),
        default_agent=default or first,
        compaction=CompactionSettings(
            is_automatic=config.context.auto_compaction,
            trigger=config.context.compaction_trigger,
            min_tokens=config.context.compaction_min_tokens,
        ),
        recalls_memory=config.memory.auto_inject,
        learning=LearningRuntimeConfig(
            is_enabled=config.learning.enabled,
            sample=config.learning.sample,
            review_bps=config.learning.review_bps,
            auto_write_threshold_bps=config.learning.auto_write_bps,
            auto_apply_bps=config.learning.auto_apply_bps,
        ),
        retention_ms=None if config.journal.retention_days is None else config.journal.retention_days * DAY_MS,
    )


def make_routines(config: Config) -> tuple[ConfiguredRoutine, ...]:
    """Returns the routines of the file. Invalid names the routine that cannot be, and says why."""
    agents = {agent.name for agent in config.agents} or {"main"}
    found = []
    for section in config.routines:
        wish = msgspec.convert(section, RoutineWish, from_attributes=True)
        try:
            definition = make_definition(wish, SimulatedCron().check)
        except Invalid as cause:
            raise Invalid(cause.code, f"routine {section.name}: {cause.message}") from cause
        if section.agent is not None and section.agent not in agents:
            raise Invalid("agent_unknown", f"routine {section.name}: there is no [[agent]] named {section.agent}")
        found.append(ConfiguredRoutine(principal=parse_principal(section.principal), definition=definition))
    return tuple(found)


def journal_path(home: Home, config: Config) -> Path:
    """Returns the one place of the journal, so that the offline tools find what the daemon wrote."""
    if config.journal.url != "sqlite:journal.db":
        raise Invalid("journal_url", f"{config.journal.url} is not part of this release yet; use sqlite:journal.db")
    return home.journal
