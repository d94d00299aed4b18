"""What a model answers when it is asked for a summary, and what its answer is worth.

Owns: the form of the answer, reading it, and which rules and tasks it may retire. Does not own: the summary's probes.
A model knows replaced rules and finished tasks in any language, where the rules of superseded and open_tasks know a few
forms. It is believed only so far: it names an item and quotes the words that end it, and both must be on the tape.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from palyra.core.compaction.model import Compaction, Exchange, KeptItem, KeptKind, RetiredItem, SaidWords
from palyra.core.compaction.plan import dropped_of
from palyra.core.events.base import JsonObject
from palyra.core.fences import neutralise
from palyra.core.trust import is_at_least, is_tainting

QUOTE_CHARS_MIN = 8  # A shorter quote is found in words that mean something else, so it has to be the whole message.
RETIRED_MAX = 40
RETIRABLE = (KeptKind.RULE, KeptKind.TASK)
SUMMARY_SCHEMA: JsonObject = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary", "retired"],
    "properties": {
        "summary": {"type": "string"},
        "retired": {
            "type": "array",
            "maxItems": RETIRED_MAX,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["item", "quote"],
                "properties": {"item": {"type": "integer"}, "quote": {"type": "string", "maxLength": 1_000}},
            },
        },
    },
}
_QUESTION = (
    "Write the summary into `summary`. These are the rules and open tasks so far. If the conversation later replaces a "
    "rule, takes it back, or completes a task, put the item's number into `retired`, and copy the words that do so into "
    "`quote`, exactly. Leave out every item of which you are not certain. An empty list is right most of the time."
)


class NamedEnd(msgspec.Struct, frozen=True):
    """The number of an item that a model was shown, and the words that end it."""

    item: int
    quote: str


class SummaryAnswer(msgspec.Struct, frozen=True):
    summary: str
    retired: tuple[NamedEnd, ...] = ()


_decoder = msgspec.json.Decoder(SummaryAnswer)


def retirable(plan: Compaction) -> tuple[KeptItem, ...]:
    """Returns the items that a model may retire: none if it reads anything from outside (L8)."""
    return () if is_tainting(plan.trust) else tuple(item for item in plan.items if item.kind in RETIRABLE)


def ask_for_ends(items: Sequence[KeptItem]) -> str:
    """Returns what a model is asked besides the summary."""
    lines = (f"{number}. {item.kind.value}: {neutralise(item.text)}" for number, item in enumerate(items, 1))
    return "\n".join(("", "", _QUESTION, *lines))


def read_summary(text: str) -> SummaryAnswer:
    """Reads an answer. One without the form is the summary itself, from a model that cannot write JSON."""
    try:
        answer = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return SummaryAnswer(text.strip())
    return replace(answer, summary=answer.summary.strip())


def retire_named(plan: Compaction, named: Sequence[NamedEnd], exchanges: Sequence[Exchange]) -> Compaction:
    """Returns the plan without the items that a model says to be over, as far as the tape bears it out."""
    shown = retirable(plan)
    retired: dict[int, RetiredItem] = {}
    for each in named[:RETIRED_MAX]:
        item = shown[each.item - 1] if 1 <= each.item <= len(shown) else None
        words = _find_words(each.quote, item, exchanges) if item is not None else None
        if item is not None and words is not None:
            retired[each.item - 1] = RetiredItem(
                kind=item.kind, text=item.text, place=item.place, by=words.text, by_place=words.place
            )
    gone = [shown[number] for number in retired]
    items = tuple(item for item in plan.items if item not in gone)
    return replace(plan, items=items, retired=(*plan.retired, *retired.values()), dropped=dropped_of(exchanges, items))


def _find_words(quote: str, item: KeptItem, exchanges: Sequence[Exchange]) -> SaidWords | None:
    """Returns the quoted words, if they were said after the item by somebody whose words count as much."""
    wanted = _plain(quote)
    for words in _words_about(item, exchanges):
        whole = _plain(words.text)
        is_said = wanted == whole or (len(wanted) >= QUOTE_CHARS_MIN and wanted in whole)
        if is_said and words.place > item.place and wanted != _plain(item.text):
            return replace(words, text=quote)
    return None


def _words_about(item: KeptItem, exchanges: Sequence[Exchange]) -> Iterable[SaidWords]:
    """Only people replace a rule. A task may also be completed by what the agent says and does."""
    for exchange in exchanges:
        if is_at_least(exchange.said_trust, item.trust):
            yield SaidWords(text=exchange.own, place=exchange.place, trust=exchange.said_trust)
        if item.kind is KeptKind.TASK:
            yield from (words for words in exchange.later if not is_tainting(words.trust))


def _plain(text: str) -> str:
    return " ".join(text.split()).strip(" .!").casefold()
