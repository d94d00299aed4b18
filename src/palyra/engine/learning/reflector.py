"""Reflects on one run: asks a model if there is one and it is worth it, and reads by the rules otherwise.

Owns: when a model is asked. Does not own: the question and what the answer is worth (core.learning.reflection).
The question is a service run, so it is planned, reserved, settled and charged like every other (L9).
"""

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.compaction.transcript import OlderPart
from palyra.core.errors import PalyraError
from palyra.core.learning.model import CANDIDATES_PER_PRINCIPAL_MAX, CandidateKind
from palyra.core.learning.observed_run import ObservedRun
from palyra.core.learning.procedures import find_procedure
from palyra.core.learning.reflection import REFLECTION_SCHEMA, TO_PLACE, is_worth_asking, read_answer, write_question
from palyra.core.learning.rules import UNATTENDED, Finds, find_by_rules
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.learning.thresholds import is_tainted
from palyra.core.origins import kind_of
from palyra.core.service_runs import REFLECTION, ServiceRequest, question_ids
from palyra.core.trust import Trust, lowest
from palyra.engine.api.service_runs import ServiceRuns
from palyra.engine.compaction.compactor import Compactor
from palyra.engine.learning.run_reader import ReadRun
from palyra.ports.learning import CandidateFilter, LearningViews


class Reflected(msgspec.Struct, frozen=True, kw_only=True):
    """`by` is `model`, `rules` or `none`."""

    finds: Finds
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReflector:
    services: ServiceRuns
    settings: LearningRuntimeConfig
    views: LearningViews
    compactor: Compactor

    async def reflect(self, read: ReadRun, asked_at_ms: int | None, now_ms: int) -> Reflected:
        """`asked_at_ms` is when a model was last asked about a run of this session."""
        run = read.run
        by_rules = find_by_rules(run)
        answered: Finds | None = None
        if self._may_ask(run, asked_at_ms, now_ms):
            answered = await self._ask(run, await self._unsummarised(run) if read.is_long else None)
        finds = by_rules if answered is None else _joined(by_rules, answered)
        procedure = find_procedure(run)
        if procedure is not None:
            finds = Finds(kept=(*finds.kept, procedure), junk_count=finds.junk_count)
        return Reflected(finds=finds, by="rules" if answered is None else "model")

    def _may_ask(self, run: ObservedRun, asked_at_ms: int | None, now_ms: int) -> bool:
        is_cool = asked_at_ms is None or now_ms - asked_at_ms >= self.settings.cooldown_ms
        return is_cool and kind_of(run.origin) not in UNATTENDED and is_worth_asking(run)

    async def _unsummarised(self, run: ObservedRun) -> OlderPart | None:
        """Returns the session's older part, unless a summary of it was proposed already: nobody is asked twice."""
        try:
            older = await self.compactor.older_part(run.session_id)
        except PalyraError:
            return None
        query = CandidateFilter(kind=CandidateKind.COMPACTION, limit=CANDIDATES_PER_PRINCIPAL_MAX)
        proposed = await self.views.list_candidates(run.owner, query) if older is not None else ()
        places = [int(each.details.get(TO_PLACE, 0)) for each in proposed if each.session_id == run.session_id]
        return older if older is not None and max(places, default=0) < older.from_place else None

    async def _ask(self, run: ObservedRun, older: OlderPart | None) -> Finds | None:
        if older is not None:
            run = replace(run, trust=lowest((run.trust, older.trust)))
        question = write_question(run, older)
        request = ServiceRequest(
            spec=REFLECTION,
            principal=run.owner,
            text=question,
            trust=Trust.EXTERNAL if is_tainted(run.trust, run.taint) else run.trust,
            serves=run.session_id,
            serves_agent=run.agent or None,
            answer_schema=REFLECTION_SCHEMA,
            ids=question_ids(REFLECTION, run.run_id, question),
        )
        try:
            outcome = await self.services.perform(request)
        except PalyraError:
            return None  # No model, no budget, or no room: the rules have to do.
        return None if outcome.answer is None else read_answer(outcome.answer, run, older)


def _joined(by_rules: Finds, answered: Finds) -> Finds:
    """What a person asked to be remembered in so many words counts as they said it; the rest is the model's."""
    certain = tuple(find for find in by_rules.kept if find.confidence_bps >= _EXPLICIT_BPS)
    said = {find.content.casefold() for find in certain}
    others = tuple(find for find in answered.kept if find.content.casefold() not in said)
    return Finds(kept=(*certain, *others), junk_count=answered.junk_count)


_EXPLICIT_BPS = 9_500
