"""Pairing on a real journal: codes are used once, guesses tell nothing, links end."""

from pathlib import Path

import pytest

from palyra.core.channels.model import DirectMessages
from palyra.core.channels.pairing_codes import CODE_LIFE_MS, shown_code
from palyra.core.errors import Conflict, Invalid
from palyra.core.events.tool import Decision
from palyra.core.ids import Principal
from palyra.engine.api.outbox import LINKED
from palyra.engine.api.requests import ApprovalAnswer, RunsQuery
from palyra.engine.channels.intake import CODE_TAKEN, CODE_WRONG
from palyra.engine.channels.pairing_service import CodeWish
from tests.support.channels import ChannelScene, channel_scene, channel_workshop, message, rules
from tests.support.engines import OWNER
from tests.support.examples import examples
from tests.support.routines import SetClock

PAIRING = rules(dm_policy=DirectMessages.PAIRING)
ALLOW = ApprovalAnswer(decision=Decision.ALLOW, principal="user:alice", role="user")


async def test_a_code_leads_to_a_question_and_the_answer_to_a_link(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, (), PAIRING) as scene:
        _, letters = await scene.engine.pairing.issue(OWNER, CodeWish(principal=Principal("user:alice")))
        await scene.say(shown_code(letters).lower(), sender_display="Alice")
        assert await scene.heard(1) == [CODE_TAKEN]
        (card,) = await scene.questions()
        assert (card.kind, card.tool, card.run_id) == ("pairing", None, None)
        assert card.arguments == {
            "channel": "team", "sender_id": "s1", "display": "Alice", "principal": "user:alice", "role": None,
        }  # fmt: skip
        answered = await scene.engine.approvals.answer(
            Principal(card.session_id), card.id, ApprovalAnswer(decision=Decision.ALLOW), by=OWNER
        )
        assert (answered.status, answered.decided_by, answered.arguments) == ("allowed", OWNER, None)
        assert (await scene.heard(2))[-1] == LINKED
        with pytest.raises(Conflict, match="approval_decided"):
            await scene.engine.approvals.answer(Principal(card.session_id), card.id, ALLOW, by=OWNER)
        await scene.say("hello")
        assert (await scene.heard(3))[-1] == "Hi there."
        runs = await scene.engine.runs.list(Principal("user:alice"), RunsQuery())
        assert [run.principal for run in runs] == ["user:alice"]


async def test_a_denied_account_stays_a_stranger(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, (), PAIRING) as scene:
        _, letters = await scene.engine.pairing.issue(OWNER, CodeWish())
        await scene.say(letters)
        (card,) = await scene.questions()
        no = ApprovalAnswer(decision=Decision.DENY)
        await scene.engine.approvals.answer(Principal(card.session_id), card.id, no, by=OWNER)
        await scene.say("hello")
        assert await scene.engine.runs.list(None, RunsQuery()) == ()


async def test_a_code_is_used_once_whoever_uses_it(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, (), PAIRING) as scene:
        _, letters = await scene.engine.pairing.issue(OWNER, CodeWish())
        await scene.say(letters, sender_id="s1", conversation_id="c1")
        await scene.say(letters, sender_id="s2", conversation_id="c2")
        assert sorted(await scene.heard(2)) == sorted([CODE_TAKEN, CODE_WRONG])
        assert len(await scene.questions()) == 1


async def test_wrong_expired_and_foreign_codes_are_answered_alike_and_lock(tmp_path: Path) -> None:
    workshop = channel_workshop(tmp_path, (), PAIRING)
    workshop.clock = clock = SetClock()
    async with workshop.open() as engine:
        _, late = await engine.pairing.issue(OWNER, CodeWish())
        clock.forward(CODE_LIFE_MS / 1000)
        _, foreign = await engine.pairing.issue(OWNER, CodeWish(channel="other"))
        _, right = await engine.pairing.issue(OWNER, CodeWish())
        outcomes = []
        for letters in (late, foreign, "00000000", "00000001", "00000002", right):
            outcomes.append(await engine.pairing.consume(message(letters), letters, lambda is_right: ()))
        assert outcomes == [False, False, False, False, False, None]
        assert await engine.pairing.consume(message(right, sender_id="s2"), right, lambda is_right: ()) is True
        clock.forward(3_600)
        assert await engine.pairing.consume(message("0"), "00000003", lambda is_right: ()) is False


async def test_thousands_of_guesses_lead_nowhere_and_cost_little(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, (), PAIRING) as scene:
        await scene.engine.pairing.issue(OWNER, CodeWish())
        head = (await scene.engine._setup.journal.read_all(0, 1))[-1].position
        outcomes = set()
        for number in range(examples(1_000)):
            guess = message(f"{number:08d}", sender_id=f"s{number % 40}")
            outcomes.add(await scene.engine.pairing.consume(guess, f"{number:08d}", lambda is_right: ()))
        assert outcomes == {False, None}
        events = await scene.engine._setup.journal.read_all(head, 10_000)
        assert len([event for event in events if event.type == "pairing.locked"]) < 60
        assert await scene.questions() == ()


async def test_questions_and_links_end_with_their_time(tmp_path: Path) -> None:
    workshop = channel_workshop(tmp_path, (), PAIRING)
    workshop.clock = clock = SetClock()
    async with workshop.open() as engine:
        scene = ChannelScene(engine, workshop.channels[0].adapter, workshop)  # type: ignore[arg-type]
        _, letters = await engine.pairing.issue(OWNER, CodeWish())
        await engine.pairing.consume(message(letters), letters, lambda is_right: ())
        (card,) = await scene.questions()
        clock.forward(workshop.settings.approval_timeout_ms / 1000)
        assert await engine.pairing.expire() == 1
        assert (await engine.approvals.get(Principal(card.session_id), card.id)).status == "expired"
        await scene.link("s1", "user:alice")
        link = await engine.pairing.views.link("team", "s1")
        assert link is not None
        clock.at_ms = link.expires_at_ms
        receipt = await engine.channels.intake.receive(message("hello"))
        assert (receipt.is_accepted, receipt.reason) == (False, "pairing_needed")


async def test_a_revoked_link_ends_at_once_and_stays_on_record(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, (), PAIRING) as scene:
        await scene.link("s1", "user:alice")
        link = await scene.engine.pairing.views.link("team", "s1")
        assert link is not None
        await scene.engine.pairing.revoke(link.id, OWNER)
        with pytest.raises(Conflict, match="link_revoked"):
            await scene.engine.pairing.revoke(link.id, OWNER)
        assert (await scene.engine.channels.intake.receive(message("hello"))).reason == "pairing_needed"
        types = [event.type for event in await scene.engine._setup.journal.read_all(0, 1_000)]
        assert [each for each in types if each.startswith("pairing.")] == [
            "pairing.issued", "pairing.linked", "pairing.revoked",
        ]  # fmt: skip


@pytest.mark.parametrize("principal", ["channel:team", "system:x", "agent:main", "alice", None])
async def test_an_account_is_linked_to_a_person_only(tmp_path: Path, principal: str | None) -> None:
    async with channel_scene(tmp_path, (), PAIRING) as scene:
        _, letters = await scene.engine.pairing.issue(OWNER, CodeWish())
        await scene.engine.pairing.consume(message(letters), letters, lambda is_right: ())
        (card,) = await scene.questions()
        answer = ApprovalAnswer(decision=Decision.ALLOW, principal=principal)
        with pytest.raises(Invalid):
            await scene.engine.approvals.answer(Principal(card.session_id), card.id, answer, by=OWNER)
