"""The shell judge against the labelled commands of another project's read-only policy."""

import gzip
import json
import os
from pathlib import Path

import pytest

from palyra.adapters.shell import TreeSitterShell
from palyra.core.shell import Network, Scope, judge

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
COMMANDS = CORPORA / "shell_commands.jsonl.gz"
FALSE_APPROVALS_MAX = 0.005
FALSE_ASKS_MAX = 0.20
SCOPE = Scope(cwd="/home/user/project", roots=("/home/user/project",), home="/home/user", network=Network.OPEN)

needs_corpus = pytest.mark.skipif(not COMMANDS.is_file(), reason=f"no corpus at {COMMANDS}; set PALYRA_CORPORA")


@needs_corpus
def test_hardly_anything_is_approved_wrongly_and_little_asked_needlessly(capsys: pytest.CaptureFixture[str]) -> None:
    """The labels know no closed network: reading over it counts as reading."""
    parser = TreeSitterShell()
    with gzip.open(COMMANDS, "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if "command" in row]
    judged = [(row["command"], row["auto_approve"], judge(row["command"], SCOPE, parser.parse).is_free) for row in rows]
    approved = [text for text, wanted, is_free in judged if is_free and not wanted]
    asked = [text for text, wanted, is_free in judged if wanted and not is_free]
    wanted_count = sum(1 for _, wanted, _ in judged if wanted)
    share = len(asked) / wanted_count
    with capsys.disabled():
        print(f"\nshell: {len(rows)} commands, {len(approved)} approved wrongly, {share:.1%} asked needlessly")
    assert len(approved) <= FALSE_APPROVALS_MAX * len(rows), approved
    assert len(asked) <= FALSE_ASKS_MAX * wanted_count
