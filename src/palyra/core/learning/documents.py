"""What of the accepted candidates stands in a document of a workspace, such as MEMORY.md.

Owns: which candidates go to a document, which block each kind has, and the lines of a block.
Does not own: changing the document (engine.api.workspace_documents).
A block is written whole from the accepted candidates that name it. So applying one twice changes nothing, and undoing
one is writing the block without it.
"""

from collections.abc import Iterable

from palyra.core.fences import neutralise
from palyra.core.learning.model import Candidate, CandidateKind, CandidateOrigin, CandidateStatus
from palyra.core.learning.settings import LearningRuntimeConfig

DOCUMENT = "document"  # The member of a candidate's details that names the root of its document.
PATH = "MEMORY.md"
LINES_MAX = 100  # Every session of the agent is given the document, so it stays short; the newest lines stay.
LINE_CHARS_MAX = 300
BLOCKS = {CandidateKind.FACT: "facts", CandidateKind.DECISION: "decisions"}


def document_root(candidate: Candidate, workspace: tuple[str, ...], settings: LearningRuntimeConfig) -> str:
    """Returns the root whose document the candidate goes to, or nothing if it goes to memory.

    Only what compaction found goes to a document, only for the one principal whose documents they are, and only if it
    fits in a line.
    """
    is_found = candidate.origin is CandidateOrigin.COMPACTION and candidate.kind in BLOCKS
    if not is_found or candidate.owner != settings.documents_of or not workspace:
        return ""
    return workspace[0] if len(candidate.content) <= LINE_CHARS_MAX else ""


def block_lines(candidates: Iterable[Candidate], kind: CandidateKind) -> tuple[str, ...]:
    """Returns the lines of a block: one for each accepted candidate, the oldest first, the newest kept."""
    wanted = [each for each in candidates if each.kind is kind and each.status is CandidateStatus.ACCEPTED]
    wanted.sort(key=lambda each: (each.created_at_ms, each.id))
    lines = [f"- {line_of(each.content)}" for each in wanted]
    return tuple(dict.fromkeys(lines))[-LINES_MAX:]


def line_of(content: str) -> str:
    """Returns a content as one line that can be no mark of ours."""
    return neutralise(" ".join(content.split())).replace("<!--", "<! --")[:LINE_CHARS_MAX]
