"""The redaction rules against the test cases of two secret scanners, and against ordinary prose and code that hold none."""

import gzip
import json
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from palyra.core.redaction import Redactor

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
SECRETS = CORPORA / "secrets.jsonl.gz"
REDACTOR = Redactor(b"corpus")

SURVIVING_MAX = 0.01
TOUCHED_MAX = 0.25  # Most of them are keys of a wrong length, which are random words all the same.
UNSEEN_SURVIVING_MAX = 0.08
PROSE_TOUCHED_MAX = 0.001
CODE_TOUCHED_MAX = 0.0005

needs_corpus = pytest.mark.skipif(not SECRETS.is_file(), reason=f"no corpus at {SECRETS}; set PALYRA_CORPORA")


def _rows(label: int) -> Iterator[dict]:
    with gzip.open(SECRETS, "rt", encoding="utf-8") as lines:
        yield from (row for row in map(json.loads, lines) if row["label"] == label)


@needs_corpus
def test_almost_no_labelled_secret_survives() -> None:
    cases = [(row, secret) for row in _rows(1) for secret in row["secret"] or ()]
    surviving = [row["rule"] for row, secret in cases if secret in REDACTOR.text(row["text"]).text]
    assert len(surviving) <= SURVIVING_MAX * len(cases), surviving


@needs_corpus
def test_few_secrets_survive_without_any_list_of_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the shapes and the names of vendors that are listed, every key is one of a kind nobody has seen."""
    nothing = re.compile(r"(?!)()")
    monkeypatch.setattr("palyra.core.redaction.formats._FORMATS", nothing)
    monkeypatch.setattr("palyra.core.redaction.contexts._VENDOR_BEFORE", nothing)
    cases = [(row, secret) for row in _rows(1) for secret in row["secret"] or ()]
    surviving = [row["rule"] for row, secret in cases if secret in REDACTOR.text(row["text"]).text]
    assert len(surviving) <= UNSEEN_SURVIVING_MAX * len(cases), surviving


@needs_corpus
def test_few_texts_without_a_secret_are_touched() -> None:
    rows = list(_rows(0))
    touched = [row["rule"] for row in rows if REDACTOR.text(row["text"]).secrets]
    assert len(touched) <= TOUCHED_MAX * len(rows), touched


def test_prose_about_programming_is_left_alone() -> None:
    lines = [line for topic in topics.values() for line in topic.splitlines()]
    touched = [line for line in lines if REDACTOR.text(line).secrets]
    assert len(touched) <= PROSE_TOUCHED_MAX * len(lines), touched


def test_source_code_is_left_alone() -> None:
    """The standard library's own sources, a part of them: real code with names of every kind."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [
        *sorted(folder.glob("*.py"))[::4],
        *sorted((folder / "http").glob("*.py")),
        *sorted((folder / "asyncio").glob("*.py")),
    ]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    found = [secret.value for text in texts for secret in REDACTOR.text(text).secrets]
    assert len(found) <= CODE_TOUCHED_MAX * sum(text.count("\n") for text in texts), found
