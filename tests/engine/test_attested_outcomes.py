"""Every outcome is attested, whether anything ran or not, and risk decides whether an answer covers the next call."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.providers.scripted import Script
from palyra.adapters.store.sqlite.archive import Archive
from palyra.core.attestation import NOT_RUN
from palyra.core.errors import Invalid
from palyra.core.events.tool import (
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    Risk,
    Scope,
    ToolFinished,
    ToolJudged,
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
    risk = Risk.CRITICAL

    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, risk=self.risk)


async def test_a_critical_call_asks_each_time_whatever_was_granted(tmp_path: Path) -> None:
    turn = calls("mark.danger", text="a")
    workshop = Workshop(tmp_path, [Script(turns=(turn, says("Done.")))])
    tool = CriticalTool("mark.danger", EffectClass.ONCE, workshop.marks)
    workshop.tools.append(tool)
    rules = []
    async with workshop.open() as engine:
        for risk, scope in ((Risk.HIGH, Scope.SESSION), (Risk.CRITICAL, Scope.ONCE)):
            tool.risk = risk
            record = await engine.runs.start(OWNER, ask(session_key="s"))
            await wait_for(engine, record.id, "run.waiting")
            (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=scope))
            events = await finished(engine, record)
            rules += [event.data.rule for event in events if isinstance(event.data, ToolJudged)]
    assert rules == ["message_send", "critical_risk"]


async def test_a_critical_call_is_allowed_once_and_never_for_longer(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("mark.danger", text="a"), says("Done.")))])
    workshop.tools.append(CriticalTool("mark.danger", EffectClass.READ_ONLY, workshop.marks))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        offered = {(option.scope, option.decisions) for option in card.options}
        both = (Decision.ALLOW, Decision.DENY)
        assert offered == {
            (Scope.ONCE, both),
            (Scope.SESSION, (Decision.DENY,)),
            (Scope.TIMEBOXED, (Decision.DENY,)),
        }
        for longer in (
            ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION),
            ApprovalAnswer(decision=Decision.ALLOW, option=2),
        ):
            with pytest.raises(Invalid, match="allowed once"):
                await engine.approvals.answer(OWNER, card.id, longer)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await finished(engine, record)
