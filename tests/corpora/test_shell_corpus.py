"""The shell judge against the labels of a read-only policy that other people wrote.

That policy counts reading over the network as reading, so the figures are those of a scope whose network is open. Where the
network is closed, what needs it asks; the third test says that this is all the difference.
"""

import gzip
import json
import os
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.shell import TreeSitterShell
from palyra.core.shell import Code, Judgement, Network, ShellCapability, ShellScope, judge

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
COMMANDS = CORPORA / "shell_commands.jsonl.gz"
PARSER = TreeSitterShell()
ROOTS = ("/home/user/project",)
OPEN = ShellScope(cwd=ROOTS[0], roots=ROOTS, repositories=ROOTS, home="/home/user", network=Network.OPEN)
CLOSED = ShellScope(cwd=OPEN.cwd, roots=ROOTS, repositories=ROOTS, home=OPEN.home)

FALSE_APPROVALS_MAX = 0.005  # Of what the labels refuse.
FALSE_ASKS_MAX = 0.20  # Of what the labels approve.

needs_corpus = pytest.mark.skipif(not COMMANDS.is_file(), reason=f"no corpus at {COMMANDS}; set PALYRA_CORPORA")


@cache
def rows() -> tuple[dict[str, Any], ...]:
    with gzip.open(COMMANDS, "rt", encoding="utf-8") as lines:
        return tuple(map(json.loads, lines))


def texts(*, is_approved: bool) -> list[str]:
    return [row["command"] for row in rows() if row.get("auto_approve") is is_approved]


def judged(text: str, scope: ShellScope) -> Judgement:
    return judge(text, scope, PARSER.parse)


@needs_corpus
def test_hardly_anything_is_approved_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    refused = texts(is_approved=False)
    free = [text for text in refused if judged(text, OPEN).is_free]
    with capsys.disabled():
        print(f"\nshell: {len(free)} of {len(refused)} refused commands are free: {len(free) / len(refused):.2%}")
    assert len(free) <= FALSE_APPROVALS_MAX * len(refused), free


@needs_corpus
def test_little_is_asked_needlessly(capsys: pytest.CaptureFixture[str]) -> None:
    approved = texts(is_approved=True)
    asking = [text for text in approved if not judged(text, OPEN).is_free]
    with capsys.disabled():
        print(f"\nshell: {len(asking)} of {len(approved)} approved commands ask: {len(asking) / len(approved):.2%}")
    assert len(asking) <= FALSE_ASKS_MAX * len(approved), asking


@needs_corpus
def test_a_closed_network_asks_for_the_network_and_changes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    approved = texts(is_approved=True)
    for text in (*approved, *texts(is_approved=False)):
        opened, closed = judged(text, OPEN), judged(text, CLOSED)
        assert closed.is_free == (opened.is_free and ShellCapability.NETWORK not in opened.capabilities)
        assert {reason for reason in closed.reasons if reason.code is not Code.NEEDS_NETWORK} <= set(opened.reasons)
    asking = [text for text in approved if not judged(text, CLOSED).is_free]
    with capsys.disabled():
        print(f"\nshell: with the network closed {len(asking)} of {len(approved)} approved commands ask")


@needs_corpus
def test_no_dangerous_command_of_another_system_is_free() -> None:
    dangerous = [shlex.join(row["argv"]) for row in rows() if "argv" in row]
    assert [text for text in dangerous if judged(text, OPEN).is_free] == []
