"""Every outcome is attested, whether anything ran or not, and risk decides whether an answer covers the next call."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.providers.scripted import Script
from palyra.adapters.store.sqlite.archive import Archive
from palyra.core.attestation import NOT_RUN
from palyra.core.events.tool import (
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    Risk,
    Scope,
    ToolFinished,
    ToolJudged,
    Verdict,
)
from palyra.core.tools import ToolSpec
from palyra.core.verification import verify
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, MarkTool, Workshop

pytestmark = pytest.mark.anyio


async def test_an_outcome_that_nothing_executed_is_attested_and_verified(tmp_path: Path) -> None:
    turns = (calls("mark.read", text="a"), calls("no.such.tool"), calls("mark.send", text="b"), says("Done."))
    workshop = Workshop(tmp_path, [Script(turns=turns)])
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask(can_ask=False)))
    outcomes = [event.data for event in events if isinstance(event.data, ToolFinished)]
    runtimes = [(each.outcome, each.attestation.runtime if each.attestation else None) for each in outcomes]
    assert runtimes == [(Outcome.OK, "internal"), (Outcome.DENIED, NOT_RUN), (Outcome.DENIED, NOT_RUN)]
    with Archive(tmp_path / "journal.db") as archive:
        report = verify(archive.evidence(KeyDirectory(tmp_path / "keys")))
    assert report.is_whole, report.findings
    assert report.summary.attestations_count == 3


class CriticalTool(MarkTool):
    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, risk=Risk.CRITICAL)


async def test_a_critical_call_asks_each_time_whatever_was_granted(tmp_path: Path) -> None:
    turn = calls("mark.danger", text="a")
    workshop = Workshop(tmp_path, [Script(turns=(turn, says("Done.")))])
    workshop.tools.append(CriticalTool("mark.danger", EffectClass.READ_ONLY, workshop.marks))
    async with workshop.open() as engine:
        for _ in range(2):
            record = await engine.runs.start(OWNER, ask(session_key="s"))
            await wait_for(engine, record.id, "run.waiting")
            (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
            answer = ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION)
            await engine.approvals.answer(OWNER, card.id, answer)
            events = await finished(engine, record)
            (judged,) = [event.data for event in events if isinstance(event.data, ToolJudged)]
            assert (judged.verdict, judged.rule) == (Verdict.ASK, "critical_risk")
