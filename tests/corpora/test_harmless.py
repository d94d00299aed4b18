"""Harmless work asks next to nobody, with content from outside in the session or without it."""

import shutil
from pathlib import Path

import pytest

from palyra.core.trust import Trust
from tests.corpora.harmless_commands import BUILDING, TESTING, all_commands, commands_of
from tests.corpora.harmless_play import ASKING_SHARE_MAX, play

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in ("git", "make", "gcc", "cmake", "node", "sqlite3", "jq", "zip")),
        reason="needs a machine for building",
    ),
]


async def test_two_hundred_commands_work_with_content_from_outside_and_next_to_none_asks(tmp_path: Path) -> None:
    commands = all_commands()
    assert len(commands) >= 200
    played = await play(tmp_path, commands, Trust.EXTERNAL)
    assert played.failed == ()
    assert played.share <= ASKING_SHARE_MAX, played.asking


async def test_the_same_work_asks_as_little_without_such_content(tmp_path: Path) -> None:
    """A part of it. The campaign plays all."""
    commands = [command for group in (TESTING, BUILDING) for command in commands_of(group)]
    played = await play(tmp_path, commands, Trust.OPERATOR)
    assert played.failed == ()
    assert played.share <= ASKING_SHARE_MAX, played.asking
