"""A real engine with resources in every state that routes meet.

Owns: the engine's scripts, tools, skills and processes, and making sessions, runs, approvals, grants and artifacts.
Does not own: the gateway over it (scene), any claim.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from palyra.adapters.providers.prepared_turns import Chunk, Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.core.channel_writes import PutLink, QueueOutbox
from palyra.core.channels.identity import AccountLink
from palyra.core.channels.outbox import OutboxItem, OutboxKind, OutboxState
from palyra.core.events.run import CallerTool
from palyra.core.events.system import AdminActed
from palyra.core.events.tool import ApprovalStatus, Decision, EffectClass, Scope
from palyra.core.healing.model import Finding, HealingDomain, Remedy, Severity
from palyra.core.ids import ArtifactId, CandidateId, GrantId, JobId, Principal, RoutineId, SessionId, StreamId
from palyra.core.memory.wish import MemoryOrigin, NewMemory
from palyra.core.routines.wish import RoutineWish
from palyra.core.tools import MissingTool, ToolSpec
from palyra.core.trust import Trust
from palyra.core.writes import PutCandidate
from palyra.engine.api.jobs import JobRequest
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, RunRecord, SessionRequest
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.engine.engine import Engine
from palyra.engine.healing.remedies import HEALER
from palyra.ports.journal import Journal
from tests.support.asking import ask, calls, finished, first, says
from tests.support.channels import CHANNEL, MemoryPlatform, rules
from tests.support.embedders import LengthEmbedder
from tests.support.engines import OWNER, MarkTool, Workshop
from tests.support.learning import candidate_of
from tests.support.processes import FakeProcesses

SOURCE = "tool:mark.fetch"  # What a session of `tainted_session` is tainted by.
HTML = b"<p>bytes</p>"
MISSING = MissingTool("shell.run", "there is no sandbox here; install bubblewrap")
LONG_STORY = Turn(chunks=tuple(Chunk(f"word{n} ", 20) for n in range(500)))
SCRIPTS = [
    Script(when="^fetch$", turns=(calls("mark.fetch", text="page"), says("Read."))),
    Script(when="^send$", turns=(calls("mark.send", text="mail"), says("Sent."))),
    Script(when="^look it up$", turns=(calls("look_up", q="a"), says("Found."))),
    Script(when="^send and tell$", turns=(calls("mark.send", text="mail"), LONG_STORY)),
    Script(when="^slowly$", turns=(LONG_STORY,)),
    Script(turns=(says("It is done."), says("And this too."))),
]


class OutsideTool(MarkTool):
    """Its output is a stranger's."""

    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, output_trust=Trust.EXTERNAL)


@dataclass
class Prepared:
    """`ids` are of one resource of each kind, by the names that paths have for them, for tests that only read."""

    engine: Engine
    journal: Journal
    processes: FakeProcesses
    ids: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    async def resource_ids(self, owner: Principal = OWNER) -> dict[str, str]:
        """One new resource of each kind. The session is tainted and its run is over; the run waits for an approval."""
        run = await self.waiting_run(owner)
        return {
            "session_id": await self.tainted_session(owner),
            "run_id": run.id,
            "process_id": self.processes.begin(run),
            "approval_id": (await self.approval_of(run, owner)).id,
            "grant_id": await self.grant(owner),
            "artifact_id": await self.artifact(owner),
            "routine_id": await self.routine(owner),
            "job_id": await self.job(owner),
            "candidate_id": await self.candidate(owner),
            "name": "scripted",
            "model_name": "main",
            "response_id": f"resp_{run.id}",
            "token_id": "admin",
            "incident_id": await self.incident(),
        }

    async def channel_ids(self, path: str) -> dict[str, str]:
        """The names in paths about channels: the channel, a link of an account, and a message that was refused."""
        if "{link}" in path:
            return {"link": await self.link()}
        if "{item}" in path:
            return {"item": await self.dead_letter()}
        return {"name": CHANNEL} if path.startswith("/api/v1/channels") else {}

    async def link(self) -> str:
        number = next(self.numbers)
        link = AccountLink(
            id=f"01JZ{number:022d}",
            channel=CHANNEL,
            sender_id=f"s{number}",
            principal=Principal("user:alice"),
            role="user",
            display="Alice",
            made_by=OWNER,
            created_at_ms=1,
            expires_at_ms=1 << 42,
        )
        await self.journal.commit((), (PutLink(link),))
        return link.id

    async def dead_letter(self) -> str:
        item = OutboxItem(
            id=f"01JX{next(self.numbers):022d}",
            channel="gone",
            conversation_id="c1",
            kind=OutboxKind.NOTICE,
            text="hi",
            created_at_ms=1,
            state=OutboxState.DEAD,
        )
        await self.journal.commit((), (QueueOutbox(item),))
        return item.id

    async def incident(self) -> str:
        """An open one with a remedy that always works."""
        finding = Finding(
            domain=HealingDomain.DISK,
            subject="home",
            severity=Severity.WARNING,
            evidence="little space is left",
            remediation="Free some.",
            remedies=(Remedy.SWEEP_ARTIFACTS,),
        )
        return await self.engine.watchdog.record.opened(HEALER, finding, None)

    async def session(self, owner: Principal = OWNER) -> SessionId:
        return (await self.engine.sessions.resolve(owner, SessionRequest())).id

    async def pin(self, owner: Principal, session_id: str) -> str:
        return (await self.engine.marks.pin(owner, SessionId(StreamId(session_id)), "keep this", None)).id

    async def checkpoint(self, owner: Principal, session_id: str) -> str:
        return (await self.engine.marks.checkpoint(owner, SessionId(StreamId(session_id)), None, None)).id

    async def finished_run(self, owner: Principal = OWNER) -> RunRecord:
        run = await self.engine.runs.start(owner, ask())
        await finished(self.engine, run, owner)
        return run

    async def tainted_session(self, owner: Principal = OWNER) -> SessionId:
        run = await self.engine.runs.start(owner, ask("fetch"))
        await finished(self.engine, run, owner)
        return run.session_id

    async def running_run(self, owner: Principal = OWNER) -> RunRecord:
        """It speaks until it is cancelled or the engine is closed."""
        return await self.engine.runs.start(owner, ask("slowly"))

    async def waiting_run(self, owner: Principal = OWNER) -> RunRecord:
        run = await self.engine.runs.start(owner, ask("send"))
        await first(await self.engine.runs.follow(owner, run.id, None), "approval.requested")
        return run

    async def caller_run(self, owner: Principal = OWNER) -> RunRecord:
        """A run that waits for a result of its caller; its call is the first of the run."""
        run = await self.engine.runs.start(owner, ask("look it up", caller_tools=(CallerTool(name="look_up"),)))
        await first(await self.engine.runs.follow(owner, run.id, None), "run.waiting")
        return run

    async def approval(self, owner: Principal = OWNER) -> ApprovalRecord:
        return await self.approval_of(await self.waiting_run(owner), owner)

    async def approval_of(self, run: RunRecord, owner: Principal) -> ApprovalRecord:
        cards = await self.engine.approvals.list(owner, ApprovalsQuery(status=ApprovalStatus.PENDING, limit=400))
        return next(card for card in cards if card.run_id == run.id)

    async def grant(self, owner: Principal = OWNER) -> GrantId:
        card = await self.approval(owner)
        allowed = ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION)
        await self.engine.approvals.answer(owner, card.id, allowed)
        grants = await self.engine.approvals.grants(owner, "", 400)
        return next(grant.id for grant in grants if grant.approval_id == card.id)

    async def job(self, owner: Principal = OWNER) -> JobId:
        """A job that waits for a day."""
        job_id = await self.engine.jobs.enqueue(JobRequest(kind="maintenance", principal=owner, delay_ms=86_400_000))
        assert job_id is not None
        return job_id

    async def artifact(self, owner: Principal = OWNER) -> ArtifactId:
        body = HTML if owner == OWNER else f"of {owner}".encode()
        return (await self.engine.artifacts.put(owner, body, "text/html")).id

    async def routine(self, owner: Principal = OWNER) -> RoutineId:
        wish = RoutineWish(name=self.new_name(), prompt="go", every_s=86_400)
        return (await self.engine.routines.create(owner, wish)).id

    async def memory(self, owner: Principal) -> str:
        wish = NewMemory(content=f"the name of the boat is {self.new_name()}")
        (added,) = await self.engine.memory.add(owner, [wish], MemoryOrigin(name="api", actor=owner))
        return str(added.id)

    async def candidate(self, owner: Principal = OWNER) -> CandidateId:
        """One that waits for review."""
        candidate = candidate_of(f"The number is {next(self.numbers)}.", owner)
        await self.journal.commit([], [PutCandidate(candidate)])
        return candidate.id

    def new_name(self) -> str:
        """A name that no routine has."""
        return f"routine {next(self.numbers)}"

    async def acts(self) -> list[tuple[str, AdminActed]]:
        """Every administrative act on record, with who did it."""
        events = await self.journal.read_all(0, 10_000)
        return [(event.actor, event.data) for event in events if isinstance(event.data, AdminActed)]


@asynccontextmanager
async def open_prepared(root: Path) -> AsyncIterator[Prepared]:
    workshop = Workshop(root, SCRIPTS)
    workshop.tools.append(OutsideTool("mark.fetch", EffectClass.READ_ONLY, workshop.marks))
    workshop.missing.append(MISSING)
    workshop.channels = (ConfiguredChannel(rules(), MemoryPlatform()),)
    write_skill(root, "scripted", "---\nname: scripted\ndescription: A skill.\nallowed-tools: fs.read\n---\nDo it.\n")
    workshop.skills = FolderSkills(root, root / "none")
    workshop.processes = processes = FakeProcesses()
    journals: list[Journal] = []

    def keep(journal: Journal) -> Journal:
        journals.append(journal)
        return journal

    workshop.wrap_journal = keep
    async with workshop.open() as engine:
        engine.embedder = LengthEmbedder()
        prepared = Prepared(engine, journals[0], processes)
        prepared.ids = await prepared.resource_ids()
        yield prepared


def write_skill(base: Path, name: str, text: str) -> None:
    folder = base / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
