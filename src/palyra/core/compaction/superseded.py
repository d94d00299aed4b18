"""Rules that a person's later words replace.

Owns: when two sentences give the same thing another value, and which rules no longer hold.
Does not own: finding rules (findings), keeping them (plan).
The rules are narrow on purpose. A rule that stays too long is read beside the newer one; a rule that goes wrongly is
forgotten. So both are kept in doubt. A rule that goes stays on the tape and in the record of the compaction.
"""

import re
from collections.abc import Iterable, Sequence

from palyra.core.compaction.findings import split_sentences
from palyra.core.compaction.model import Exchange, KeptItem, KeptKind, RetiredItem
from palyra.core.memory.contradiction import contradicts as denies_or_changes
from palyra.core.memory.text import is_negated, words_of
from palyra.core.trust import is_at_least, is_tainting

# Words that make a sentence a rule, or a change of one, and say nothing of what it is about.
_MARKERS = re.compile(
    r"\b(?:from\s+now\s+on|in\s+(?:the\s+)?future|starting\s+(?:now|today)|always|please|instead|make\s+sure\s+(?:to|that)"
    r"|at\s+all\s+times|you\s+(?:must|should|may)|must|rule\s*\d*\s*:)(?=\W|$)[,:]?\s*",
    re.IGNORECASE,
)
_CHANGE = re.compile(r"\b(?:from\s+now\s+on|in\s+(?:the\s+)?future|instead|starting\s+(?:now|today))\b", re.IGNORECASE)
_FORGET = re.compile(
    r"\b(?:forget|drop|cancel|scrap|lift|withdraw|ignore)\s+(?:the|that|my|our)\s+(?P<rules>rules?)\s+"
    r"(?:about|on|against|for|that\s+says|with|of)\s+(?P<topic>[^.!?]+)"
    r"|\bthe\s+(?P<rules2>rules?)\s+(?:about|on|against|for)\s+(?P<topic2>[^.!?]+?)\s+(?:no\s+longer|does\s+not|doesn['’]t)"
    r"\s+(?:appl(?:y|ies)|holds?|counts?)\b",
    re.IGNORECASE,
)
_NEGATED_FORGET = re.compile(r"\b(?:never|not|don['’]t)\s+(?:forget|drop|ignore)\b", re.IGNORECASE)
# Of each line one value holds at a time.
_EXCLUSIVE = tuple(
    frozenset(line.split())
    for line in (
        "tabs spaces",
        "metric imperial",
        "british american",
        "formal informal",
        "single double",
        "light dark",
        "uppercase lowercase",
        "english french german czech slovak polish spanish italian portuguese dutch swedish russian ukrainian chinese japanese",
    )
)
_SETTING_VERBS = frozenset("use write answer reply speak call format store save host deploy run".split())
_COMPLEMENTS = frozenset({"for", "in", "as", "on", "when"})
_ARTICLES = frozenset("the a an my our about it its".split())


def replaces(new: str, old: str) -> bool:
    """Tells whether a sentence gives what another one sets another value, or says the opposite of it."""
    said, said_before = _bare(new), _bare(old)
    if denies_or_changes(" ".join(_stripped(new)), " ".join(_stripped(old))):
        return True
    if is_negated(words_of(new)) is not is_negated(words_of(old)):
        return said == said_before and len(said) >= 2
    return not is_negated(words_of(old)) and _changes_one_word(said, said_before, new)


def retire_rules(
    known: Sequence[KeptItem], found: Sequence[KeptItem], exchanges: Iterable[Exchange]
) -> tuple[tuple[KeptItem, ...], tuple[RetiredItem, ...]]:
    """Returns the items without the rules that later words of a person replace, and those rules."""
    retired: dict[int, RetiredItem] = {}
    items = (*known, *found)
    rules = [(number, item) for number, item in enumerate(items) if item.kind is KeptKind.RULE]
    for number, old in rules:
        later = (new for place, new in rules if place > number and is_at_least(new.trust, old.trust))
        newer = next((new for new in later if replaces(new.text, old.text)), None)
        if newer is not None:
            retired[number] = _retired(old, newer.text, newer.place)
    for exchange in exchanges:
        for sentence in split_sentences(exchange.own) if not is_tainting(exchange.said_trust) else ():
            earlier = [(number, rule) for number, rule in rules if rule.place < exchange.place]
            meant = [(number, rule) for number, rule in earlier if is_at_least(exchange.said_trust, rule.trust)]
            for number, old in _forgotten(sentence, meant):
                retired[number] = _retired(old, sentence, exchange.place)
    kept = tuple(item for number, item in enumerate(items) if number not in retired)
    return kept, tuple(retired[number] for number in sorted(retired))


def _retired(old: KeptItem, by: str, by_place: int) -> RetiredItem:
    return RetiredItem(kind=old.kind, text=old.text, place=old.place, by=by, by_place=by_place)


def _forgotten(sentence: str, rules: Sequence[tuple[int, KeptItem]]) -> list[tuple[int, KeptItem]]:
    """Returns the rules that a sentence takes back. If it means one and several fit, none goes."""
    match = _FORGET.search(sentence)
    if match is None or _NEGATED_FORGET.search(sentence):
        return []
    topic = {_stem(word) for word in words_of(match["topic"] or match["topic2"])} - _ARTICLES
    fitting = [(number, rule) for number, rule in rules if topic and topic <= set(map(_stem, words_of(rule.text)))]
    is_plural = (match["rules"] or match["rules2"]).casefold().endswith("s")
    return fitting if is_plural or len(fitting) == 1 else []


def _changes_one_word(said: tuple[str, ...], said_before: tuple[str, ...], new: str) -> bool:
    if len(said) != len(said_before) or len(said) < 2:
        return False
    changed = [place for place, pair in enumerate(zip(said, said_before, strict=True)) if pair[0] != pair[1]]
    if len(changed) != 1:
        return False
    place = changed[0]
    pair, behind = {said[place], said_before[place]}, said[place + 1 : place + 2]
    if any(pair <= group for group in _EXCLUSIVE):
        return True
    if all(word.isdigit() for word in pair):
        return bool(behind) and behind[0].isalpha()  # A number before a noun counts; one behind it names something.
    is_set = said[0] in _SETTING_VERBS and place > 0 and behind != () and behind[0] in _COMPLEMENTS
    return is_set and _CHANGE.search(new) is not None


def _bare(sentence: str) -> tuple[str, ...]:
    """Returns the words that say what a rule is about, without what negates them."""
    negating = {"never", "not", "do", "don't", "no", "longer", "does", "may"}
    return tuple(word for word in _stripped(sentence) if word not in negating)


def _stripped(sentence: str) -> tuple[str, ...]:
    return words_of(_MARKERS.sub(" ", sentence))


def _stem(word: str) -> str:
    return word.removesuffix("s")
