"""The sets that recall is measured on: chats drawn from a seed, chats written by hand, and two sets of others.

Does not own: measuring (bench.recall). The sets of others are read from PALYRA_CORPORA; without them they are left out.
A file in chats/ has a line for each turn, `L#label: text` with the letter of the speaker, after `= time` of its session.
Lines with `?` are questions: their sort, the labels of the turns that answer, and the words.
"""

import json
import os
import re
import tarfile
from pathlib import Path
from typing import NamedTuple

from bench._chats import make_chat
from palyra.core.memory.model import MemorySource

CORPORA = Path(os.environ.get("PALYRA_CORPORA", Path(__file__).resolve().parents[2] / "shared" / "data"))
ARCHIVE = "retrieval_dev.tar.gz"
WRITTEN = Path(__file__).with_name("chats")
SOURCE_WORDS_MIN = 4  # A shorter piece of a quotation is found in texts that do not answer.

_DOCUMENT = re.compile(r"<DOCNO>(\d+)</DOCNO>\n(.*?)</DOC>", re.DOTALL)
_TURN = re.compile(r"(\w)(?:#(\w+))?: (.*)")
_TOPIC = re.compile(r"<num>(\d+)</num><title>\n(.*?)\n</title>", re.DOTALL)


class RecallQuestion(NamedTuple):
    text: str
    sort: str
    answers: frozenset[int]


class RecallSet(NamedTuple):
    """Texts with their sources, and questions with the numbers of the texts that answer them."""

    name: str
    texts: tuple[tuple[str, MemorySource], ...]
    questions: tuple[RecallQuestion, ...]


def chat_sets(seeds: range, together: int = 2) -> list[RecallSet]:
    """Returns sets of `together` chats each, as one person may have several conversations."""
    sets = []
    for first in seeds[::together]:
        texts: list[tuple[str, MemorySource]] = []
        questions: list[RecallQuestion] = []
        for seed in range(first, min(first + together, seeds.stop)):
            chat, start = make_chat(seed), len(texts)
            for turn in chat.turns:
                at = MemorySource(
                    conversation=turn.conversation, position=turn.position, speaker=turn.speaker, at=turn.at
                )
                texts.append((turn.text, at))
            for asked in chat.questions:
                answers = frozenset(start + place for place in asked.evidence)
                questions.append(RecallQuestion(asked.text, asked.sort, answers))
        sets.append(RecallSet("chats", tuple(texts), tuple(questions)))
    return sets


def written_chats() -> RecallSet:
    """Returns all chats written by hand, as one store holds them."""
    texts: list[tuple[str, MemorySource]] = []
    questions: list[RecallQuestion] = []
    for file in sorted(WRITTEN.glob("*.txt")):
        labels: dict[str, int] = {}
        names: dict[str, str] = {}
        at, start = "", len(texts)
        for line in file.read_text(encoding="utf-8").splitlines():
            head, *rest = [part.strip() for part in line[1:].split("|")]
            if line.startswith("@"):
                names = dict(name.split() for name in rest)
            elif line.startswith("="):
                at = head
            elif line.startswith("?"):
                answers = frozenset(labels[label] for label in rest[0].split(","))
                questions.append(RecallQuestion(rest[1], head, answers))
            elif turn := _TURN.fullmatch(line):
                labels[turn[2]] = len(texts)
                place = len(texts) - start
                source = MemorySource(conversation=file.stem, position=place, speaker=names[turn[1]], at=at)
                texts.append((turn[3], source))
    return RecallSet("written", tuple(texts), tuple(questions))


def has_corpora() -> bool:
    return (CORPORA / ARCHIVE).exists()


def vaswani() -> RecallSet:
    files = _files("vaswani/")
    documents = _DOCUMENT.findall(files["vaswani/corpus/doc-text.trec"])
    places = {number: place for place, (number, _) in enumerate(documents)}
    relevant: dict[str, set[int]] = {}
    for line in files["vaswani/qrels"].splitlines():
        topic, _, document, grade = line.split()
        if int(grade) > 0:
            relevant.setdefault(topic, set()).add(places[document])
    questions = [
        RecallQuestion(text.strip().lower(), "topic", frozenset(relevant[number]))
        for number, text in _TOPIC.findall(files["vaswani/query-text.trec"])
        if number in relevant
    ]
    texts = tuple((" ".join(text.split()), MemorySource()) for _, text in documents)
    return RecallSet("vaswani", texts, tuple(questions))


def bfcl_memory() -> list[RecallSet]:
    files = _files("bfcl_memory/")
    answers = {entry["id"]: entry for entry in map(json.loads, files["bfcl_memory/answers.jsonl"].splitlines())}
    asked = [json.loads(line) for line in files["bfcl_memory/questions.jsonl"].splitlines()]
    sets = []
    for scenario in sorted({entry["scenario"] for entry in asked}):
        lines = files[f"bfcl_memory/memory_prereq_conversation/memory_{scenario}.json"].splitlines()
        messages = [message for line in lines for turn in json.loads(line)["question"] for message in turn]
        texts = tuple(
            (message["content"], MemorySource(conversation=scenario, position=place, speaker=message["role"]))
            for place, message in enumerate(messages)
        )
        questions = tuple(
            RecallQuestion(
                entry["question"][0][0]["content"],
                scenario,
                _answering(answers[entry["id"]], [text for text, _ in texts]),
            )
            for entry in asked
            if entry["scenario"] == scenario
        )
        sets.append(RecallSet("bfcl_memory", texts, questions))
    return sets


def _answering(answer: dict, texts: list[str]) -> frozenset[int]:
    """Returns the texts that hold the answer, or the quotation that the set gives as its source."""
    wanted = [str(one).lower() for one in answer["ground_truth"]]
    patterns = [re.compile(rf"(?<!\w){re.escape(one)}(?!\w)") for one in wanted]
    pieces = [_plain(piece) for piece in re.split(r"\.\.\.|…", answer["source"])]
    pieces = [piece for piece in pieces if len(piece.split()) >= SOURCE_WORDS_MIN]
    return frozenset(
        place
        for place, text in enumerate(texts)
        if any(pattern.search(text.lower()) for pattern in patterns) or any(piece in _plain(text) for piece in pieces)
    )


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _files(prefix: str) -> dict[str, str]:
    with tarfile.open(CORPORA / ARCHIVE) as archive:
        members = [one for one in archive.getmembers() if one.isfile() and one.name.lstrip("./").startswith(prefix)]
        read = {one.name.lstrip("./"): archive.extractfile(one) for one in members}
        return {name: file.read().decode("utf-8") for name, file in read.items() if file is not None}
