"""Wires the policy lab: judges every recorded call of a journal by two sets of policies.

Does not own: what follows from the verdicts (core.lab), the policies (adapters.policy).
The lab works beside a daemon or without one. It executes and writes nothing. It takes what a call touches from the
record. The tool is asked again only for what the tape does not hold. That is
whether the call lies inside the workspace, and on old tapes also host and programs.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from palyra.app import Home, open_archive
from palyra.config import Config
from palyra.core.agents import AgentSpec, may_use
from palyra.core.errors import Corrupt
from palyra.core.events.codec import decode_data
from palyra.core.events.tool import Risk, Verdict
from palyra.core.ids import Principal, RunId, SessionId, StreamId, is_system_stream
from palyra.core.lab import Comparison, ComparisonBuilder, Gap, Judge, Proposal, Ruling
from palyra.core.lab_cedar import opens, permit_text
from palyra.core.lab_grants import TTL_S_DEFAULT, GrantHistory, GrantProposal
from palyra.core.lab_proposals import TYPES_READ, Fact, TapeReader
from palyra.core.tools import CallNature, Capability, ToolSpec
from palyra.core.verification.evidence import StoredEvent
from palyra.ports.policy import Policy, PolicyQuestion
from palyra.ports.schemas import SchemaCheck
from palyra.ports.tools import Catalog, Tool

if TYPE_CHECKING:
    from palyra.adapters.store.sqlite.archive import Archive

SUGGESTIONS_MAX = 50  # The strongest ones; nobody would go through a longer list.
TRIAL_NAME = "palyra-lab-trial.cedar"
EVENTS_BETWEEN_WORDS = 2_000  # How often progress is reported.
_FILES = frozenset({Capability.FS_READ, Capability.FS_WRITE})


class LabRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls to judge: since when, and whose (None: everyone's)."""

    since_ms: int
    now_ms: int
    principal: Principal | None = None
    ttl_s: int = TTL_S_DEFAULT


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A grant worth giving. `policy` opens it, unless the rule `held_by`, which no permit overrules, still asks."""

    grant: GrantProposal
    opens: tuple[str, ...]
    policy: str | None
    held_by: str | None


class LabReport(msgspec.Struct, frozen=True, kw_only=True):
    """`masked_prompts_count` and `left_out_prompts_count` count prompts from which no grant is proposed."""

    comparison: Comparison
    suggestions: tuple[Suggestion, ...]
    suggestions_count: int
    masked_prompts_count: int
    left_out_prompts_count: int
    ttl_s: int
    events_count: int
    tapes_count: int


@dataclass(frozen=True, slots=True)
class ReplayDependencies:
    """What a replayed call needs besides a policy: today's tools, agents and schemas."""

    catalog: Catalog
    agents: Mapping[str, AgentSpec]
    schemas: SchemaCheck


class Lab:
    """Compares the current policies of a home with drafts over them; without drafts it only proposes grants."""

    def __init__(
        self, home: Home, dependencies: ReplayDependencies, drafts: Sequence[Path], request: LabRequest
    ) -> None:
        self._home = home
        self._request = request
        self._drafts = tuple(drafts)
        self._replay = Replay(dependencies)
        self._now = self._load(())
        self._draft = self._load(self._drafts) if drafts else self._now

    def run(self, on_progress: Callable[[int, int], None]) -> LabReport:
        judge_now = self._replay.judge(self._now)
        builder = ComparisonBuilder(
            judge_now, judge_now if self._draft is self._now else self._replay.judge(self._draft)
        )
        history = GrantHistory()
        with open_archive(self._home) as archive:
            reading = _Reading(archive, self._request, on_progress)
            for found in reading.proposals():
                proposal = self._replay.prepared(found) if isinstance(found, Proposal) else found
                ruling = builder.add(proposal)
                if isinstance(proposal, Proposal) and ruling is not None and ruling.verdict is Verdict.ASK:
                    history.add(proposal)
        grants = history.proposals(self._request.now_ms, self._request.ttl_s)
        return LabReport(
            comparison=builder.result(),
            suggestions=self._suggestions(grants[:SUGGESTIONS_MAX]),
            suggestions_count=len(grants),
            masked_prompts_count=history.masked_count,
            left_out_prompts_count=history.left_out_count,
            ttl_s=self._request.ttl_s,
            events_count=reading.events_count,
            tapes_count=reading.tapes_count,
        )

    def _suggestions(self, grants: Sequence[GrantProposal]) -> tuple[Suggestion, ...]:
        """Tries the proposed grants.

        All their policies together are put over the draft, and each is tested on a prompt it was made from.
        """
        texts = [permit_text(grant) for grant in grants]
        with TemporaryDirectory(prefix="palyra-lab-") as folder:
            trial = Path(folder) / TRIAL_NAME
            trial.write_text("\n".join(text for text in texts if text is not None), encoding="utf-8")
            judge = self._replay.judge(self._load((*self._drafts, trial)))
        return tuple(
            Suggestion(grant=grant, opens=opens(grant), policy=text, held_by=_held_by(grant, judge))
            for grant, text in zip(grants, texts, strict=True)
        )

    def _load(self, drafts: Sequence[Path]) -> Policy:
        from palyra.adapters.policy.draft import load_draft

        return load_draft(drafts, self._home.policies, lambda: self._request.now_ms)


def open_lab(home: Home, config: Config, drafts: Sequence[Path], request: LabRequest) -> Lab:
    """Opens the lab with the daemon's tools and agents. Invalid says what is wrong with the policies or the drafts."""
    from palyra.adapters.schema import JsonSchemaCheck
    from palyra.app.engine_builder import build_catalog, make_agents

    return Lab(home, ReplayDependencies(build_catalog(), make_agents(home, config), JsonSchemaCheck()), drafts, request)


def begin_ms(since: str, zone: str, now_ms: int) -> int:
    """Returns when `30d`, `24h` or a date begins, as `palyra usage` does."""
    from palyra.engine.api.usage import begin_of, find_zone

    return begin_of(since, find_zone(zone), now_ms)


def _held_by(grant: GrantProposal, judge: Judge) -> str | None:
    ruling = None if grant.example is None else judge(grant.example)
    return None if ruling is None or ruling.verdict is Verdict.ALLOW else ruling.rule


class Replay:
    """Judges a recorded call as the gate would."""

    def __init__(self, dependencies: ReplayDependencies) -> None:
        self._dependencies = dependencies
        self._specs: dict[tuple[str, Risk], ToolSpec] = {}

    def prepared(self, proposal: Proposal) -> Proposal | Gap:
        """Returns the proposal with all that its tool says of it.

        The result is a gap if today's gate would stop the call before any policy.
        """
        tool = self._dependencies.catalog.find(proposal.tool)
        agent = self._dependencies.agents.get(proposal.agent)
        if tool is None:
            return Gap.TOOL_UNKNOWN
        if agent is None or not may_use(agent, proposal.tool):
            return Gap.AGENT_UNKNOWN
        if self._dependencies.schemas.errors(tool.spec.input_schema, proposal.arguments):
            return Gap.SCHEMA_CHANGED
        return replace(proposal, nature=_nature(proposal, tool, agent.workspace))

    def judge(self, policy: Policy) -> Judge:
        def judge(proposal: Proposal) -> Ruling:
            answer = policy.judge(self._question(proposal))
            return Ruling(answer.verdict, answer.rule)

        return judge

    def _question(self, proposal: Proposal) -> PolicyQuestion:
        return PolicyQuestion(
            principal=proposal.principal,
            agent=proposal.agent,
            session_id=proposal.session_id,
            channel=proposal.channel,
            spec=self._spec(proposal),
            arguments=proposal.arguments,
            nature=proposal.nature,
            taint=proposal.taint,
        )

    def _spec(self, proposal: Proposal) -> ToolSpec:
        """Returns the tool as it is today, with the risk it had then."""
        key = (proposal.tool, proposal.risk)
        if key not in self._specs:
            tool = self._dependencies.catalog.find(proposal.tool)
            assert tool is not None, "prepared() has found it"
            self._specs[key] = replace(tool.spec, risk=proposal.risk)
        return self._specs[key]


class _Reading:
    """Streams the proposals of all tapes, one tape after the other."""

    def __init__(self, archive: "Archive", request: LabRequest, on_progress: Callable[[int, int], None]) -> None:
        self._archive = archive
        self._request = request
        self._on_progress = on_progress
        self._total = archive.totals().events_count
        self.events_count = 0
        self.tapes_count = 0

    def proposals(self) -> Iterator[Proposal | Gap]:
        for stream in self._archive.streams():
            if not is_system_stream(stream):
                self.tapes_count += 1
                yield from self._of_tape(stream)
        self._on_progress(self._total, self._total)

    def _of_tape(self, stream: StreamId) -> Iterator[Proposal | Gap]:
        reader = TapeReader(SessionId(stream), self._request.since_ms)
        for stored in self._archive.events(stream):
            self._count()
            if stored.type not in TYPES_READ:
                continue
            yield from reader.feed(_fact(stream, stored))
            if self._is_of_another(reader.owner):
                return
        yield from reader.finish()

    def _is_of_another(self, owner: Principal | None) -> bool:
        return self._request.principal is not None and owner != self._request.principal

    def _count(self) -> None:
        self.events_count += 1
        if self.events_count % EVENTS_BETWEEN_WORDS == 0:
            self._on_progress(self.events_count, self._total)


def _fact(stream: StreamId, stored: StoredEvent) -> Fact:
    try:
        data = decode_data(stored.type, stored.data)
    except Corrupt as cause:
        message = f"session {stream} seq {stored.seq}: its data cannot be read ({cause.code}); palyra verify shows more"
        raise Corrupt(cause.code, message) from cause
    run_id = None if stored.run_id is None else RunId(stored.run_id)
    return Fact(type=stored.type, run_id=run_id, at_ms=stored.at_ms, data=data)


def _nature(proposal: Proposal, tool: Tool, workspace: tuple[str, ...]) -> CallNature:
    """Returns the recorded nature. A file tool's paths are complete; other tools are asked for what the tape lacks."""
    recorded = proposal.nature
    if recorded.paths and tool.spec.capabilities <= _FILES:
        return replace(recorded, is_in_workspace=all(_is_inside(path, workspace) for path in recorded.paths))
    said = tool.nature(proposal.arguments, workspace)
    return replace(
        recorded,
        host=recorded.host or said.host,
        is_in_workspace=said.is_in_workspace,
        commands=recorded.commands or said.commands,
    )


def _is_inside(path: str, workspace: tuple[str, ...]) -> bool:
    """Tells whether a path is inside. Recorded paths are relative to the first root; those elsewhere are absolute."""
    if not path.startswith("/"):
        return True
    roots = (posixpath.normpath(root) for root in workspace)
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)
