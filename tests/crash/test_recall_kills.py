"""Items, words and vectors agree, wherever taking items in and re-embedding them is killed."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.examples import examples
from tests.support.memories import memory_file
from tests.support.memory_index import check_index

KILLS_COUNT = 4
LINES_MAX = 25


def test_killed_at_any_time_the_index_agrees_with_the_items(tmp_path: Path) -> None:
    path, chance = tmp_path / "journal.db", random.Random(11)
    for _ in range(examples(KILLS_COUNT)):
        command = [sys.executable, "-m", "tests.support.recall_kills", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(chance.randint(1, LINES_MAX)):
                assert child.stdout.readline()
            os.kill(child.pid, signal.SIGKILL)
        with memory_file(path) as store:
            assert check_index(store.connection) == []
            items_count = store.connection.execute("SELECT count(*) FROM memory_items").get
            assert store.connection.execute("SELECT count(*) FROM memory_entries").get == items_count
            assert items_count
