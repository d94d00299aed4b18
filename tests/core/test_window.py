"""The window over a conversation: bounded, and valid for every provider whatever the tape's order."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.context.prompt import render
from palyra.core.context.window import CHARS_MAX, ITEMS_MAX, Window, extend, trust_of
from palyra.core.events import Data, Event
from palyra.core.events.model import Finish, ModelOutput, ToolCall
from palyra.core.events.run import (
    AnswerRejected,
    EndReason,
    GuardTripped,
    MessageAssistant,
    MessageUser,
    RunCancelled,
    RunStarted,
)
from palyra.core.events.session import SessionReset
from palyra.core.events.tool import Outcome, ToolError, ToolFinished, ToolUncertain
from palyra.core.ids import CallId, EffectId, RunId
from palyra.core.trust import Trust
from tests.support.runs import ALICE, RUN, SESSION

NEXT_RUN = RunId("01JZ0000000000000000RUN002")
EFFECT = EffectId("e" * 64)


def event(data: Data, trust: Trust = Trust.OPERATOR, run_id: RunId = RUN) -> Event:
    return Event(
        seq=1, position=1, stream=SESSION, run_id=run_id, type=data.TYPE, at_ms=0, actor=ALICE, trust=trust, data=data,
        hash="", salt=None, digest="",
    )  # fmt: skip


def window_of(*facts: Data) -> Window:
    """Facts of one run that has begun."""
    window = Window()
    for fact in (RunStarted(), *facts):
        window = extend(window, event(fact))
    return window


def shown(*facts: Data) -> tuple[Message, ...]:
    return render(window_of(*facts))


def user(text: str) -> MessageUser:
    return MessageUser(text=text)


def output(text: str, *call_ids: str, finish: Finish = Finish.STOP) -> ModelOutput:
    calls = tuple(ToolCall(call_id=CallId(one), tool="fs.read", arguments={"path": one}) for one in call_ids)
    return ModelOutput(turn=1, text=text, tool_calls=calls, finish=finish, usage=None)


def finished(call_id: str, text: str = "out", error: ToolError | None = None) -> ToolFinished:
    outcome = Outcome.OK if error is None else Outcome.FAILED
    return ToolFinished(
        call_id=CallId(call_id), effect_id=EFFECT, outcome=outcome, error=error, attestation=None, output=text
    )


def uncertain(call_id: str) -> ToolUncertain:
    return ToolUncertain(call_id=CallId(call_id), effect_id=EFFECT)


def test_what_was_said_and_done_is_shown_in_order() -> None:
    said = shown(user("look"), RunStarted(), output("I look.", "c1"), finished("c1"), output("It is so."))
    assert [type(message) for message in said] == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage]
    assert said[2] == ToolMessage("c1", "out")


def test_accepted_answer_is_not_shown_twice() -> None:
    assert len(shown(user("hi"), output("Hello."), MessageAssistant(text="Hello."))) == 2


def test_interrupted_output_is_not_shown() -> None:
    assert shown(user("hi"), output("Hel", finish=Finish.INTERRUPTED)) == (UserMessage("hi"),)


def test_results_stand_behind_their_calls_though_a_person_spoke_meanwhile() -> None:
    said = shown(user("go"), output("", "c1", "c2"), finished("c2"), user("hurry"), finished("c1"))
    assert [getattr(message, "call_id", type(message).__name__) for message in said] == [
        "UserMessage", "AssistantMessage", "c1", "c2", "UserMessage",
    ]  # fmt: skip


def test_call_without_a_result_and_result_without_a_call_are_left_out() -> None:
    said = shown(user("go"), output("Two.", "c1", "c2"), finished("c2"), finished("c9"))
    assert isinstance(said[1], AssistantMessage)
    assert [call.call_id for call in said[1].tool_calls] == ["c2"]
    assert said[2:] == (ToolMessage("c2", "out"),)


def test_output_that_only_made_unanswered_calls_is_left_out() -> None:
    assert shown(user("go"), output("", "c1")) == (UserMessage("go"),)


def test_later_word_on_an_uncertain_call_replaces_the_earlier_in_its_place() -> None:
    said = shown(user("go"), output("", "c1"), uncertain("c1"), output("I wait."), finished("c1", "done"))
    assert said[2] == ToolMessage("c1", "done")
    assert said[3] == AssistantMessage("I wait.")
    assert len(said) == 4


def test_uncertain_call_is_told_as_such() -> None:
    told = shown(user("go"), output("", "c1"), uncertain("c1"))[2]
    assert isinstance(told, ToolMessage)
    assert told.is_error
    assert "not known" in told.text


def test_failure_is_told_with_its_code_and_artifact_with_its_id() -> None:
    failure = finished("c1", "", ToolError(code="not_found", message="no such file"))
    spilled = ToolFinished(
        call_id=CallId("c2"), effect_id=EFFECT, outcome=Outcome.OK, error=None, attestation=None, output="begins",
        artifact_id="a" * 64,
    )  # fmt: skip
    told = shown(user("go"), output("", "c1", "c2"), failure, spilled)
    assert told[2] == ToolMessage("c1", "failed: not_found: no such file", is_error=True)
    assert isinstance(told[3], ToolMessage)
    assert "a" * 64 in told[3].text


def test_words_of_the_daemon_are_marked_as_its_own() -> None:
    guidance = GuardTripped(guard="denials", trip=1, guidance="Stop.")
    rejected = AnswerRejected(turn=1, problems=("Empty.", "Wrong."))
    assert shown(guidance, rejected) == (UserMessage("[palyra] Stop."), UserMessage("[palyra] Empty. Wrong."))


def test_words_of_a_queued_run_are_heard_when_it_begins() -> None:
    busy = window_of(user("first"), output("", "c1"))
    queued = extend(busy, event(user("second"), run_id=NEXT_RUN))
    answered = extend(extend(queued, event(finished("c1"))), event(output("Done.")))
    assert UserMessage("second") not in render(answered)
    begun = extend(answered, event(RunStarted(), run_id=NEXT_RUN))
    assert render(begun)[-2:] == (AssistantMessage("Done."), UserMessage("second"))


def test_words_of_a_run_cancelled_in_the_queue_are_never_heard() -> None:
    queued = extend(window_of(user("first")), event(user("second"), run_id=NEXT_RUN))
    cancelled = extend(queued, event(RunCancelled(reason=EndReason.CANCELLED, message=""), run_id=NEXT_RUN))
    steered = extend(extend(cancelled, event(user("more"))), event(output("Done.")))
    assert render(steered) == (UserMessage("first"), UserMessage("more"), AssistantMessage("Done."))


def test_reset_empties_the_window() -> None:
    assert shown(user("before"), SessionReset(), user("after")) == (UserMessage("after"),)


def test_trust_is_that_of_the_least_trusted_item() -> None:
    window = extend(window_of(user("hi")), event(output("", "c1"), Trust.EXTERNAL))
    assert trust_of(window) is Trust.EXTERNAL
    assert trust_of(Window()) is Trust.SYSTEM


def test_window_is_bounded_in_items_and_characters_and_keeps_the_newest() -> None:
    many = window_of(*(user(str(number)) for number in range(ITEMS_MAX + 50)))
    assert len(many.items) == ITEMS_MAX
    assert many.items[-1].message == UserMessage(str(ITEMS_MAX + 49))
    long = window_of(*(user("x" * (CHARS_MAX // 3)) for _ in range(9)))
    assert long.chars <= CHARS_MAX
    assert len(long.items) == 3
    assert len(window_of(user("x"), user("y" * (CHARS_MAX + 1))).items) == 1


facts = st.lists(
    st.one_of(
        st.just(user("u")),
        st.lists(st.sampled_from("abcdef"), max_size=3, unique=True).map(lambda ids: output("t" * len(ids), *ids)),
        st.sampled_from("abcdef").map(finished),
        st.sampled_from("abcdef").map(uncertain),
    ),
    max_size=20,
)


@given(facts)
def test_any_tape_renders_to_pairs_a_provider_takes(history: list[Data]) -> None:
    expected: list[str] = []
    for message in shown(*_with_fresh_ids(history)):
        if isinstance(message, ToolMessage):
            assert expected.pop(0) == message.call_id
            continue
        assert expected == []
        if isinstance(message, AssistantMessage):
            assert message.text or message.tool_calls
            expected = [call.call_id for call in message.tool_calls]
    assert expected == []


def _with_fresh_ids(history: list[Data]) -> list[Data]:
    """Call ids are unique over a session, so a call that was made is not made again."""
    seen: set[str] = set()
    kept: list[Data] = []
    for fact in history:
        ids = {call.call_id for call in fact.tool_calls} if isinstance(fact, ModelOutput) else set()
        if not ids & seen:
            kept.append(fact)
        seen |= ids
    return kept


@given(facts)
def test_count_of_characters_is_the_sum_of_the_items(history: list[Data]) -> None:
    window = window_of(*history)
    assert window.chars == sum(item.chars for item in window.items)
