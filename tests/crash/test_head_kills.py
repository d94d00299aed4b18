"""Kills around the file that names the newest checkpoint: it is never newer than the journal, and nothing is refused."""

import random
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from palyra.adapters.keys.signer import read_head
from palyra.cli.main import app
from tests.support.examples import examples
from tests.support.homes import TestHome

KILLS_COUNT = min(40, examples(8))
SIGNING = """
import asyncio, sys
from pathlib import Path
from palyra.app import Home, open_offline
from palyra.ports.journal import Append
from tests.support.journals import message_user

async def sign_for_ever(home, session):
    async with open_offline(home) as offline:
        while True:
            head = await offline.journal.head(session)
            await offline.journal.commit([Append(session, head.seq, (message_user("x"),))])
            await offline.journal.checkpoint()
            print("signed", flush=True)

asyncio.run(sign_for_ever(Home(Path(sys.argv[1])), sys.argv[2]))
"""


def test_a_kill_around_the_newest_head_leaves_a_journal_that_is_whole_and_opens(tmp_path: Path) -> None:
    home, chance = TestHome(tmp_path / "home").fill(), random.Random(5)
    newest = 0
    for _ in range(KILLS_COUNT):
        command = [sys.executable, "-c", SIGNING, str(home.home.root), home.second]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, 6)):
                assert process.stdout.readline() == b"signed\n"
            try:
                process.wait(chance.uniform(0, 0.01))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        checked = CliRunner().invoke(app, ["--home", str(home.home.root), "verify"])
        assert checked.exit_code == 0, checked.stdout
        head = read_head(next(home.home.public_keys.glob("*.begun")))
        assert head is not None
        assert head.position > newest
        newest = head.position
