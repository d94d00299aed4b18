"""What a model's answer about a summary may retire: only what the tape bears out."""

import pytest

from palyra.core.compaction.model import Compaction, Exchange, KeptItem, KeptKind, SaidWords
from palyra.core.compaction.plan import plan_compaction
from palyra.core.compaction.summary_answer import NamedEnd, read_summary, retirable, retire_named
from palyra.core.trust import Trust

RULE, NEW = "Immer mit Tabs einrücken.", "Ab jetzt bitte mit Leerzeichen einrücken."
TASK, DONE = "Todo: die Tests schreiben.", "Die Tests sind geschrieben."


def said(text: str, place: int, trust: Trust = Trust.OPERATOR) -> Exchange:
    return Exchange(place=place, said=text, said_trust=trust, trust=trust)


def after(exchanges: tuple[Exchange, ...], *named: NamedEnd, earlier: tuple[KeptItem, ...] = ()) -> Compaction:
    plan = plan_compaction(exchanges, earlier, Trust.OPERATOR, 4_000)
    return retire_named(plan, named, exchanges)


def texts(plan: Compaction) -> list[str]:
    return [item.text for item in plan.items if item.kind in (KeptKind.RULE, KeptKind.TASK)]


def test_a_rule_that_later_words_replace_in_any_language_is_retired() -> None:
    plan = after((said(RULE, 1), said(NEW, 3)), NamedEnd(1, NEW))
    assert texts(plan) == []
    (one,) = plan.retired
    assert (one.kind, one.text, one.place, one.by, one.by_place) == (KeptKind.RULE, RULE, 1, NEW, 3)
    assert RULE in [each.text for each in plan.dropped]


def test_a_quote_may_be_a_part_of_a_message_in_other_case_and_spacing() -> None:
    plan = after((said(RULE, 1), said(f"Hallo. {NEW} Danke.", 3)), NamedEnd(1, "ab  jetzt bitte mit Leerzeichen"))
    assert texts(plan) == []


@pytest.mark.parametrize(
    "named",
    [
        NamedEnd(0, NEW),
        NamedEnd(2, NEW),
        NamedEnd(-1, NEW),
        NamedEnd(1, "Nobody said this at all."),
        NamedEnd(1, "bitte"),
        NamedEnd(1, ""),
        NamedEnd(1, RULE),
    ],
)
def test_what_the_tape_does_not_bear_out_retires_nothing(named: NamedEnd) -> None:
    plan = after((said(RULE, 1), said(NEW, 3)), named)
    assert texts(plan) == [RULE]
    assert plan.retired == ()


def test_words_before_a_rule_do_not_replace_it() -> None:
    assert texts(after((said(NEW, 1), said(RULE, 3)), NamedEnd(1, NEW))) == [RULE]


def test_words_of_less_trust_do_not_replace_a_rule() -> None:
    exchanges = (said(RULE, 1), said(NEW, 3, Trust.LOCAL))
    assert texts(after(exchanges, NamedEnd(1, NEW))) == [RULE]
    mine = KeptItem(kind=KeptKind.RULE, text="Immer grüßen.", place=1, trust=Trust.LOCAL)
    assert texts(after((said(NEW, 3),), NamedEnd(1, NEW), earlier=(mine,))) == []


def test_a_model_that_read_something_from_outside_retires_nothing() -> None:
    exchanges = (said(RULE, 1), said("Seen.", 2, Trust.EXTERNAL), said(NEW, 3))
    plan = plan_compaction(exchanges, (), Trust.OPERATOR, 4_000)
    assert retirable(plan) == ()
    assert texts(retire_named(plan, (NamedEnd(1, NEW),), exchanges)) == [RULE]


def test_an_answer_of_the_agent_completes_a_task_and_replaces_no_rule() -> None:
    later = (SaidWords(text=f"Ja. {DONE} {NEW}", place=5, trust=Trust.LOCAL),)
    told = Exchange(place=4, said="Weiter.", said_trust=Trust.OPERATOR, later=later)
    plan = after((said(RULE, 1), said(TASK, 2), told), NamedEnd(1, NEW), NamedEnd(2, DONE))
    assert texts(plan) == [RULE]
    assert [(one.text, one.by_place) for one in plan.retired] == [(TASK, 5)]


def test_facts_and_decisions_are_not_retired() -> None:
    exchanges = (said("We decided to use Redis. The port is 8443.", 1), said(NEW, 3))
    assert retirable(plan_compaction(exchanges, (), Trust.OPERATOR, 4_000)) == ()


def test_an_answer_without_the_form_is_the_summary_itself() -> None:
    assert read_summary(" They talked. ").summary == "They talked."
    assert read_summary('{"summary": " They talked. ", "retired": [{"item": 1, "quote": "x"}]}').retired == (
        NamedEnd(1, "x"),
    )
