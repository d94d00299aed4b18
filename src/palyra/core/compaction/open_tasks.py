"""Open tasks that later words complete.

Owns: whose words count for which task, and which task a sentence means. Does not own: what a sentence says (completion).
A task is done if a person, the agent or a ticked list of a successful call says so afterwards. Only a person gives one
up. What came from outside closes no task of a person. A closed task stays on the tape and in the record.
"""

from collections.abc import Iterable, Mapping, Sequence

from palyra.core.compaction.completion import OpenTask, closes, is_bare, read_done, read_given_up, read_task
from palyra.core.compaction.findings import split_sentences
from palyra.core.compaction.model import Exchange, KeptItem, KeptKind, RetiredItem, SaidWords
from palyra.core.trust import is_tainting


def retire_tasks(
    items: Sequence[KeptItem], exchanges: Iterable[Exchange]
) -> tuple[tuple[KeptItem, ...], tuple[RetiredItem, ...]]:
    """Returns the items without the tasks that later words complete or give up, and those tasks."""
    open_tasks = {item: read_task(item.text) for item in items if item.kind is KeptKind.TASK}
    retired: dict[KeptItem, RetiredItem] = {}
    last: KeptItem | None = None
    for exchange in exchanges if open_tasks else ():
        short = _short_word(exchange)
        if short is not None and last in open_tasks and _counts(short, last):
            retired[last] = _retired(last, short)
            del open_tasks[last]
        for is_persons, words in _statements(exchange):
            for task in _meant(words, is_persons, open_tasks):
                del open_tasks[task]
                retired[task] = _retired(task, words)
        last = _named_last(exchange, open_tasks)
    return tuple(item for item in items if item not in retired), tuple(retired.values())


def _short_word(exchange: Exchange) -> SaidWords | None:
    """Returns the short word with which a person begins, about the task that was named last."""
    opening = next(iter(split_sentences(exchange.own)), "")
    return SaidWords(text=opening, place=exchange.place, trust=exchange.said_trust) if is_bare(opening) else None


def _meant(words: SaidWords, is_persons: bool, open_tasks: Mapping[KeptItem, OpenTask]) -> list[KeptItem]:
    """Returns the tasks that a sentence closes. If several fit, the narrowest is meant, or none if there are two."""
    closing = read_done(words.text) or (read_given_up(words.text) if is_persons else None)
    if closing is None:
        return []
    fitting = {item: task for item, task in open_tasks.items() if _counts(words, item) and closes(closing, task)}
    most = max((len(task.words) for task in fitting.values()), default=0)
    narrowest = [item for item, task in fitting.items() if len(task.words) == most]
    return narrowest if len({fitting[item].words for item in narrowest}) == 1 else []


def _statements(exchange: Exchange) -> Iterable[tuple[bool, SaidWords]]:
    """Returns what was said, sentence by sentence, each with whether a person said it."""
    own = SaidWords(text=exchange.own, place=exchange.place, trust=exchange.said_trust)
    for is_persons, whole in ((True, own), *((False, each) for each in exchange.later)):
        for sentence in split_sentences(whole.text):
            yield is_persons, SaidWords(text=sentence, place=whole.place, trust=whole.trust)


def _counts(statement: SaidWords, task: KeptItem) -> bool:
    return task.place < statement.place and (not is_tainting(statement.trust) or is_tainting(task.trust))


def _named_last(exchange: Exchange, open_tasks: Iterable[KeptItem]) -> KeptItem | None:
    """Returns the task that an exchange's words end with, for a short word about it in the next."""
    final = split_sentences(exchange.own)[-1:]
    return next((task for task in open_tasks if task.place == exchange.place and (task.text,) == final), None)


def _retired(task: KeptItem, statement: SaidWords) -> RetiredItem:
    return RetiredItem(kind=task.kind, text=task.text, place=task.place, by=statement.text, by_place=statement.place)
