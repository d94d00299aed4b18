"""L2 across sessions: what is uncertain in a delegated run is not repeated by its sibling or its parent."""

from pathlib import Path

import pytest

from palyra.core.events.tool import ApprovalKind, ApprovalStatus, Decision, EffectClass
from palyra.core.run.questions import UNCERTAIN_REPEAT
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery
from palyra.engine.engine import Engine
from tests.engine.test_taint import AllowAll
from tests.support.asking import ask, calls, finished, says
from tests.support.delegating import child_begun, delegates, delegating, events_of, rules
from tests.support.engines import OWNER, MarkTool
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

SEND = calls("mark.send", text="x")


class Stalling(MarkTool):
    """Stalls in its first call only."""

    async def execute(self, *given):  # type: ignore[no-untyped-def]
        try:
            return await super().execute(*given)
        finally:
            self._pause_s = 0.0


async def open_question(engine: Engine, kind: ApprovalKind) -> ApprovalRecord:
    found: list[ApprovalRecord] = []

    async def is_asked() -> bool:
        cards = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        found[:] = [card for card in cards if card.kind == kind.value]
        return bool(found)

    await until(is_asked, "a question")
    return found[0]


async def test_uncertain_call_of_a_child_is_repeated_by_nobody_without_a_person(tmp_path: Path) -> None:
    made = delegating(
        tmp_path,
        ("^go$", (delegates("send it"), delegates("send again"), SEND, says("Done."))),
        ("^send it$", (SEND, says("Nobody knows."))),
        ("^send again$", (SEND, says("Not sent."))),
    )
    made.policy = AllowAll()
    stalling = Stalling("mark.send", EffectClass.ONCE, made.marks, 600.0)
    made.tools = [*(tool for tool in made.tools if tool.spec.name != "mark.send"), stalling]
    async with made.open() as engine:
        parent = await engine.runs.start(OWNER, ask("go"))
        (child,) = await child_begun(engine, parent.id)
        await until(made.marks.exists, "the first call")
        await engine.delegations.loops.redrive(child.session_id)
        for _ in ("sibling", "parent"):
            question = await open_question(engine, ApprovalKind.TOOL)
            assert len(made.executed()) == 1
            await engine.approvals.answer(OWNER, question.id, ApprovalAnswer(decision=Decision.DENY))
        events = await finished(engine, parent)
        _, sibling = await child_begun(engine, parent.id, 2)
        assert rules(await events_of(engine, sibling)) == rules(events)[-1:] == [UNCERTAIN_REPEAT]
        assert len(made.executed()) == 1
        doubt = await open_question(engine, ApprovalKind.UNCERTAIN)
        await engine.approvals.answer(OWNER, doubt.id, ApprovalAnswer(decision=Decision.GIVE_UP))
        assert not await engine._setup.views.approvals.is_doubted(OWNER, doubt.digest)
