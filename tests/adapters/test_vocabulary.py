"""Token counts by bundled vocabularies."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import splintr

from palyra.adapters.vocabulary import bundled
from palyra.adapters.vocabulary.bundled import BundledVocabularies, choose_vocabulary

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-5", "o200k_base"),
        ("o3", "o200k_base"),
        ("meta/Llama-3.1-8B", "llama3"),
        ("deepseek-chat", "deepseek_v3"),
        ("mistral-large", "mistral_v3"),
        ("claude-opus-4", "o200k_base"),
    ],
)
def test_each_model_has_its_vocabulary(model: str, name: str) -> None:
    assert choose_vocabulary(model)[0] == name


async def test_known_counts_are_exact() -> None:
    counter = BundledVocabularies({"main": "gpt-4o"})
    assert await counter.count("main", ["hello world", "", "hello world"]) == [2, 0, 2]


async def test_models_without_a_vocabulary_are_counted_with_a_margin() -> None:
    counter = BundledVocabularies({})
    text = "The quick brown fox jumps over the lazy dog. " * 20
    (exact,), (raised,) = await counter.count("gpt-4o", [text]), await counter.count("claude-x", [text])
    assert exact < raised <= 1.2 * exact


async def test_special_tokens_in_a_text_are_plain_text() -> None:
    counter = BundledVocabularies({})
    assert (await counter.count("gpt-4o", ["<|endoftext|>"]))[0] > 1


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "COUNTS_REMEMBERED_MAX", 10)
    counter = BundledVocabularies({})
    await counter.count("gpt-4o", [f"text {number}" for number in range(50)])
    assert len(counter._counts) == 10


async def test_long_texts_are_counted_and_not_kept() -> None:
    counter = BundledVocabularies({})
    await counter.count("gpt-4o", ["long " * 10_000])
    assert not any(isinstance(part, str) and len(part) > 100 for key in counter._counts for part in key)


async def test_counts_pushed_out_by_others_are_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "COUNTS_REMEMBERED_MAX", 3)
    counter = BundledVocabularies({})
    await counter.count("gpt-4o", ["known"])
    long_texts = [f"{number} " * 3_000 for number in range(8)]
    told = await asyncio.gather(*(counter.count("gpt-4o", ["known", text]) for text in long_texts))
    assert {counts[0] for counts in told} == {1}


def test_a_vocabulary_is_loaded_once_however_many_need_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    load = splintr.Tokenizer.from_pretrained

    class Slow:
        @staticmethod
        def from_pretrained(name: str) -> object:
            loads.append(name)
            time.sleep(0.05)
            return load(name)

    monkeypatch.setattr(splintr, "Tokenizer", Slow)
    bundled._load.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: bundled._count("o200k_base", {("o200k_base", number, 1): "a"}), range(8)))
    assert loads == ["o200k_base"]
