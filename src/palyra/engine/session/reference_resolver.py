"""Resolves the references of one message: each is judged, read, redacted and cut by itself.

Owns: the order of these steps, the time limit of each reference, and the trust of what it brought (L8).
Does not own: finding references (core.references), judging (reference_judge), reading (ports.references), recording.
Invariants: text from outside resolves nothing. A reference that fails is a warning on that one, and no other. A text is
redacted before it is cut, so that no cut leaves half a secret (L5).
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec
import structlog

from palyra.core.errors import PalyraError
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.core.redaction import Redactor, Secret, find_markers
from palyra.core.references.calls import StandInCall, call_of, read_call
from palyra.core.references.caps import ROOM_MIN, cut_text, fit_total
from palyra.core.references.model import (
    CHARS_MAX,
    QUOTE_OPEN,
    REFERENCES_MAX,
    TARGET_LENGTH_MAX,
    TOO_LONG,
    TOO_MANY,
    Reference,
    ReferenceKind,
    ResolvedReference,
    refused,
)
from palyra.core.spelling import spell_out
from palyra.core.taint import label
from palyra.core.trust import Trust, is_tainting
from palyra.engine.session.file_taint import tainted_names
from palyra.engine.session.long_texts import redact_text
from palyra.engine.session.memory_reference import MemoryReader
from palyra.engine.session.reference_judge import ReferenceJudge, ReferenceSender
from palyra.engine.session.reference_records import RecordReader
from palyra.ports.references import ReadScope, ReferenceReaders, ReferenceText, TextPart
from palyra.ports.views import ProvenanceViews

LIMIT_S = 20.0
REDACTION_MARGIN = 8_000  # So many characters behind the cut are read too: a secret across the cut is then seen whole.
WHOLE = "."

_PROBLEMS = {
    TOO_MANY: f"a message has at most {REFERENCES_MAX} references",
    TOO_LONG: f"what follows the colon has at most {TARGET_LENGTH_MAX} characters",
    QUOTE_OPEN: "the quote is not closed; write the closing quote, or none for a path without blanks",
}

log = structlog.get_logger()


class _Composed(msgspec.Struct, frozen=True):
    text: str
    is_cut: bool
    secrets: tuple[Secret, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceResolver:
    judge: ReferenceJudge
    readers: ReferenceReaders
    records: RecordReader
    memory: MemoryReader
    provenance: ProvenanceViews
    redactor: Redactor
    limit_s: float = LIMIT_S

    async def resolve(self, references: Sequence[Reference], sender: ReferenceSender) -> tuple[ResolvedReference, ...]:
        """Returns one result for each reference, in order. All are read at once."""
        if is_tainting(sender.trust):
            return tuple(refused(each, "untrusted_text", "text from outside refers to nothing") for each in references)
        tasks = [
            asyncio.create_task(self._resolve(each, sender, number), name=f"reference {each.kind.value}")
            for number, each in enumerate(references)
        ]
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return fit_total(_outcome(each, task) for each, task in zip(references, tasks, strict=True))

    async def _resolve(self, reference: Reference, sender: ReferenceSender, number: int) -> ResolvedReference:
        problem = reference.problem or (TOO_MANY if number >= REFERENCES_MAX else None)
        if problem is not None:
            return refused(reference, problem, _PROBLEMS.get(problem, problem))
        target = reference.target or WHOLE
        if find_markers(target) or self.redactor.text(target).secrets:
            return refused(reference, "secret_in_reference", "the reference holds a secret; refer to it without")
        verdict = self.judge.judge(call_of(reference), sender)
        if verdict.code is not None:
            return refused(reference, verdict.code, verdict.reason)
        try:
            async with asyncio.timeout(self.limit_s):
                found = await self._read(reference, target, sender)
        except PalyraError as error:
            return refused(reference, error.code, error.message)
        except TimeoutError:
            return refused(reference, "timed_out", f"it was not read within {self.limit_s:g} s")
        return await self._resolved(reference, found, verdict.trust)

    async def _read(self, reference: Reference, target: str, sender: ReferenceSender) -> ReferenceText:
        chars_max = CHARS_MAX[reference.kind]
        scope = ReadScope(
            workspace=sender.agent.workspace,
            chars_max=chars_max + REDACTION_MARGIN,
            may_read=lambda path: self._allows(read_call(path), sender),
        )
        match reference.kind:
            case ReferenceKind.FILE:
                return await self.readers.files.read_file(target, scope)
            case ReferenceKind.FOLDER:
                return await self.readers.files.read_folder(target, scope)
            case ReferenceKind.DIFF:
                return await self.readers.changes.read_changes(target, scope)
            case ReferenceKind.STAGED:
                return await self.readers.changes.read_staged(target, scope)
            case ReferenceKind.URL:
                return await self.readers.pages.read_page(target, scope)
            case ReferenceKind.RUN:
                return await self.records.read_run(target, sender.principal, chars_max)
            case ReferenceKind.SESSION:
                return await self.records.read_session(target, sender.principal, chars_max)
            case ReferenceKind.MEMORY:
                return await self.memory.read_memory(target, sender)
            case _:
                assert_never(reference.kind)

    def _allows(self, call: StandInCall, sender: ReferenceSender) -> bool:
        return self.judge.judge(call, sender).code is None

    async def _resolved(self, reference: Reference, found: ReferenceText, trust: Trust) -> ResolvedReference:
        # Redacting takes milliseconds, in which other sessions go on.
        composed = await self._compose(found.parts, CHARS_MAX[reference.kind])
        trust = found.trust or trust
        source = found.source or label(reference.kind.value, reference.target or WHOLE)
        tainted = await tainted_names(self.provenance, found.read, found.named)
        if tainted:
            trust = Trust.EXTERNAL
            source = label("file", next(iter(tainted))) if len(tainted) == 1 else source
        return ResolvedReference(
            reference=reference,
            ok=True,
            text=composed.text,
            trust=trust,
            source=source,
            # The fence is drawn after the content exists, so that no content can hold it.
            fence_id=secrets.token_hex(FENCE_ID_LENGTH // 2),
            is_cut=composed.is_cut,
            secrets=composed.secrets,
            sources=found.sources,
            memory_ids=found.memory_ids,
        )

    async def _compose(self, parts: Sequence[TextPart], chars_max: int) -> _Composed:
        """Joins the parts. What a short part leaves free, later ones may use."""
        texts: list[str] = []
        found: dict[str, Secret] = {}
        left, is_cut = chars_max, False
        for count_left, part in zip(range(len(parts), 0, -1), parts, strict=True):
            head = f"--- {spell_out(part.title)} ---\n" if part.title else ""
            room = left // count_left - len(head) - 2
            redacted = await redact_text(self.redactor, part.text)
            if room < min(ROOM_MIN, len(redacted.text)):
                is_cut = True
                continue
            text, was_cut = cut_text(redacted.text, room, has_more=part.has_more)
            found.update((secret.id, secret) for secret in redacted.secrets)
            texts.append(head + text)
            left -= len(texts[-1]) + 2
            is_cut = is_cut or was_cut
        return _Composed("\n\n".join(texts), is_cut, tuple(found.values()))


def _outcome(reference: Reference, task: "asyncio.Task[ResolvedReference]") -> ResolvedReference:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is None:
        return task.result()
    log.error("reference_broken", kind=reference.kind.value, exc_info=error)
    return refused(reference, "broken", "it could not be read; the daemon's log says why")
