"""Long chats made up for measuring recall: two speakers, dated sessions, questions with the turns that answer them.

Does not own: measuring. Everything is drawn from a seed; no text comes from another data set.
A fact is said in one of several ways, often as a short answer to the other speaker's question. Questions use other
words. Both speakers have facts of one sort, so a question's words alone often fit several turns.
"""

import random
from datetime import datetime, timedelta
from typing import NamedTuple

from bench._chat_words import CHATTER, ECHOES, ECHOES_WHEN, EVENTS, FACTS, FRIENDS, LISTS, NAMES, REACTIONS, SETS

SESSIONS_COUNT = 18
START = datetime(2022, 1, 8, 13, 10)  # noqa: DTZ001 - a chat's own clock


class ChatTurn(NamedTuple):
    conversation: str
    position: int
    speaker: str
    at: str
    text: str


class ChatQuestion(NamedTuple):
    text: str
    sort: str
    evidence: tuple[int, ...]


class Chat(NamedTuple):
    turns: tuple[ChatTurn, ...]
    questions: tuple[ChatQuestion, ...]


def make_chat(seed: int) -> Chat:
    return _Draft(random.Random(seed), f"chat-{seed}").finish()


class _Draft:
    def __init__(self, chance: random.Random, name: str) -> None:
        self._chance = chance
        self._name = name
        self._speakers = tuple(chance.sample(NAMES, 2))
        self._turns: list[ChatTurn] = []
        self._questions: list[ChatQuestion] = []
        self._at = START
        self._lists: dict[tuple[str, int], list[int]] = {}

    def finish(self) -> Chat:
        plans = self._plans()
        for number in range(SESSIONS_COUNT):
            self._at += timedelta(days=self._chance.randint(4, 24), minutes=self._chance.randint(-400, 400))
            self._session(plans[number::SESSIONS_COUNT])
        for (label, who), evidence in self._lists.items():
            question = self._chance.choice(LISTS[label][1]).format(me=self._speakers[who])
            self._questions.append(ChatQuestion(question, "multi-hop", tuple(evidence)))
        return Chat(tuple(self._turns), tuple(self._questions))

    def _plans(self) -> list[tuple[str, int, int]]:
        plans = [("fact", number, who) for number in range(len(FACTS)) for who in (0, 1)]
        plans += [("event", number, self._chance.randint(0, 1)) for number in range(len(EVENTS))]
        for index, (said, _) in enumerate(LISTS.values()):
            who = self._chance.randint(0, 1)
            plans += [("list", index * 100 + part, who) for part in self._chance.sample(range(len(said)), 3)]
        self._chance.shuffle(plans)
        return plans

    def _session(self, plans: list[tuple[str, int, int]]) -> None:
        first = self._chance.randint(0, 1)
        other = self._speakers[1 - first]
        self._say(first, f"Hey {other}! {self._chance.choice(CHATTER['hello'])}")
        self._say(1 - first, f"Hi {self._speakers[first]}! {self._chance.choice(CHATTER['hello_back'])}")
        for kind, number, who in plans:
            if kind == "fact":
                self._tell(FACTS[number], who, "single-hop")
            elif kind == "event":
                self._tell(EVENTS[number], who, "temporal")
            else:
                self._tell_part(number, who)
            for _ in range(self._chance.randint(0, 3)):
                self._say(self._chance.randint(0, 1), self._small_talk())
        self._say(first, self._chance.choice(CHATTER["bye"]))

    def _tell(self, entry: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], who: int, sort: str) -> None:
        """Says a fact outright, or as the answer to a question of the other one."""
        said, answered, asked = entry
        values = self._values(who)
        if answered and self._chance.random() < 0.45:
            lead, answer = self._chance.choice(answered).split(" | ")
            self._say(1 - who, self._filled(lead, values))
            place = self._say(who, self._padded(self._filled(answer, values)))
        else:
            opening = self._chance.choice(CHATTER["opening"])
            place = self._say(who, self._padded(opening + " " + self._filled(self._chance.choice(said), values)))
        self._react(1 - who, values)
        in_other_words = self._chance.sample(asked, min(2, len(asked))) if self._chance.random() < 0.5 else []
        for question in in_other_words or [self._echo(place, values["me"], sort)]:
            self._questions.append(ChatQuestion(self._filled(question, values), sort, (place,)))

    def _echo(self, place: int, who: str, sort: str) -> str:
        """Asks with words of the turn itself, as people often do."""
        said = self._turns[place].text
        longest = sorted({word.strip(".,!?:").lower() for word in said.split()}, key=lambda word: (-len(word), word))[
            :4
        ]
        words = self._chance.sample(longest, 2) if len(longest) > 1 else longest
        pattern = self._chance.choice(ECHOES_WHEN if sort == "temporal" else ECHOES)
        return pattern.format(me=who, about=" and ".join(words))

    def _tell_part(self, number: int, who: int) -> None:
        label = list(LISTS)[number // 100]
        place = self._say(who, self._padded(self._filled(LISTS[label][0][number % 100], self._values(who))))
        self._react(1 - who, self._values(who))
        self._lists.setdefault((label, who), []).append(place)

    def _react(self, who: int, values: dict[str, str]) -> None:
        if self._chance.random() < 0.8:
            self._say(who, self._padded(self._filled(self._chance.choice(REACTIONS), values)))

    def _small_talk(self) -> str:
        return " ".join(self._filled(text, {}) for text in self._chance.sample(CHATTER["filler"], 2))

    def _padded(self, text: str) -> str:
        """Adds what people say around the point, so that turns are as long as real ones and no two are equal."""
        if self._chance.random() < 0.3:
            text = self._filled(self._chance.choice(CHATTER["filler"]), {}) + " " + text
        if self._chance.random() < 0.6:
            text += " " + self._filled(self._chance.choice(CHATTER["filler"]), {})
        return text.strip()

    def _values(self, who: int) -> dict[str, str]:
        values = {key: self._chance.choice(words) for key, words in SETS.items()}
        return values | {"me": self._speakers[who], "you": self._speakers[1 - who], "friend": self._friend()}

    def _friend(self) -> str:
        return self._chance.choice(FRIENDS)

    def _filled(self, text: str, values: dict[str, str]) -> str:
        return text.format(**(values or self._values(0)))

    def _say(self, who: int, text: str) -> int:
        at = self._at.strftime("%-I:%M %p on %-d %B, %Y").lower()
        self._turns.append(ChatTurn(self._name, len(self._turns), self._speakers[who], at, text))
        return len(self._turns) - 1
