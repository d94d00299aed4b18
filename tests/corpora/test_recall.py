"""How well remembered items are found: gates on sets of others, and on chats made up for it. bench.recall has the table."""

import pytest

from bench._recall_sets import ARCHIVE, CORPORA, bfcl_memory, chat_sets, has_corpora, vaswani, written_chats
from bench.recall import Scores, measure_group
from palyra.adapters.embedders.bundled import BundledEmbedder
from tests.support.examples import examples

pytestmark = pytest.mark.anyio

BUNDLED = BundledEmbedder()
needs_corpus = pytest.mark.skipif(not has_corpora(), reason=f"no corpus at {CORPORA / ARCHIVE}; set PALYRA_CORPORA")


BRANCHES = ("plain", "words", "fused")  # Vectors alone are slow to measure, and far behind; the benchmark has them.


def show(capsys: pytest.CaptureFixture[str], name: str, found: dict[str, Scores]) -> None:
    with capsys.disabled():
        print()
        for branch, scores in found.items():
            shares = f"nDCG@10 {scores.ndcg:.3f}, MAP {scores.average_precision:.3f}, any in 5 {scores.any_in_5:.3f}"
            print(f"{name}, {branch}: {shares}, share in 10 {scores.share_in_10:.3f}")


@needs_corpus
async def test_abstracts_are_ranked_better_than_by_any_branch_alone(capsys: pytest.CaptureFixture[str]) -> None:
    whole = vaswani()
    # A third of the questions says nearly the same, in a third of the time.
    every = 1 if examples(1) > 1 else 3
    found = await measure_group([whole._replace(questions=whole.questions[::every])], BUNDLED, BUNDLED, BRANCHES)
    show(capsys, "vaswani", found)
    assert found["fused"].ndcg >= 0.45
    assert found["fused"].average_precision >= 0.30
    assert max(found, key=lambda branch: found[branch].ndcg) == "fused"


@needs_corpus
async def test_answers_of_conversations_are_among_the_first_five(capsys: pytest.CaptureFixture[str]) -> None:
    found = await measure_group(bfcl_memory(), BUNDLED, BUNDLED, BRANCHES)
    show(capsys, "bfcl_memory", found)
    assert found["fused"].any_in_5 >= 0.98
    assert max(found, key=lambda branch: found[branch].any_in_5) == "fused"


async def test_in_long_chats_all_branches_together_find_most(capsys: pytest.CaptureFixture[str]) -> None:
    found = await measure_group(chat_sets(range(301, 303)), BUNDLED, BUNDLED)
    show(capsys, "chats", found)
    assert found["fused"].share_in_10 >= 1.5 * found["plain"].share_in_10
    assert max(found, key=lambda branch: found[branch].share_in_10) == "fused"


async def test_chats_as_people_write_them_are_found_whoever_is_named_and_whatever_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Some of the questions name the wrong speaker, or a month and nothing else."""
    chats = written_chats()
    found = await measure_group([chats], BUNDLED, BUNDLED)
    show(capsys, "written", found)
    assert found["fused"].share_in_10 >= 0.9
    assert max(found, key=lambda branch: found[branch].share_in_10) == "fused"
    for sort in ("adversarial", "dated"):
        asked = tuple(question for question in chats.questions if question.sort == sort)
        part = await measure_group([chats._replace(questions=asked)], BUNDLED, BUNDLED, ("fused",))
        assert part["fused"].share_in_10 >= 0.9, sort
