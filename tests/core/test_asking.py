"""One card for calls that are alike: which calls it is about, and that its answer is for exactly those."""

import pytest
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    PolicySnapshot,
    Risk,
    Scope,
    ToolFinished,
    ToolJudged,
    ToolStarted,
    Touches,
    Verdict,
)
from palyra.core.ids import GrantId, digest_call, digest_calls
from palyra.core.offers import make_options
from palyra.core.run.deadlines import next_deadline_ms, overdue
from palyra.core.run.effects import Execute
from palyra.core.run.questions import PREVIEW_LENGTH_MAX, UNCERTAIN_REPEAT
from palyra.core.run.replay import replay
from palyra.core.run.states import RunState
from tests.support.runs import ALICE, Script, call_id, fold_tape
from tests.support.traits import shape_of

Proposal = tuple[str, dict[str, object]]
SEND: Proposal = ("channel.send", {"text": "hi"})


def write(path: str) -> Proposal:
    return "fs.write", {"path": path, "content": "x"}


def asking(*calls: Proposal, **judged: dict[int, object]) -> Script:
    """A turn of these calls, all judged Ask; `judged` changes fields of single verdicts, by their number from 1."""
    script = Script().begin().propose(*calls)
    for number, (tool, arguments) in enumerate(calls, 1):
        verdict = ToolJudged(
            call_id=call_id(number),
            verdict=Verdict.ASK,
            rule="writes_ask",
            reason="Writing there asks.",
            effect_class=EffectClass.ONCE,
            risk=Risk.HIGH,
            paths=(str(arguments.get("path", "")),),
            policy=PolicySnapshot(sha256="0" * 64, policies=("p1",)),
            options=make_options(tool, arguments, shape_of(tool)),
            preview=f"+{number}",
        )
        changes = {name: values[number] for name, values in judged.items() if number in values}
        script.feed(replace(verdict, **changes))
    return script


def cards(script: Script) -> list[ApprovalRequested]:
    return [data for data in script.data(ApprovalRequested) if isinstance(data, ApprovalRequested)]


def executed(script: Script) -> list[str]:
    return [data.call_id for data in script.data(ToolStarted) if isinstance(data, ToolStarted)]


def test_equal_calls_are_one_question_that_names_each_with_its_digest() -> None:
    (card,) = cards(asking(SEND, SEND, SEND))
    assert card.calls == tuple(call_id(number) for number in (1, 2, 3))
    assert card.digests == (digest_call(*SEND),) * 3
    assert card.digest == digest_calls(zip(card.calls, card.digests, strict=True))
    assert (card.count, card.call_id, card.reason) == (3, call_id(1), "Writing there asks.")
    assert [option.text for option in card.options] == [
        "these 3 calls of channel.send and no others",
        "this very call of channel.send, in this session",
        "this very call of channel.send, for a time, in all sessions",
    ]


def test_writes_into_one_folder_are_one_question_with_the_options_that_cover_them_all() -> None:
    paths = [f"notes/{n}.md" for n in range(12)]
    (card,) = cards(asking(*(write(path) for path in paths)))
    assert card.count == 12
    assert card.touches == Touches(paths=tuple(paths))
    assert card.preview == "\n\n".join(f"{path}: +{n}" for n, path in enumerate(paths, 1))
    assert [option.text for option in card.options] == [
        "these 12 calls of fs.write and no others",
        "fs.write in notes/, in this session",
        "fs.write in notes/, for a time, in all sessions",
    ]


def test_the_widest_folder_that_was_offered_decides() -> None:
    (card,) = cards(asking(write("notes/deep/a"), write("notes/b"), write("notes/c")))
    assert card.count == 3
    assert [option.scope for option in card.options] == [Scope.ONCE, Scope.SESSION, Scope.TIMEBOXED]


def test_one_call_alone_is_asked_about_as_ever() -> None:
    (card,) = cards(asking(SEND))
    assert (card.count, card.calls, card.digests, card.digest) == (1, (), (), digest_call(*SEND))
    assert card.options == make_options(*SEND, shape_of(SEND[0]))


@pytest.mark.parametrize(
    "change",
    [
        {"rule": {2: "other"}},
        {"risk": {2: Risk.CRITICAL}},
        {"taint": {2: ("web:a",)}},
        {"policy": {2: None}},
        {"reason": {2: "Another sentence."}},
        {"rule": {1: UNCERTAIN_REPEAT, 2: UNCERTAIN_REPEAT}},
    ],
)
def test_calls_that_are_judged_otherwise_are_asked_about_apart(change: dict[str, dict[int, object]]) -> None:
    assert [card.count for card in cards(asking(SEND, SEND, **change))] == [1, 1]


def test_calls_of_different_tools_folders_or_words_are_asked_about_apart() -> None:
    assert len(cards(asking(SEND, ("channel.send", {"text": "ho"}), write("a/x"), write("b/x")))) == 4


def test_nothing_is_asked_before_every_call_of_the_turn_is_judged() -> None:
    script = Script().begin().propose(SEND, SEND).judge(1, Verdict.ASK)
    assert not cards(script)
    script.judge(2, Verdict.ASK)
    assert [card.count for card in cards(script)] == [2]
    assert script.is_in(RunState.WAITING)


def test_calls_between_that_need_no_answer_are_not_of_the_group() -> None:
    script = Script().begin().propose(SEND, ("fs.read", {}), SEND).judge(1, Verdict.ASK).judge(2).judge(3, Verdict.ASK)
    (card,) = cards(script)
    assert card.calls == (call_id(1), call_id(3))


def test_yes_starts_exactly_the_calls_that_were_named_and_each_is_recorded_alone() -> None:
    script = asking(SEND, SEND, ("channel.send", {"text": "other"}))
    script.resolve(Decision.ALLOW, index=0)
    assert executed(script) == [call_id(1)]
    script.finish(1)
    assert executed(script) == [call_id(1), call_id(2)]
    script.finish(2)
    assert executed(script) == [call_id(1), call_id(2)]
    assert [card.count for card in cards(script)] == [2, 1]


def test_no_refuses_all_and_counts_as_one_denial() -> None:
    script = asking(*(SEND,) * 5).resolve(Decision.DENY)
    outcomes = [data.outcome for data in script.data(ToolFinished) if isinstance(data, ToolFinished)]
    assert outcomes == [Outcome.DENIED] * 5
    assert executed(script) == []
    assert script.state.progress.denials_count == 1


def test_group_expires_as_one() -> None:
    script = asking(SEND, SEND)
    script.now_ms = next_deadline_ms(script.state) or 0
    script.feed_drafts(*overdue(script.state, script.now_ms))
    assert [data.status for data in script.data(ApprovalResolved) if isinstance(data, ApprovalResolved)] == [
        ApprovalStatus.EXPIRED
    ]
    assert executed(script) == []


def test_yes_after_its_time_is_no_answer() -> None:
    script = asking(SEND)
    script.now_ms = next_deadline_ms(script.state) or 0
    with pytest.raises(Invalid) as caught:
        script.resolve(Decision.ALLOW)
    assert caught.value.code == "approval_expired"
    assert executed(script) == []


def test_steering_and_cancelling_close_a_group() -> None:
    assert executed(asking(SEND, SEND).say()) == []
    assert asking(SEND, SEND).cancel().is_in(RunState.CANCELLED)


def test_group_is_the_same_after_a_restart_and_on_replay() -> None:
    script = asking(SEND, SEND, write("a"))
    assert fold_tape(script.events()) == script.state
    script.resolve(Decision.ALLOW).resolve(Decision.DENY)
    assert replay(script.events()).difference is None


def test_answer_by_a_grant_is_an_answer() -> None:
    script = asking(SEND, SEND)
    (question,) = script.state.questions
    script.feed(
        ApprovalResolved(
            approval_id=question.approval_id,
            status=ApprovalStatus.ALLOWED,
            decision=Decision.ALLOW,
            decided_by=ALICE,
            digest=question.digest,
            covered_by=GrantId("g"),
        )
    )
    assert any(isinstance(effect, Execute) for effect in script.effects)


FORGERIES = {
    "another call's digest": {"digests": ("0" * 64, "1" * 64)},
    "a digest over other calls": {"digest": "0" * 64},
    "a call twice": {"calls": (call_id(1), call_id(1))},
    "fewer digests": {"digests": (digest_call(*SEND),)},
    "another count": {"count": 3},
    "another first call": {"call_id": call_id(2)},
    "another tool": {"tool": "fs.read"},
    "a call that is not there": {"calls": (call_id(1), call_id(9))},
    "another kind": {"kind": ApprovalKind.UNCERTAIN},
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES.keys())
def test_question_bound_to_other_calls_than_it_names_is_refused(forged: dict[str, object]) -> None:
    (card,) = cards(asking(SEND, SEND))
    script = Script().begin().propose(SEND, SEND)
    before = script.judge(1, Verdict.ASK).state
    with pytest.raises(Invalid):
        script.feed(replace(card, **forged))
    assert script.state is before


def test_preview_of_many_is_bounded_and_says_what_it_leaves_out() -> None:
    long = "+" * 4_000
    (card,) = cards(asking(*(SEND,) * 12, preview=dict.fromkeys(range(1, 13), long)))
    assert card.preview is not None
    assert len(card.preview) <= PREVIEW_LENGTH_MAX + 100
    assert card.preview.endswith("[what 8 more calls would change is not shown here]")


def test_commands_that_begin_alike_are_one_question() -> None:
    calls: list[Proposal] = [("shell.run", {"command": f"git push {name}"}) for name in ("a", "b")]
    words = {number: (("git", "push", name),) for number, name in ((1, "a"), (2, "b"))}
    options = {n: make_options(*calls[n - 1], shape_of(calls[n - 1][0], command_words=words[n])) for n in (1, 2)}
    script = asking(*calls, command_words=dict(words), options=dict(options))
    (card,) = cards(script)
    assert card.count == 2
    assert card.touches is not None
    assert card.touches.commands == ("git push a", "git push b")
