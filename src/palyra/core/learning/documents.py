"""What of the accepted candidates stands in documents: a principal's own notes in the home, and MEMORY.md for all.

Owns: which candidates go to a document, whose document it is, which block each kind has, and the lines of a block.
Does not own: changing the document (engine.api.workspace_documents), showing it (engine.session.instruction_files).
Invariant: what one principal said stands in their own notes. It stands in a workspace, where every reader of the
workspace is given it, only if somebody who was told of those readers shared it.
A block is written whole from the accepted candidates that name it. So applying one twice changes nothing, and undoing
one is writing the block without it.
"""

import hashlib
import re
from collections.abc import Iterable

from palyra.core.fences import neutralise
from palyra.core.ids import Principal
from palyra.core.learning.model import Candidate, CandidateKind, CandidateOrigin, CandidateStatus

DOCUMENT = "document"  # The member of a candidate's details that names the workspace which it is about.
SHARED = "shared"  # The member that says who was told to read it. Without it, it is in its principal's notes alone.
PATH = "MEMORY.md"
NOTES = "palyra:memory.md"  # How a context names the notes of its own principal.
LINES_MAX = 100  # Every session of the agent is given the document, so it stays short; the newest lines stay.
LINE_CHARS_MAX = 300
BLOCKS = {CandidateKind.FACT: "facts", CandidateKind.DECISION: "decisions"}
SHARED_BLOCKS = {kind: f"shared-{name}" for kind, name in BLOCKS.items()}
IN_WORKSPACE = f"document:{PATH}#"  # What was applied to a workspace begins so.
_MARK_LENGTH = 12
_UNFIT = re.compile(r"[^a-z0-9]+")


def document_root(candidate: Candidate, workspace: tuple[str, ...]) -> str:
    """Returns the workspace in whose notes the candidate belongs, or nothing if it goes to memory.

    Only what compaction found goes to notes, and only if it fits in a line.
    """
    is_found = candidate.origin is CandidateOrigin.COMPACTION and candidate.kind in BLOCKS
    if not is_found or not workspace:
        return ""
    return workspace[0] if len(candidate.content) <= LINE_CHARS_MAX else ""


def notes_path(owner: Principal, root: str) -> str:
    """Returns where a principal's notes about one workspace lie, below the folder of all notes."""
    name = root.rstrip("/").rpartition("/")[2]
    return f"{notes_folder(owner)}/{_part(name, root)}.md"


def notes_folder(owner: Principal) -> str:
    return _part(owner, owner)


def is_in_workspace_for_all(candidate: Candidate) -> bool:
    """Tells whether a line stands where others read it although nobody shared it: homes of earlier days have such."""
    return candidate.applied_to.startswith(IN_WORKSPACE) and SHARED not in candidate.details


def _part(name: str, whole: str) -> str:
    """Makes one readable part of a path. The mark keeps two names apart whose letters are the same."""
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_LENGTH]
    return f"{_UNFIT.sub('-', name.casefold()).strip('-')[:32]}-{mark}".strip("-")


def block_lines(candidates: Iterable[Candidate], kind: CandidateKind) -> tuple[str, ...]:
    """Returns the lines of a block: one for each accepted candidate, the oldest first, the newest kept."""
    wanted = [each for each in candidates if each.kind is kind and each.status is CandidateStatus.ACCEPTED]
    wanted.sort(key=lambda each: (each.created_at_ms, each.id))
    lines = [f"- {line_of(each.content)}" for each in wanted]
    return tuple(dict.fromkeys(lines))[-LINES_MAX:]


def line_of(content: str) -> str:
    """Returns a content as one line that can be no mark of ours."""
    return neutralise(" ".join(content.split())).replace("<!--", "<! --")[:LINE_CHARS_MAX]
