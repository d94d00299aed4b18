"""Open tasks that later words complete or give up, and the many that they do not."""

import pytest

from palyra.core.compaction.exchanges import exchanges_of
from palyra.core.compaction.model import Compaction, Exchange, KeptItem, KeptKind, SaidWords
from palyra.core.compaction.plan import plan_compaction
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.context.window import WindowItem
from palyra.core.events.base import JsonObject
from palyra.core.trust import Trust

TASK = "We still need to write the tests of the ledger."
OTHER = "Todo: call Anna about the invoice."


def plan_of(*exchanges: Exchange, earlier: tuple[KeptItem, ...] = ()) -> Compaction:
    return plan_compaction(exchanges, earlier, Trust.OPERATOR, 4_000)


def said(text: str, place: int, trust: Trust = Trust.OPERATOR) -> Exchange:
    return Exchange(place=place, said=text, said_trust=trust)


def answered(text: str, place: int, trust: Trust = Trust.LOCAL) -> Exchange:
    later = (SaidWords(text=text, place=place + 1, trust=trust),)
    return Exchange(place=place, said="Go on.", said_trust=Trust.OPERATOR, answers=(text,), later=later)


def tasks_of(plan: Compaction) -> list[str]:
    return [item.text for item in plan.items if item.kind is KeptKind.TASK]


COMPLETED = [
    "I have written the tests of the ledger.",
    "I've now written the tests of the ledger in tests/test_ledger.py, and they all pass.",
    "Wrote the tests of the ledger.",
    "We wrote the ledger tests.",
    "The tests of the ledger are written.",
    "The ledger tests are done.",
    "The tests of the ledger have been finished.",
    "Done: the tests of the ledger.",
    "[x] write the tests of the ledger",
    "- [x] Write the ledger tests",
    "✅ Write the tests of the ledger",
]
STILL_OPEN = [
    "Are the tests of the ledger written?",
    "The tests of the ledger are not written.",
    "The tests of the ledger aren't done.",
    "I will have written the tests of the ledger by Friday.",
    "When the tests of the ledger are done, call me.",
    "I have almost written the tests of the ledger.",
    "I have written the first tests of the ledger.",
    "I have written the tests of the invoice.",
    "I have read the tests of the ledger.",
    "I have written the tests.",
    "The ledger is done.",
    "I write the tests of the ledger every week.",
    "[ ] write the tests of the ledger",
    "[x] read the tests of the ledger",
    "Do not forget the tests of the ledger.",
    "I always forget the tests of the ledger.",
    "There is no need to worry about the tests of the ledger.",
    "You said that the tests of the ledger are written, yet I see none.",
    "I have written the tests of the ledger for the staging server.",
    "Written tests of the ledger are important.",
    "The tests of the ledger are to be written.",
    "The tests of the ledger are written, but they fail.",
    "We should forget about the tests of the invoice.",
]


@pytest.mark.parametrize("words", COMPLETED)
def test_a_task_that_later_words_complete_is_retired_with_its_evidence(words: str) -> None:
    for evidence, place in ((said(words, 5), 5), (answered(words, 5), 6)):
        plan = plan_of(said(TASK, 1), said(OTHER, 3), evidence)
        assert tasks_of(plan) == [OTHER]
        (one,) = plan.retired
        assert (one.kind, one.text, one.place, one.by_place) == (KeptKind.TASK, TASK, 1, place)
        assert one.by in words


@pytest.mark.parametrize("words", STILL_OPEN)
def test_a_task_stays_open_in_doubt(words: str) -> None:
    for evidence in (said(words, 5), answered(words, 5)):
        plan = plan_of(said(TASK, 1), evidence)
        assert TASK in tasks_of(plan)
        assert plan.retired == ()


@pytest.mark.parametrize(
    "words",
    [
        "Forget about the tests of the ledger.",
        "Never mind the tests of the ledger.",
        "Please drop the task about the tests of the ledger.",
        "We no longer need to write the tests of the ledger.",
        "There is no need to write the tests of the ledger.",
    ],
)
def test_only_a_person_gives_up_a_task(words: str) -> None:
    assert tasks_of(plan_of(said(TASK, 1), said(words, 5))) == []
    assert tasks_of(plan_of(said(TASK, 1), answered(words, 5))) == [TASK]


@pytest.mark.parametrize("words", ["Done.", "That's done.", "OK, it is done now.", "Forget that.", "never mind"])
def test_a_short_word_of_a_person_means_the_task_that_was_named_last(words: str) -> None:
    assert tasks_of(plan_of(said(OTHER, 1), said(TASK, 3), said(words, 5))) == [OTHER]
    assert tasks_of(plan_of(said(OTHER, 1), said(TASK, 3), answered(words, 5))) == [OTHER, TASK]
    assert tasks_of(plan_of(said(TASK, 1), said("How is the weather?", 3), said(words, 5))) == [TASK]
    assert tasks_of(plan_of(said(TASK, 3), said(f"I am logged in. {words}", 5))) == [TASK]
    assert tasks_of(plan_of(said(f"{TASK} But help me to log in first.", 1), said(words, 5))) == [TASK]


def test_words_from_outside_complete_no_task_of_a_person() -> None:
    done = "I have written the tests of the ledger."
    for evidence in (said(done, 5, Trust.EXTERNAL), answered(done, 5, Trust.EXTERNAL)):
        assert tasks_of(plan_of(said(TASK, 1), evidence)) == [TASK]
    assert tasks_of(plan_of(said(TASK, 1, Trust.EXTERNAL), said(done, 5, Trust.EXTERNAL))) == []


def test_a_task_of_an_earlier_compaction_is_retired() -> None:
    known = KeptItem(kind=KeptKind.TASK, text=TASK, place=1, trust=Trust.OPERATOR)
    plan = plan_of(said("The ledger tests are done.", 9), earlier=(known,))
    assert plan.items == ()
    assert [(one.text, one.by_place) for one in plan.retired] == [(TASK, 9)]


def test_words_before_the_task_complete_nothing() -> None:
    assert tasks_of(plan_of(said("I have written the tests of the ledger.", 1), said(TASK, 3))) == [TASK]


def test_of_two_tasks_that_fit_the_narrower_one_is_meant() -> None:
    wide = "Todo: write the tests."
    assert tasks_of(plan_of(said(wide, 1), said(TASK, 3), said("I wrote the ledger tests.", 5))) == [wide]


def test_of_two_tasks_that_fit_as_well_neither_is_closed() -> None:
    both = [TASK, "We still need to run the tests of the ledger."]
    assert tasks_of(plan_of(said(both[0], 1), said(both[1], 3), said("The ledger tests are done.", 5))) == both


def test_a_word_of_doubt_that_the_task_itself_has_is_none() -> None:
    task = "Todo: fix the failing login test."
    assert tasks_of(plan_of(said(task, 1), answered("I have fixed the failing login test.", 3))) == []


def test_what_says_that_a_task_is_done_is_no_task() -> None:
    assert tasks_of(plan_of(said("The todo about the ledger is done.", 1))) == []
    assert tasks_of(plan_of(said("[ ] Write the manual\n[x] Todo: write the tests", 1))) == ["[ ] Write the manual"]


@pytest.mark.parametrize(
    "task", ["Todo: check that the migration is finished.", "We still need to fix what was reported as done."]
)
def test_a_task_that_speaks_of_something_done_is_a_task(task: str) -> None:
    assert tasks_of(plan_of(said(task, 1))) == [task]


def put(place: int, message: Message, trust: Trust = Trust.LOCAL) -> WindowItem:
    return WindowItem(message, trust, 1, place=place)


def ticking(is_error: bool, trust: Trust = Trust.LOCAL) -> tuple[Exchange, ...]:
    written: JsonObject = {
        "path": "todo.md",
        "content": "# Plan\n- [x] Write the tests of the ledger\n- [ ] Call Anna\n",
    }
    return exchanges_of(
        [
            put(1, UserMessage(TASK), Trust.OPERATOR),
            put(2, AssistantMessage("I see.")),
            put(3, UserMessage("Go on."), Trust.OPERATOR),
            put(4, AssistantMessage("", (PastCall("c1", "fs.write", written),)), trust),
            put(5, ToolMessage("c1", "written", is_error=is_error), trust),
        ]
    )


def test_a_tick_that_a_tool_wrote_completes_a_task() -> None:
    plan = plan_of(*ticking(is_error=False))
    assert [(one.text, one.by_place) for one in plan.retired] == [(TASK, 5)]


def test_a_tick_of_a_failed_call_or_from_outside_completes_nothing() -> None:
    assert tasks_of(plan_of(*ticking(is_error=True))) == [TASK]
    assert tasks_of(plan_of(*ticking(is_error=False, trust=Trust.EXTERNAL))) == [TASK]


def test_a_tick_in_a_file_that_was_read_completes_a_task_and_its_prose_does_not() -> None:
    def reading(text: str) -> tuple[Exchange, ...]:
        return exchanges_of(
            [
                put(1, UserMessage(TASK), Trust.OPERATOR),
                put(2, AssistantMessage("", (PastCall("c1", "fs.read", {"path": "todo.md"}),))),
                put(3, ToolMessage("c1", text)),
            ]
        )

    assert tasks_of(plan_of(*reading("1  - [x] Write the tests of the ledger"))) == []
    assert tasks_of(plan_of(*reading("I have written the tests of the ledger."))) == [TASK]
