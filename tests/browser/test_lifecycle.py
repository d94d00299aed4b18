"""Browsers come and go: profiles that stay, room for new ones, what was killed, and what a killed daemon leaves behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.adapters.browser.chromium import browser_pids
from palyra.adapters.browser.sessions import Browsers, BrowserSettings
from palyra.adapters.net.guard import Guard
from tests.browser.scenes import FIRST, Scene, needs_chromium, ref_of, scene
from tests.support.sites import LOOPBACK, standing_site
from tests.support.waiting import WAIT_S, until, wait_until

pytestmark = pytest.mark.anyio
TEST_S = WAIT_S
SECOND, THIRD = "01JZ0000000000000000SECND1", "01JZ0000000000000000THIRD1"
COUNTER = """<p id=a></p><script>
const count = 1 + Number((document.cookie.match(/count=(\\d+)/) || [0, 0])[1]);
document.cookie = 'count=' + count + '; max-age=9999'; a.textContent = 'visit ' + count;
localStorage.kept = 1 + Number(localStorage.kept || 0); a.textContent += ' kept ' + localStorage.kept;
</script>"""


@pytest.fixture
async def s(tmp_path: Path) -> AsyncIterator[Scene]:
    async with asyncio.timeout(TEST_S), scene(tmp_path, BrowserSettings(sessions_max=2)) as made:
        yield made


def pids(s: Scene, session: str = FIRST) -> list[int]:
    return browser_pids(s.folder / session)


async def test_profile_is_of_one_session_and_outlives_the_browser(s: Scene) -> None:
    url = s.page("/", COUNTER)
    assert "visit 1 kept 1" in await s.output("open", url=url)
    assert "visit 2 kept 2" in await s.output("open", url=url)
    assert "visit 1 kept 1" in await s.output("open", SECOND, url=url)
    await s.browsers.close()
    assert (pids(s), pids(s, SECOND)) == ([], [])
    assert await s.code("read") == "no_page"
    assert "visit 3 kept 3" in await s.output("open", url=url)
    assert (s.folder / FIRST).stat().st_mode & 0o077 == 0
    await s.browsers.forget(FIRST)
    assert not (s.folder / FIRST).exists()
    assert "visit 1 kept 1" in await s.output("open", url=url)


async def test_one_used_longest_ago_makes_room_and_none_in_use_is_taken(s: Scene) -> None:
    url = s.page("/", "<p>x</p>")
    for session in (FIRST, SECOND, FIRST, THIRD):
        await s.output("open", session, url=url)
    assert (bool(pids(s)), bool(pids(s, SECOND)), bool(pids(s, THIRD))) == (True, False, True)
    async with s.browsers.use(FIRST), s.browsers.use(THIRD):
        assert await s.code("read", SECOND) == "browsers_busy"
    assert await s.code("read", SECOND) == "no_page"


async def test_killed_browser_starts_again_with_its_profile(s: Scene) -> None:
    url = s.page("/", "<p>there</p>")
    await s.output("open", url=url)
    profile = (s.folder / FIRST).stat().st_ino
    for pid in pids(s):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not pids(s))
    assert await s.code("read") in ("page_gone", "no_page", "browser_gone")
    assert "there" in await s.output("open", url=url)
    assert (s.folder / FIRST).stat().st_ino == profile


def test_killed_driver_is_replaced(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a loop of its own: playwright leaves the news of its driver's end in a future that nobody asks."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))  # A killed driver does not clean up.

    async def main() -> None:
        async with asyncio.timeout(TEST_S), scene(tmp_path) as own:
            url = own.page("/", "<p>there</p>")
            await own.output("open", url=url)
            drivers = children_of(os.getpid(), b"playwright")
            assert len(drivers) == 1
            os.kill(drivers[0], signal.SIGKILL)
            await until(lambda: not pids(own))
            assert await own.code("read") is not None
            assert "there" in await own.output("open", url=url)

    asyncio.run(main())


async def test_idle_browser_ends_by_itself(tmp_path: Path) -> None:
    async with asyncio.timeout(TEST_S), scene(tmp_path, BrowserSettings(idle_s=0.3)) as own:
        opening = asyncio.create_task(own.output("open", url=own.page("/", "<p>x</p>")))
        await until(lambda: pids(own))  # It may be over before the page is told.
        await opening
        await until(lambda: not pids(own))
        assert await own.code("read") == "no_page"


async def test_call_cancelled_while_the_browser_starts_leaves_nothing_behind(s: Scene) -> None:
    opening = asyncio.create_task(s.call("open", url=s.page("/", "<p>x</p>")))
    await until(lambda: bool(pids(s)))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await s.browsers.close()
    assert pids(s) == []


async def test_calls_of_one_session_wait_for_each_other(s: Scene) -> None:
    url = s.page("/", "<button onclick=\"this.textContent += '!'\">go</button>")
    output = await s.output("open", url=url)
    results = await asyncio.gather(*(s.call("click", ref=ref_of(output, "go")) for _ in range(3)))
    codes = sorted(result.error.code if result.error else "" for result in results)
    assert codes == ["", "ref_stale", "ref_stale"]


async def test_session_of_any_name_stays_inside_the_folder(tmp_path: Path) -> None:
    browsers = Browsers(Guard(), tmp_path / "profiles")
    bait = tmp_path / "bait"
    bait.mkdir()
    for name in ("../bait", "a/../../bait", str(bait), "..", ".", ""):
        assert browsers._profile(name).parent == tmp_path / "profiles"
        await browsers.forget(name)
    assert bait.is_dir()
    await browsers.close()


def test_killed_daemon_leaves_no_chromium_behind(tmp_path: Path) -> None:
    needs_chromium()
    child = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(tmp_path), standing_site()], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        assert browser_pids(tmp_path / FIRST)
        family = children_of(child.pid, b"")
        child.kill()
        child.wait()
        wait_until_gone([*family, *browser_pids(tmp_path / FIRST)])
        assert browser_pids(tmp_path / FIRST) == []
    finally:
        child.kill()
        child.communicate()


DAEMON = f"""
import asyncio, sys
from pathlib import Path
from urllib.parse import urlsplit
from palyra.adapters.browser.sessions import Browsers
from palyra.adapters.net.guard import Guard

async def main():
    browsers = Browsers(Guard([("{LOOPBACK}", urlsplit(sys.argv[2]).port)]), Path(sys.argv[1]))
    async with browsers.use("{FIRST}") as tab:
        await tab.open(sys.argv[2])
        print("open", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def children_of(parent: int, word: bytes) -> list[int]:
    """Processes that descend from one, with a word in their command line."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {parent}
    for _ in range(20):
        found |= {pid for pid, above in parents.items() if above in found}
    return [pid for pid in found - {parent} if word in command_line(pid) and not is_dead(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_dead(pid: int) -> bool:
    """Gone, or waiting only for somebody to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(processes: list[int]) -> None:
    wait_until(lambda: all(is_dead(pid) for pid in processes), "the end of the killed daemon's processes")
