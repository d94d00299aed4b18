"""The generated messages are those of the definitions, and every definition says what it is."""

import re
from itertools import pairwise
from pathlib import Path

from tests.tidy.protos import PROTO, SOURCE, generate, generated


def test_generated_messages_are_current(tmp_path: Path) -> None:
    generate(tmp_path)
    assert generated(tmp_path) == generated(SOURCE), "proto/ has changed; run: make protos"


def test_every_file_and_every_method_has_a_comment() -> None:
    for path in PROTO.rglob("*.proto"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("// "), path.name
        bare = [
            line for before, line in pairwise(lines)
            if re.match(r"\s*rpc ", line) and not before.strip().startswith("//")
        ]  # fmt: skip
        assert bare == []
