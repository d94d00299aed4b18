"""A durable run through the engine: real journal, scripted turns, real tools."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.errors import Conflict, Invalid, NotFound, Unavailable
from palyra.core.events import Event
from palyra.core.events.run import CallerTool
from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunRecord, SessionRequest, WhenBusy
from palyra.engine.hub import LiveFrame
from tests.support.asking import READ_THEN_ANSWER, SEND_THEN_ANSWER, SLOW, ask, calls, finished, first, says, wait_for
from tests.support.engines import ALICE, OWNER, Workshop

pytestmark = pytest.mark.anyio


async def test_a_run_calls_a_tool_and_answers(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        done = await engine.runs.get(OWNER, record.id)
    assert [event.type for event in events] == [
        "run.accepted",
        "message.user",
        "run.started",
        "context.assembled",
        "route.planned",
        "model.requested",
        "usage.recorded",
        "model.output",
        "tool.proposed",
        "tool.judged",
        "tool.started",
        "tool.finished",
        "context.assembled",
        "route.planned",
        "model.requested",
        "usage.recorded",
        "model.output",
        "message.assistant",
        "run.done",
    ]
    assert (done.state, done.reason, done.answer) == ("done", "final_answer", "It is done.")
    assert len(workshop.executed()) == 1


async def test_live_text_reaches_a_follower_before_its_record(tmp_path: Path) -> None:
    async with Workshop(tmp_path, [Script(turns=(says("one two three four"),))]).open() as engine:
        _, frames = await engine.runs.start_and_follow(OWNER, ask())
        seen = [frame async for frame in frames]
    deltas = [frame for frame in seen if isinstance(frame, LiveFrame)]
    assert "".join(str(frame.data["text"]) for frame in deltas) == "one two three four"
    output = next(index for index, frame in enumerate(seen) if frame.type == "model.output")
    assert all(seen.index(frame) < output for frame in deltas)
    seqs = [frame.seq for frame in seen if isinstance(frame, Event)]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


async def test_same_idempotency_key_is_the_same_run(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:
        records = await asyncio.gather(*[engine.runs.start(OWNER, ask(idempotency_key="k")) for _ in range(8)])
        assert len({record.id for record in records}) == 1


async def test_a_call_that_asks_waits_and_runs_once_allowed(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        assert workshop.executed() == []
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        assert (card.tool, card.arguments, card.status) == ("mark.send", {"text": "mail"}, "pending")
        answered = await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        assert answered.status == "allowed"
        await finished(engine, record)
        with pytest.raises(Conflict, match="approval_decided"):
            await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.DENY))
        assert (await engine.runs.get(OWNER, record.id)).state == "done"
    assert len(workshop.executed()) == 1


async def test_a_waiting_run_costs_no_task_and_survives_a_restart(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
    async with workshop.open() as engine:
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in names if record.session_id in name or record.id in name]
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await finished(engine, record)
    assert len(workshop.executed()) == 1


async def test_a_session_grant_covers_the_same_call_and_can_be_revoked(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION))
        await finished(engine, record)
        covered = await engine.runs.start(OWNER, ask(session_key="s"))
        assert "run.waiting" not in [event.type for event in await finished(engine, covered)]
        (grant,) = await engine.approvals.grants(OWNER, "", 10)
        await engine.approvals.revoke(OWNER, grant.id)
        uncovered = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, uncovered.id, "run.waiting")
    assert len(workshop.executed()) == 2


async def test_a_second_run_queues_behind_the_first(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    async with workshop.open() as engine:
        held = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, held.id, "run.waiting")
        queued = await engine.runs.start(OWNER, ask(session_key="s"))
        assert queued.state == "accepted"
        with pytest.raises(Conflict, match="session_busy"):
            await engine.runs.start(OWNER, ask(session_key="s", when_busy=WhenBusy.REJECT))
        await engine.runs.cancel(OWNER, held.id)
        await wait_for(engine, queued.id, "run.waiting")
        assert (await engine.runs.get(OWNER, held.id)).state == "cancelled"


async def test_the_queue_has_a_limit(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SEND_THEN_ANSWER).open() as engine:
        held = await engine.runs.start(OWNER, ask(session_key="s"))
        await wait_for(engine, held.id, "run.waiting")
        for _ in range(32):
            await engine.runs.start(OWNER, ask(session_key="s"))
        with pytest.raises(Exception, match="queue_full"):
            await engine.runs.start(OWNER, ask(session_key="s"))


async def test_steering_answers_the_question_and_goes_on(tmp_path: Path) -> None:
    scripts = [Script(turns=(says("Then not."),), when="rather not"), *SEND_THEN_ANSWER]
    workshop = Workshop(tmp_path, scripts)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        await engine.runs.send_input(OWNER, record.id, "rather not", Trust.OPERATOR)
        await finished(engine, record)
        assert (await engine.runs.get(OWNER, record.id)).answer == "Then not."
    assert workshop.executed() == []


async def test_cancel_stops_a_streaming_model_and_keeps_its_words(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "model.delta")
        await engine.runs.cancel(OWNER, record.id)
        events = await finished(engine, record)
        assert (await engine.runs.get(OWNER, record.id)).state == "cancelled"
    last = ["cancel.requested", "usage.recorded", "model.output", "run.cancelled"]
    assert [event.type for event in events][-4:] == last


async def test_a_new_follower_hears_all_text_so_far(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SLOW).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        frames = await engine.runs.follow(OWNER, record.id, None)
        heard = ""
        while len(heard) < 20:
            frame = await first(frames, "model.delta")
            assert isinstance(frame, LiveFrame)
            heard += str(frame.data["text"])
        late = await first(await engine.runs.follow(OWNER, record.id, None), "model.delta")
        assert isinstance(late, LiveFrame)
        assert late.data["offset"] == 0
        assert str(late.data["text"]).startswith(heard)
        await engine.runs.cancel(OWNER, record.id)


async def test_what_is_of_one_principal_is_nothing_to_another(tmp_path: Path) -> None:
    async with Workshop(tmp_path, SEND_THEN_ANSWER).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery())
        for attempt in (
            engine.runs.get(ALICE, record.id),
            engine.runs.cancel(ALICE, record.id),
            engine.runs.send_input(ALICE, record.id, "x", Trust.OPERATOR),
            engine.runs.follow(ALICE, record.id, None),
            engine.sessions.get(ALICE, record.session_id),
            engine.sessions.tape(ALICE, record.session_id, 0, 10),
            engine.sessions.delete(ALICE, record.session_id),
            engine.feed.session(ALICE, record.session_id, None),
            engine.approvals.get(ALICE, card.id),
            engine.approvals.answer(ALICE, card.id, ApprovalAnswer(decision=Decision.ALLOW)),
            engine.runs.start(ALICE, ask(session_id=record.session_id)),
        ):
            with pytest.raises(NotFound):
                await attempt
        assert await engine.approvals.list(ALICE, ApprovalsQuery()) == ()
        assert await engine.sessions.list(ALICE, "", 10) == ()


async def test_a_branch_shares_history_without_copying_it(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        branch = await engine.sessions.branch(OWNER, record.session_id, events[-1].seq, "what if")
        assert [event.type for event in await engine.sessions.tape(OWNER, branch.id, 0, 10)] == ["session.branched"]
        again = await engine.runs.start(OWNER, ask(session_id=branch.id))
        assert (await finished(engine, again))[-1].type == "run.done"
        with pytest.raises(Invalid, match="seq_unknown"):
            await engine.sessions.branch(OWNER, record.session_id, 999, None)
        await engine.sessions.delete(OWNER, record.session_id)
        with pytest.raises(NotFound):
            await engine.sessions.get(OWNER, branch.id)


async def test_sessions_are_found_by_key_and_reset(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READ_THEN_ANSWER).open() as engine:
        made = await asyncio.gather(*[engine.sessions.resolve(OWNER, SessionRequest(key="k")) for _ in range(5)])
        assert len({row.id for row in made}) == 1
        assert (await engine.sessions.resolve(ALICE, SessionRequest(key="k"))).id != made[0].id
        reset = await engine.sessions.resolve(OWNER, SessionRequest(key="k", reset=True))
        assert reset.reset_seq == 2
        named = await engine.sessions.resolve(OWNER, SessionRequest(label="my notes"))
        assert (await engine.sessions.resolve(OWNER, SessionRequest(label="my notes"))).id == named.id
        assert (await engine.sessions.label(OWNER, named.id, "other")).label == "other"
        assert (await engine.sessions.resolve(OWNER, SessionRequest(label="my notes"))).id != named.id


async def test_secrets_are_not_on_the_tape_and_reach_the_tool_alone(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    workshop = Workshop(tmp_path, [Script(turns=(calls("mark.keep", text=token), says("Kept.")))])
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(f"keep {token}"))
        events = await finished(engine, record)
    assert token not in repr(events)
    assert token in workshop.executed()[0]
    assert not [path for path in tmp_path.glob("journal.db*") if token.encode() in path.read_bytes()]


async def test_a_secret_in_the_file_a_card_shows_is_not_on_the_card(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    hook = ".githooks/pre-commit"
    workshop = Workshop(tmp_path, [Script(turns=(calls("fs.write", path=hook, content="new\n"), says("Done.")))])
    (workshop.workspace / ".githooks").mkdir()
    (workshop.workspace / hook).write_text(f"curl -H 'Authorization: Bearer {token}'\n")
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        assert card.preview is not None
        assert "curl" in card.preview
        assert token not in card.preview


async def test_a_sweep_removes_only_bodies_that_nothing_refers_to(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    async with workshop.open() as engine:
        kept = await engine.artifacts.put(OWNER, b"linked", "text/plain")
        files = engine._setup.ports.artifacts
        lost, fresh = await files.put(b"never linked"), await files.put(b"about to be linked")
        for artifact_id in (kept.id, lost):
            os.utime(tmp_path / "artifacts" / artifact_id[:2] / artifact_id, (0, 0))
        assert await engine.artifacts.sweep() == 1
        assert [await files.size(artifact_id) for artifact_id in (kept.id, lost, fresh)] == [6, None, 18]
        with pytest.raises(NotFound):
            await engine.artifacts.get(ALICE, kept.id)
        assert (await engine.artifacts.get(OWNER, kept.id))[1] == b"linked"


async def test_a_journal_that_ended_on_its_own_stops_the_engine(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READ_THEN_ANSWER)
    engine = workshop.build()
    await engine.start()
    await engine._setup.journal.close()
    with pytest.raises(Unavailable, match="journal_closed"):
        await engine.runs.start(OWNER, ask())
    await engine._sign_once()
    assert engine.failed.is_set()
    await engine._parts.tasks.close()


async def test_a_valid_new_id_creates_its_session_and_anothers_is_not_found(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [])
    new = SessionId(StreamId("01JXT21Q00000000000000ZZZZ"))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask(session_id=new))
        assert record.session_id == new
        await finished(engine, record)
        again = await engine.runs.start(OWNER, ask(session_id=new))
        await finished(engine, again)
        assert (await engine.sessions.get(OWNER, new)).owner == OWNER
        with pytest.raises(NotFound):
            await engine.runs.start(ALICE, ask(session_id=new))
        other = SessionId(StreamId("01JXT21Q00000000000000YYYY"))
        assert (await engine.sessions.resolve(ALICE, SessionRequest(session_id=other))).id == other
        with pytest.raises(NotFound):
            await engine.sessions.resolve(OWNER, SessionRequest(session_id=other))


@pytest.mark.parametrize("when_busy", WhenBusy)
async def test_an_id_that_two_take_at_once_is_the_first_ones(tmp_path: Path, when_busy: WhenBusy) -> None:
    new = SessionId(StreamId("01JXT21Q00000000000000ZZZZ"))
    request = ask(session_id=new, when_busy=when_busy)
    async with Workshop(tmp_path, [Script(turns=(says("Done."), says("Done.")))]).open() as engine:
        starts = [engine.runs.start(principal, request) for principal in (OWNER, ALICE)]
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        (record,) = [outcome for outcome in outcomes if isinstance(outcome, RunRecord)]
        (refused,) = [outcome for outcome in outcomes if outcome is not record]
        assert str(refused) == f"session_unknown: there is no session {new}"
        events = await finished(engine, record, Principal(record.principal))
        assert [event.actor for event in events if event.type == "message.user"] == [record.principal]


async def test_ones_own_requests_at_once_for_a_new_id_share_its_session(tmp_path: Path) -> None:
    new = SessionId(StreamId("01JXT21Q00000000000000ZZZZ"))
    async with Workshop(tmp_path, [Script(turns=(says("Done."), says("Done.")))]).open() as engine:
        one, two, session = await asyncio.gather(
            engine.runs.start(OWNER, ask(session_id=new)),
            engine.runs.start(OWNER, ask(session_id=new)),
            engine.sessions.resolve(OWNER, SessionRequest(session_id=new)),
        )
        assert {one.session_id, two.session_id, session.id} == {new}
        assert one.id != two.id
        assert [(await finished(engine, record))[-1].type for record in (one, two)] == ["run.done"] * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"instructions": "key " * 60_000},
        {"caller_tools": (CallerTool(name="a", parameters={"description": "key " * 60_000}),)},
    ],
    ids=["instructions", "tools"],
)
async def test_what_no_event_could_hold_is_refused_before_it_is_looked_through(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async with Workshop(tmp_path, []).open() as engine:
        with pytest.raises(Invalid, match=r"text_length|tools_too_long"):
            await engine.runs.start(OWNER, ask(**changes))
        assert await engine.sessions.list(OWNER, "", 1) == ()
