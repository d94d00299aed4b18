"""Candidates as people see them: with what would change, and what they were drawn from.

Owns: the record, its difference and its excerpts. Does not own: deciding (engine.api.candidates).
"""

import difflib
from dataclasses import dataclass

import msgspec

from palyra.core.errors import PalyraError
from palyra.core.events import Event
from palyra.core.events.run import MessageAssistant, MessageUser
from palyra.core.events.tool import ToolProposed
from palyra.core.ids import CandidateId, Principal, RunId, SessionId
from palyra.core.learning.documents import BLOCKS, DOCUMENT, line_of, notes_path
from palyra.core.learning.model import Candidate
from palyra.core.learning.procedures import ALLOWED_TOOLS, skill_of
from palyra.core.trust import Trust
from palyra.engine.agents import AgentDirectory
from palyra.engine.learning.applier import TARGET, Destination, destination_of
from palyra.ports.journal import Journal
from palyra.ports.workspace_documents import DocumentFiles

EXCERPTS_MAX = 12
EXCERPT_CHARS_MAX = 400


class CandidateExcerpt(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a candidate was drawn from. `text` is empty if it was erased."""

    session_id: SessionId
    seq: int
    type: str
    actor: Principal
    trust: Trust
    text: str


class CandidateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate. `destination` is where it goes: memory, document, skill, disable, forget or compaction.

    `diff` is what accepting it changes, as lines that begin with `+` or `-`. `readers` are those who would be given a line
    of notes if it were shared. These and `excerpts` are set only if one candidate was asked for.
    """

    id: CandidateId
    principal: Principal
    kind: str
    origin: str
    status: str
    content: str
    confidence_bps: int
    trust: Trust
    taint: tuple[str, ...]
    session_id: SessionId
    run_id: RunId | None
    agent: str
    destination: str
    target: str
    why: str
    reason: str
    applied_to: str
    decided_by: Principal | None
    evidence_count: int
    created_at_ms: int
    updated_at_ms: int
    diff: tuple[str, ...] = ()
    excerpts: tuple[CandidateExcerpt, ...] = ()
    readers: tuple[str, ...] = ()


def candidate_record(candidate: Candidate) -> CandidateRecord:
    return CandidateRecord(
        id=candidate.id,
        principal=candidate.owner,
        kind=candidate.kind.value,
        origin=candidate.origin.value,
        status=candidate.status.value,
        content=candidate.content,
        confidence_bps=candidate.confidence_bps,
        trust=candidate.trust,
        taint=candidate.taint,
        session_id=candidate.session_id,
        run_id=candidate.run_id,
        agent=candidate.agent,
        destination=destination_of(candidate).value,
        target=candidate.details.get(TARGET, ""),
        why=candidate.details.get("why", ""),
        reason=candidate.reason,
        applied_to=candidate.applied_to,
        decided_by=candidate.decided_by,
        evidence_count=sum(len(evidence.seqs) for evidence in candidate.evidence),
        created_at_ms=candidate.created_at_ms,
        updated_at_ms=candidate.updated_at_ms,
    )


@dataclass(frozen=True, slots=True)
class CandidateShower:
    journal: Journal
    files: DocumentFiles
    notes_root: str
    agents: AgentDirectory
    channels: tuple[str, ...] = ()

    async def show(self, candidate: Candidate) -> CandidateRecord:
        record = candidate_record(candidate)
        excerpts, diff = await self._excerpts(candidate), await self._diff(candidate)
        return msgspec.structs.replace(record, excerpts=excerpts, diff=diff, readers=self.readers_of(candidate))

    def readers_of(self, candidate: Candidate) -> tuple[str, ...]:
        """Returns who is given a line that is shared in the workspace of these notes; nobody if it is in none."""
        root = candidate.details.get(DOCUMENT, "")
        names = [name for name, agent in self.agents.agents.items() if root in agent.workspace] if root else []
        agents = [f"everybody who talks to the agent {name}, with any token" for name in sorted(names)]
        channels = [f"everybody who writes to the channel {name}" for name in sorted(self.channels)]
        return (*agents, *channels) if agents else ()

    async def _diff(self, candidate: Candidate) -> tuple[str, ...]:
        match destination_of(candidate):
            case Destination.DOCUMENT:
                return await self._block_diff(candidate)
            case Destination.SKILL:
                draft = skill_of(candidate.content, candidate.details.get(ALLOWED_TOOLS, ""))
                lines = [f"+ {line}" for line in draft.text.splitlines()]
                return (f"+++ skills/{draft.name}/SKILL.md", *lines)
            case Destination.FORGET | Destination.DISABLE:
                return tuple(f"- {line}" for line in candidate.content.splitlines())
            case _:
                return tuple(f"+ {line}" for line in candidate.content.splitlines())

    async def _block_diff(self, candidate: Candidate) -> tuple[str, ...]:
        line = f"- {line_of(candidate.content)}"
        path = notes_path(candidate.owner, candidate.details[DOCUMENT])
        try:
            found = await self.files.read(self.notes_root, path)
        except PalyraError:
            return (f"+ {line}",)
        before = (found.text or "").splitlines()
        if line in before:
            return ()
        mark = f"<!-- palyra:end {BLOCKS[candidate.kind]} -->"
        place = before.index(mark) if mark in before else len(before)
        after = [*before[:place], line, *before[place:]]
        told = difflib.unified_diff(before, after, path, path, lineterm="", n=2)
        return tuple(told)

    async def _excerpts(self, candidate: Candidate) -> tuple[CandidateExcerpt, ...]:
        found: list[CandidateExcerpt] = []
        for evidence in candidate.evidence:
            for seq in evidence.seqs:
                if len(found) == EXCERPTS_MAX:
                    return tuple(found)
                page = await self.journal.read(evidence.session_id, seq - 1, 1)
                found += [_excerpt(evidence.session_id, event) for event in page if event.seq == seq]
        return tuple(found)


def _excerpt(session_id: SessionId, event: Event) -> CandidateExcerpt:
    match event.data:
        case MessageUser(text=text) | MessageAssistant(text=text):
            told = text
        case ToolProposed(tool=tool):
            told = tool
        case _:
            told = ""
    return CandidateExcerpt(
        session_id=session_id,
        seq=event.seq,
        type=event.type,
        actor=event.actor,
        trust=event.trust,
        text=told[:EXCERPT_CHARS_MAX],
    )
