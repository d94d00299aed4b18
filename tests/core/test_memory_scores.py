"""The order of what was found: each share alone, and what it says about itself."""

from msgspec.structs import replace

from palyra.core.memory.question import MemoryQuestion
from palyra.core.memory.scores import MemoryCandidate, rank, rarity
from palyra.core.memory.time_words import Period

ASKED = MemoryQuestion(terms=("dog",))


def candidate(row: int, **fields: object) -> MemoryCandidate:
    made = MemoryCandidate(row=row, content="I have a dog", word_count=4, text=1.0, vector=0.4, meaning=0.5)
    return replace(made, **fields)


def order(question: MemoryQuestion, *candidates: MemoryCandidate) -> list[int]:
    return [one.row for one in rank(question, 2.0, candidates, 10)]


def test_more_of_any_measure_is_better() -> None:
    for better in ({"text": 1.5}, {"vector": 0.6}, {"meaning": 0.9}):
        assert order(ASKED, candidate(1), candidate(2, **better)) == [2, 1]


def test_equal_items_keep_the_order_of_their_age_and_age_is_no_share() -> None:
    assert order(ASKED, candidate(9), candidate(2)) == [2, 9]
    (old, new) = rank(ASKED, 2.0, [candidate(1), candidate(1_000_000)], 10)
    assert old.score == new.score


def test_whom_the_question_names_comes_first() -> None:
    asked = replace(ASKED, speakers=frozenset({"Greta"}))
    assert order(asked, candidate(1, speaker="Omar"), candidate(2, speaker="Greta")) == [2, 1]


def test_the_answer_to_a_fitting_question_rises_and_the_question_falls() -> None:
    asking = candidate(1, content="Do you have a dog?", in_conversation=True, after=(2,))
    answer = candidate(2, content="Yes, Rex!", text=None, vector=0.1, meaning=0.0, in_conversation=True, before=(1,))
    stranger = candidate(3, content="Yes, Sue!", text=None, vector=0.1, meaning=0.0, in_conversation=True)
    assert order(ASKED, asking, answer, stranger)[-1] == 3
    why = {one.row: one.why.rules for one in rank(ASKED, 2.0, [asking, answer, stranger], 10)}
    assert why[1]["question"] < 0 < why[2]["context"]


def test_a_time_is_preferred_where_one_is_asked_for() -> None:
    told = candidate(2, content="I got a dog last week")
    assert order(replace(ASKED, asks_for_time=True), candidate(1), told) == [2, 1]
    inside = candidate(3, said=Period(100, 200))
    assert order(replace(ASKED, period=Period(150, 300)), candidate(1), inside) == [3, 1]


def test_a_hit_explains_itself_and_its_shares_add_up() -> None:
    asked = replace(ASKED, speakers=frozenset({"Greta"}), asks_for_time=True)
    (hit,) = rank(asked, 2.0, [candidate(1, speaker="Greta", content="Today I got a dog", in_conversation=True)], 10)
    assert (hit.why.text, hit.why.vector) == (1.0, 0.4)
    assert set(hit.why.rules) == {"meaning", "speaker", "time", "length"}


def test_a_score_lies_between_0_and_1_whatever_the_question_wishes() -> None:
    wishes = replace(ASKED, speakers=frozenset({"Greta"}), asks_for_time=True, period=Period(0, 9))
    best = candidate(1, text=9.0, vector=1.0, meaning=1.0, speaker="Greta", in_conversation=True, said=Period(1, 2))
    worst = candidate(2, text=None, vector=0.1, meaning=0.0)
    for question in (ASKED, wishes):
        first, last = rank(question, 2.0, [best, worst], 10)
        assert first.score == 1.0
        assert 0.0 <= last.score < 0.1


def test_what_nothing_supports_is_no_hit() -> None:
    stray = candidate(1, text=None, vector=0.03, meaning=0.0, in_conversation=True, word_count=40)
    assert order(ASKED, stray) == []
    assert order(replace(ASKED, speakers=frozenset({"Greta"})), replace(stray, speaker="Greta")) == [1]
    assert order(replace(ASKED, period=Period(0, 9)), replace(stray, said=Period(1, 2))) == [1]
    for fitting in ({"text": 0.5}, {"vector": 0.3}, {"meaning": 0.2}):
        assert order(ASKED, replace(stray, **fitting)) == [1]


def test_what_the_asked_one_said_beside_the_point_scores_no_more_than_without_the_name() -> None:
    beside = candidate(1, text=None, vector=0.1, meaning=0.1, speaker="Greta")
    (plain,) = rank(ASKED, 2.0, [beside], 1)
    (named,) = rank(replace(ASKED, speakers=frozenset({"Greta"})), 2.0, [beside], 1)
    assert abs(plain.score - named.score) < 1e-9


def test_rarer_words_tell_more_and_no_count_is_negative() -> None:
    assert rarity(1000, 1) > rarity(1000, 100) > rarity(1000, 1000) > 0
    assert rarity(0, 5) > 0
