"""What a compaction found, as candidates.

Owns: which kept sentences are worth more than the session's summary. Does not own: keeping them in the session (core.compaction).
A sentence counts only if a person said it on the session's own tape, in their own words. What an earlier summary carried
along was looked at when it was said, and summarising again makes nothing more trusted (L8).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from palyra.core.compaction.findings import tells_steps
from palyra.core.compaction.model import KeptKind
from palyra.core.events import Event
from palyra.core.events.run import MessageUser
from palyra.core.events.session import SessionCompacted
from palyra.core.ids import is_agent
from palyra.core.learning.junk import junk_reason
from palyra.core.learning.model import CandidateKind
from palyra.core.learning.observed_run import SaidText, said_text
from palyra.core.learning.procedures import ALLOWED_TOOLS
from palyra.core.learning.rules import Find, Finds, own_sentences, read_sentence

FINDS_MAX = 20  # Of one compaction.
FACT_BPS = 7_500  # A number or a name in a sentence: a person looks before it is kept for good.
PROCEDURE_BPS = 8_000  # A procedure becomes instructions for every agent, so a person always looks.
OPEN_TASK = (
    "open_task"  # The member of a fact's details that says it is still to be done: a person decides whether it stays.
)
KINDS = {KeptKind.FACT.value: CandidateKind.FACT, KeptKind.DECISION.value: CandidateKind.DECISION}


def find_in_compaction(
    compacted: SessionCompacted, events: Sequence[Event], known: Sequence[str], taint: tuple[str, ...]
) -> Finds:
    """Returns facts, decisions, procedures, open tasks and standing wishes among the kept sentences.

    `taint` names the sources that the session's context holds: what is found in a tainted session waits for a person.
    """
    said: dict[str, SaidText] = {}
    for event in events:
        if isinstance(event.data, MessageUser) and not is_agent(event.actor):
            message = said_text(event.seq, event.data, event.trust)
            said.update(dict.fromkeys(own_sentences(message), message))
    kept: list[Find] = []
    junk_count = 0
    for item in compacted.items:
        source = said.get(item.text)
        if source is None:
            continue
        if junk_reason(item.text, known) is not None:
            junk_count += 1
        elif len(kept) < FINDS_MAX:
            kept.append(replace(_find(item.kind, item.text, source), taint=taint))
    return Finds(kept=tuple(kept), junk_count=junk_count)


def _find(kept_kind: str, text: str, message: SaidText) -> Find:
    if tells_steps(text):
        return Find(
            kind=CandidateKind.PROCEDURE,
            content=text,
            confidence_bps=PROCEDURE_BPS,
            seqs=(message.seq,),
            trust=message.trust,
            details={ALLOWED_TOOLS: ""},
        )
    if kept_kind == KeptKind.TASK.value:
        return Find(
            kind=CandidateKind.FACT,
            content=text,
            confidence_bps=FACT_BPS,
            seqs=(message.seq,),
            trust=message.trust,
            details={OPEN_TASK: "yes"},
        )
    read = read_sentence(text, message)
    if read is not None:
        return read
    kind = KINDS.get(kept_kind, CandidateKind.PREFERENCE)
    return Find(kind=kind, content=text, confidence_bps=FACT_BPS, seqs=(message.seq,), trust=message.trust)
