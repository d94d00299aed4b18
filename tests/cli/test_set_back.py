"""A journal that was set back to an earlier checkpoint, and a clock that was set back: refused, accepted, recorded."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palyra.adapters.clock import SystemClock, _Mark, advance_clock
from palyra.adapters.keys.signer import read_head
from palyra.app import open_offline
from palyra.cli.main import app
from palyra.core.errors import Corrupt
from palyra.core.events import Event
from palyra.core.events.system import AdminActed
from palyra.ports.journal import Append
from tests.support.homes import TestHome
from tests.support.journals import message_user


@pytest.fixture
def home(tmp_path: Path) -> TestHome:
    return TestHome(tmp_path / "home").fill()


def verify(home: TestHome, *arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, ["--home", str(home.home.root), "verify", "--json", *arguments])
    return result.exit_code, [finding["what"] for finding in json.loads(result.stdout)["findings"]]


def begun(home: TestHome) -> Path:
    return next(home.home.public_keys.glob("*.begun"))


async def add(home: TestHome, text: str) -> None:
    async with open_offline(home.home) as offline:
        head = await offline.journal.head(home.second)
        assert head is not None
        await offline.journal.commit([Append(home.second, head.seq, (message_user(text),))])


def acts(home: TestHome) -> list[str]:
    async def read() -> Sequence[Event]:
        async with open_offline(home.home) as offline:
            return await offline.journal.read(home.system, 0, 1_000)

    return [event.data.action for event in asyncio.run(read()) if isinstance(event.data, AdminActed)]


def set_back(home: TestHome) -> None:
    """Whoever can write the disk puts an older copy of the journal back, then goes on as they like."""
    copy = home.home.root / "older.db"
    shutil.copy(home.home.journal, copy)
    asyncio.run(add(home, "what somebody wants to be gone"))
    copy.replace(home.home.journal)


def test_a_journal_set_back_is_refused_by_verify_and_by_whoever_opens_it(home: TestHome) -> None:
    set_back(home)
    code, findings = verify(home)
    assert code == 1
    assert [what for what in findings if "the newest that its key has signed, is not here" in what]
    with pytest.raises(Corrupt, match=r"journal_set_back.*--accept-loss"):
        asyncio.run(add(home, "x"))
    assert acts_refused(home)


def test_doctor_says_why_the_daemon_does_not_start_and_what_to_do(home: TestHome) -> None:
    def finding() -> tuple[str, str]:
        result = CliRunner().invoke(app, ["--home", str(home.home.root), "doctor", "--json"])
        (found,) = [each for each in json.loads(result.stdout)["checks"] if each["check"] == "journal"]
        return found["mark"], found.get("remedy", "")

    assert finding()[0] == "ok"
    set_back(home)
    mark, remedy = finding()
    assert (mark, "palyra verify --accept-loss" in remedy) == ("fail", True)
    verify(home, "--accept-loss", "--yes")
    assert finding()[0] == "ok"


def acts_refused(home: TestHome) -> bool:
    """Nothing was signed: it is refused again."""
    with pytest.raises(Corrupt, match="journal_set_back"):
        asyncio.run(add(home, "x"))
    return True


def test_an_accepted_loss_is_recorded_and_the_journal_goes_on(home: TestHome) -> None:
    set_back(home)
    code, findings = verify(home, "--accept-loss", "--yes")
    assert (code, findings) == (0, [])
    asyncio.run(add(home, "later"))
    assert acts(home) == ["journal.head_accepted"]
    assert verify(home) == (0, [])


def test_accepting_asks_first(home: TestHome) -> None:
    set_back(home)
    result = CliRunner().invoke(app, ["--home", str(home.home.root), "verify", "--accept-loss"], input="n\n")
    assert result.exit_code == 1
    assert verify(home)[0] == 1


def test_a_whole_journal_is_not_said_to_have_lost_anything(home: TestHome) -> None:
    result = CliRunner().invoke(app, ["--home", str(home.home.root), "verify", "--accept-loss"], input="y\n")
    assert result.exit_code == 0
    assert "If this node has recorded anything that is not in this journal, that is lost" in result.output
    assert verify(home) == (0, [])


def test_a_restored_older_backup_goes_on_and_that_is_recorded(home: TestHome, tmp_path: Path) -> None:
    palyra = ["--home", str(home.home.root)]
    assert CliRunner().invoke(app, [*palyra, "backup", str(tmp_path / "b")]).exit_code == 0
    asyncio.run(add(home, "after the backup"))
    assert CliRunner().invoke(app, [*palyra, "restore", "--replace", "--yes", str(tmp_path / "b")]).exit_code == 0
    asyncio.run(add(home, "goes on"))
    assert acts(home) == ["journal.head_accepted"]
    assert verify(home) == (0, [])


@pytest.mark.parametrize("kept", [1, 0])
def test_a_file_of_an_earlier_release_is_upgraded(home: TestHome, kept: int) -> None:
    lines = begun(home).read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    begun(home).write_bytes(b"".join(lines[:kept]))
    assert verify(home) == (0, [])
    asyncio.run(add(home, "goes on"))
    assert read_head(begun(home)) is not None
    assert acts(home) == ["journal.head_accepted"]
    assert verify(home) == (0, [])


def test_a_crash_between_a_checkpoint_and_its_file_leaves_an_older_file_that_is_sound(home: TestHome) -> None:
    older = begun(home).read_bytes()
    for number in range(3):
        asyncio.run(add(home, f"{number}"))
    begun(home).write_bytes(older)
    assert verify(home) == (0, [])
    asyncio.run(add(home, "goes on"))
    assert acts(home) == []
    assert begun(home).read_bytes() != older


@pytest.mark.parametrize(
    "change", [lambda line: line[:-9] + b"00000000}", lambda _: b"no json", lambda line: line[:50]]
)
def test_a_forged_or_torn_head_is_refused(home: TestHome, change: object) -> None:
    first, second = begun(home).read_bytes().splitlines(keepends=True)
    begun(home).write_bytes(first + change(second.strip()) + b"\n")  # type: ignore[operator]
    code, findings = verify(home)
    assert code == 1
    assert any("was not signed by that key" in what for what in findings)
    with pytest.raises(Corrupt, match="head_damaged"):
        asyncio.run(add(home, "x"))
    assert verify(home, "--accept-loss", "--yes") == (0, [])


AHEAD = """
import asyncio, sys, time
from pathlib import Path
from palyra.adapters.clock import SystemClock
from palyra.adapters.keys.signer import FileSigner
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import open_journal
from palyra.app import Home, open_offline
from palyra.app.credentials import issue_token, list_tokens
from palyra.ports.journal import Append
from tests.support.journals import FixedClock, Ids, session_created

home = Home(Path(sys.argv[1]))

async def sign(at_ms):
    signer = FileSigner(home.signing_key, home.public_keys)
    journal = open_journal(JournalSettings(path=home.journal), signer, FixedClock(at_ms))
    await journal.commit([Append(Ids(int(sys.argv[2])).session(), 0, (session_created(),))])
    await journal.close()

async def start():
    async with open_offline(home):
        pass

wall_ms = time.time_ns() // 1_000_000
if sys.argv[3] == "ahead":
    issue_token(home, {"principal": "user:bob", "role": "user", "ttl_s": 3600})
    asyncio.run(sign(wall_ms + 7_200_000))
asyncio.run(start())
print(SystemClock().now_ms() - wall_ms, [each.state for each in list_tokens(home)])
"""


def test_what_has_expired_stays_so_when_the_clock_is_set_back_until_that_is_accepted(tmp_path: Path) -> None:
    """The journal was signed in two hours from now, so the clock is two hours back."""
    home = tmp_path / "home"
    TestHome(home)

    def start(number: int, way: str) -> str:
        command = [sys.executable, "-c", AHEAD, str(home), str(number), way]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    behind_ms, expired = start(1, "ahead").split(maxsplit=1)
    assert 7_200_000 <= int(behind_ms) < 7_260_000
    assert "expired" in expired
    assert int(start(2, "again").split()[0]) > 7_000_000
    accepted = [sys.executable, "-m", "palyra", "--home", str(home), "verify", "--accept-loss", "--yes"]
    subprocess.run(accepted, capture_output=True, check=True)
    assert int(start(3, "again").split()[0]) < 60_000


def test_time_never_goes_back_behind_what_the_journal_has_seen() -> None:
    mark = _Mark()
    begun_ns = mark.now_ns()
    mark.advance(begun_ns + 3_600_000_000_000)
    first = mark.now_ns()
    assert first >= begun_ns + 3_600_000_000_000
    time.sleep(0.02)
    assert 0 < mark.now_ns() - first < time.monotonic_ns()
    assert advance_clock(0) == 0
    assert abs(SystemClock().now_ms() - time.time_ns() // 1_000_000) < 1_000
