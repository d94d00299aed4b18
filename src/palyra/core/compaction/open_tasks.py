"""Open tasks that later words complete.

Owns: whose words count for which task, and which task a sentence means. Does not own: what a sentence says (completion).
A task is done if a person, the agent or a ticked list of a successful call says so afterwards. Only a person gives one
up. What came from outside closes no task of a person. A closed task stays on the tape and in the record.
"""

from collections.abc import Iterable, Sequence

from palyra.core.compaction.completion import completes, gives_up, is_bare, weight_of
from palyra.core.compaction.findings import split_sentences
from palyra.core.compaction.model import Exchange, KeptItem, KeptKind, RetiredItem, SaidWords
from palyra.core.trust import is_tainting


def retire_tasks(
    items: Sequence[KeptItem], exchanges: Iterable[Exchange]
) -> tuple[tuple[KeptItem, ...], tuple[RetiredItem, ...]]:
    """Returns the items without the tasks that later words complete or give up, and those tasks."""
    open_tasks = [item for item in items if item.kind is KeptKind.TASK]
    retired: list[RetiredItem] = []
    last: KeptItem | None = None
    for exchange in exchanges if open_tasks else ():
        for is_persons, statement in _statements(exchange):
            known = [task for task in open_tasks if _counts(statement, task)]
            for task in _meant(statement.text, is_persons, known, last):
                open_tasks.remove(task)
                retired.append(_retired(task, statement))
        last = _named_last(exchange, open_tasks)
    gone = {(each.text, each.place) for each in retired}
    kept = tuple(item for item in items if item.kind is not KeptKind.TASK or (item.text, item.place) not in gone)
    return kept, tuple(retired)


def _meant(sentence: str, is_persons: bool, known: Sequence[KeptItem], last: KeptItem | None) -> list[KeptItem]:
    """Returns the tasks that a sentence closes. If several fit, the narrowest is meant."""
    if is_persons and is_bare(sentence):
        return [task for task in known if task is last]
    fitting = [
        task for task in known if completes(sentence, task.text) or (is_persons and gives_up(sentence, task.text))
    ]
    narrowest = max((weight_of(task.text) for task in fitting), default=0)
    return [task for task in fitting if weight_of(task.text) == narrowest]


def _statements(exchange: Exchange) -> Iterable[tuple[bool, SaidWords]]:
    """Returns what was said, sentence by sentence, each with whether a person said it."""
    own = SaidWords(text=exchange.said, place=exchange.place, trust=exchange.said_trust)
    for is_persons, whole in ((True, own), *((False, each) for each in exchange.later)):
        for sentence in split_sentences(whole.text):
            yield is_persons, SaidWords(text=sentence, place=whole.place, trust=whole.trust)


def _counts(statement: SaidWords, task: KeptItem) -> bool:
    return task.place < statement.place and (not is_tainting(statement.trust) or is_tainting(task.trust))


def _named_last(exchange: Exchange, open_tasks: Sequence[KeptItem]) -> KeptItem | None:
    """Returns the task that an exchange's words end with, for a short word about it in the next."""
    final = split_sentences(exchange.said)[-1:]
    return next((task for task in open_tasks if task.place == exchange.place and (task.text,) == final), None)


def _retired(task: KeptItem, statement: SaidWords) -> RetiredItem:
    return RetiredItem(kind=task.kind, text=task.text, place=task.place, by=statement.text, by_place=statement.place)
