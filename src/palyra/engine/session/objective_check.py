"""Checks the objectives of a run against its answer.

Owns: looking at files, asking a reviewer, and the fact that says what came of it.
Does not own: what an objective is and what follows (core.run.objectives, core.run), the question (core.review), service
runs (engine.api.service_runs).
Invariants: a file is looked at only where the run's principal could read it with fs.read. The reviewer's run has ids
that come from the run and the turn. So a check that is repeated after a crash finds the same review, and is charged
once. What nobody could check is recorded as unchecked.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palyra.core.compaction.exchanges import exchanges_of
from palyra.core.context.window import trust_of
from palyra.core.errors import Invalid, NotFound, PalyraError
from palyra.core.events import Draft
from palyra.core.events.run import ObjectiveResult, ObjectivesChecked, ObjectiveState
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.core.ids import EffectId, RunId, SessionId, derive_child_ids, digest_call
from palyra.core.references.calls import read_call
from palyra.core.review import REVIEW_SCHEMA, ReviewCase, read_review, without_review, write_review
from palyra.core.run.objectives import (
    FileObjective,
    TextObjective,
    ToolObjective,
    check_tool,
    recorded_objectives,
    unchecked,
    unmet,
)
from palyra.core.run.state import Run
from palyra.core.service_runs import REVIEW, ServiceOutcome, ServiceRequest
from palyra.core.taint import labels, trust_of_taint
from palyra.core.trust import Trust, lowest
from palyra.engine.agents import AgentDirectory
from palyra.engine.hub import Hub, LiveFrame
from palyra.engine.session.drafts import ENGINE
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.reference_judge import ReferenceJudge, ReferenceSender
from palyra.ports.clock import Clock
from palyra.ports.references import FileReader

BROKEN = "The check did not come to an end; the daemon's log says why."

Review = Callable[[ServiceRequest], Awaitable[ServiceOutcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveChecker:
    """What checking needs, the same for all runs. `review` performs a service run."""

    judge: ReferenceJudge
    files: FileReader
    agents: AgentDirectory
    review: Review
    hub: Hub
    clock: Clock


class ObjectiveCheck:
    """One check of one run's answer."""

    def __init__(self, parts: ObjectiveChecker, run: Run, state: SessionState) -> None:
        self._parts = parts
        self._run = run
        self._state = state
        self._trust = lowest((run.trust, trust_of(state.window), trust_of_taint(state.taint)))

    async def perform(self) -> Draft:
        objectives = recorded_objectives(self._run.objectives)
        texts = tuple(each.text for each in objectives if isinstance(each, TextObjective))
        reviewed, review_run_id = await self._reviewed(texts) if texts else ((), None)
        left = iter(reviewed)
        results: list[ObjectiveResult] = []
        for objective in objectives:
            match objective:
                case FileObjective(path=path):
                    results.append(await self._look(path))
                case ToolObjective():
                    results.append(check_tool(objective, self._run.outcomes))
                case TextObjective():
                    results.append(next(left))
        return self._fact(tuple(results), review_run_id)

    def broken(self) -> Draft:
        """Returns the fact of a check that failed or was stopped."""
        return self._fact((unchecked(BROKEN),) * len(self._run.objectives), None)

    def _fact(self, results: tuple[ObjectiveResult, ...], review_run_id: RunId | None) -> Draft:
        data = ObjectivesChecked(turn=self._run.turn, results=results, review_run_id=review_run_id)
        trust = self._trust if any(result.is_reviewed for result in results) else Trust.SYSTEM
        now_ms = self._parts.clock.now_ms()
        return Draft(data=data, actor=ENGINE, trust=trust, at_ms=now_ms, run_id=self._run.run_id)

    async def _look(self, path: str) -> ObjectiveResult:
        run = self._run
        agent = self._parts.agents.of_run(run.agent)
        sender = ReferenceSender(
            principal=run.principal,
            agent=agent,
            session_id=self._state.session_id,
            trust=run.trust,
            taint=labels(self._state.taint),
            channel=run.origin,
            skills=run.skills,
        )
        verdict = self._parts.judge.judge(read_call(path), sender)
        if verdict.code is not None:
            return unchecked(f"The file may not be looked at: {verdict.reason}")
        try:
            await self._parts.files.find_file(path, agent.workspace)
        except (NotFound, Invalid) as missing:
            return unmet(f"{missing.message[:1].upper()}{missing.message[1:]}.")
        except PalyraError as error:
            return unchecked(f"The file could not be looked at: {error.message}.")
        return ObjectiveResult(state=ObjectiveState.MET)

    async def _reviewed(self, texts: tuple[str, ...]) -> tuple[tuple[ObjectiveResult, ...], RunId | None]:
        run, output = self._run, self._run.output
        case = ReviewCase(
            objectives=texts,
            exchanges=tuple(exchanges_of(self._state.window.items)),
            outcomes=run.outcomes,
            answer=output.text if output is not None else "",
            fence_id=secrets.token_hex(FENCE_ID_LENGTH // 2),
        )
        request = ServiceRequest(
            spec=REVIEW,
            principal=run.principal,
            text=write_review(case),
            trust=self._trust,
            serves=self._state.session_id,
            serves_agent=run.agent,
            answer_schema=REVIEW_SCHEMA,
            ids=review_ids(run.run_id, run.turn),
        )
        progress: dict[str, object] = {"phase": "review", "message": "A reviewer checks the answer."}
        self._parts.hub.live(LiveFrame(self._state.session_id, run.run_id, "progress", progress))
        try:
            outcome = await self._parts.review(request)
        except PalyraError as error:
            return without_review(len(texts), error.code), None
        if outcome.answer is None:
            return without_review(len(texts), outcome.code), outcome.run_id
        return read_review(outcome.answer, len(texts)), outcome.run_id


def review_ids(run_id: RunId, turn: int) -> tuple[SessionId, RunId]:
    """Returns the session and the run that review the answer of one turn: the same for every attempt."""
    return derive_child_ids(run_id, EffectId(digest_call(REVIEW.purpose, [run_id, turn])))
