"""A real daemon is killed while files come in and go out: each is read and sent once or shown as uncertain, none lost."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palyra.adapters.artifacts.files import PARTIAL_AGE_S, FileArtifacts
from tests.support.daemons import Daemon
from tests.support.examples import examples
from tests.support.lasting import lasting
from tests.support.telegram import TOKEN, TelegramServer, telegram_server
from tests.support.waiting import wait_until

FILES_COUNT = examples(4)
KILLS_COUNT = examples(3)
SENDS_COUNT = 4  # Calls of one turn.
BODY_BYTES = 3_000_000  # More than the kernel buffers, so that a kill leaves half of it unsent.
PAUSE_S = 0.1
GIVEN_UP = "I could not finish this"
CALL = (
    '{{ tool = "channel.send", arguments = {{ channel = "team", conversation_id = "99", '
    'text = "file {number}", attachments = ["report-{number}.bin"] }} }}'
)
CHANNEL = """
[[agent]]
name = "main"
workspace = ["{workspace}"]
[[channel]]
name = "team"
kind = "telegram"
token = "env:TELEGRAM_TOKEN"
api_url = "{url}"
dm_policy = "allow"
coalesce_ms = 0
when_busy = "queue"
"""


@contextmanager
def telegram() -> Iterator[TelegramServer]:
    with lasting(telegram_server) as platform:
        platform.server.pause_s = PAUSE_S
        yield platform.server


def say(server: TelegramServer, number: int) -> None:
    document = {"file_id": f"note-{number}.txt", "file_name": f"note-{number}.txt", "file_size": 18}
    server.updates.append(
        {
            "update_id": len(server.updates) + 1,
            "message": {
                "message_id": 100 + number,
                "chat": {"id": 7 + number % 2, "type": "private"},
                "from": {"id": 7 + number % 2, "is_bot": False, "first_name": "Alice"},
                "caption": f"read {number}.",
                "document": document,
            },
        }
    )


def make_daemon(home: Path, server: TelegramServer) -> Daemon:
    heard = "".join(
        f'[[scripts]]\nwhen = "read {number}[.]"\nturns = [{{ text = "heard {number}" }}]\n'
        for number in range(FILES_COUNT)
    )
    calls = ", ".join(CALL.format(number=number) for number in range(SENDS_COUNT))
    script = f'{heard}[[scripts]]\nwhen = "send"\nturns = [{{ calls = [{calls}] }}, {{ text = "Sent." }}]\n'
    daemon = Daemon(home / "home", script, TELEGRAM_TOKEN=TOKEN)
    workspace = home / "workspace"
    workspace.mkdir()
    for number in range(SENDS_COUNT):
        (workspace / f"report-{number}.bin").write_bytes(body_of(number))
    with (daemon.home / "palyra.toml").open("a") as file:
        file.write(CHANNEL.format(workspace=workspace, url=server.url))
    return daemon


def body_of(number: int) -> bytes:
    return b"\x00" + bytes([number]) * BODY_BYTES


def queue_files(daemon: Daemon) -> None:
    """Lets a run queue files while the channel is paused, and allows what it asks."""
    assert daemon.call("POST", "/api/v1/channels/team/pause")[0] == 200
    run = daemon.call("POST", "/api/v1/runs", {"text": "send"})[1]

    def is_done() -> bool:
        for card in daemon.call("GET", "/api/v1/approvals?status=pending")[1]["items"]:
            daemon.call("POST", f"/api/v1/approvals/{card['id']}", {"decision": "allow"})
        return bool(daemon.call("GET", f"/api/v1/runs/{run['id']}")[1]["state"] == "done")

    wait_until(is_done, "the files to be queued")
    assert len(items(daemon)) == SENDS_COUNT
    assert daemon.call("POST", "/api/v1/channels/team/resume")[0] == 200


def kill_when_taken(daemon: Daemon, server: TelegramServer, chance: random.Random) -> None:
    """Kills between the moment at which the platform has a file and the one at which it says so."""
    wait_until(lambda: any("document" in body for body in server.sent), "the first file")
    time.sleep(chance.uniform(0.0, PAUSE_S / 2))
    daemon.kill()
    daemon.start()


def items(daemon: Daemon) -> list[dict]:
    found: list[dict] = daemon.call("GET", "/api/v1/outbox?limit=500")[1]["items"]
    return [item for item in found if item["kind"] != "preview"]


def is_settled(daemon: Daemon) -> bool:
    states = [item["state"] for item in items(daemon)]
    return len(states) == SENDS_COUNT + FILES_COUNT and set(states) <= {"sent", "uncertain"}


def tape(daemon: Daemon, session_id: str) -> Iterator[dict]:
    after: int | None = 0
    while after is not None:
        page = daemon.call("GET", f"/api/v1/sessions/{session_id}/tape?limit=500&after={after}")[1]
        yield from page["events"]
        after = page["next_after"]


def test_killed_at_any_time_every_file_is_read_and_sent_once_or_uncertain(tmp_path: Path) -> None:
    chance = random.Random(11)
    with telegram() as server, make_daemon(tmp_path, server) as daemon:
        queue_files(daemon)
        for number in range(FILES_COUNT):
            say(server, number)
        kill_when_taken(daemon, server, chance)
        for files_count in sorted(chance.sample(range(1, FILES_COUNT + SENDS_COUNT), KILLS_COUNT - 1)):
            wait_until(lambda: server.files_begun_count >= files_count)  # noqa: B023 - awaited in this round
            time.sleep(chance.uniform(0.0, 3 * PAUSE_S))
            daemon.kill()
            daemon.start()
        wait_until(lambda: is_settled(daemon), "every file to be read and sent")
        found = items(daemon)
        _require_sent_once(server, found)
        _require_read_once(daemon)
    _require_no_partial(daemon.home)


def _require_sent_once(server: TelegramServer, found: list[dict]) -> None:
    uncertain_count = sum(item["state"] == "uncertain" for item in found)
    assert uncertain_count <= 2 * KILLS_COUNT
    bodies = Counter(body["document"][2] for body in server.sent if "document" in body)
    texts = Counter(body["text"] for body in server.sent if "document" not in body)
    assert set(bodies) <= {body_of(number) for number in range(SENDS_COUNT)}
    assert max(bodies.values(), default=0) <= 1
    assert list(bodies) == sorted(bodies)  # In the order in which they were queued.
    assert max(count for text, count in texts.items() if not text.startswith(GIVEN_UP)) == 1
    # A conversation was to get a text and a file, or an answer. What is missing is shown as uncertain.
    wanted_count = 2 * SENDS_COUNT + FILES_COUNT
    assert bodies.total() + texts.total() >= wanted_count - 2 * uncertain_count


def _require_read_once(daemon: Daemon) -> None:
    """Each message started one run, with its file."""
    sessions = daemon.call("GET", "/api/v1/sessions?limit=100&everyone=true")[1]["items"]
    read = [event["data"] for each in sessions for event in tape(daemon, each["id"]) if event["type"] == "message.user"]
    said = [(each["text"], [file["name"] for file in each.get("attachments", [])]) for each in read]
    wanted = [(f"read {number}.", [f"note-{number}.txt"]) for number in range(FILES_COUNT)]
    assert sorted(each for each in said if each[0] != "send") == sorted(wanted)


def _require_no_partial(home: Path) -> None:
    """What a killed write left is swept once it is old, and nothing else of a file is left anywhere."""
    old_s = time.time() - 2 * PARTIAL_AGE_S
    for path in home.rglob("*partial-*"):
        os.utime(path, (old_s, old_s))
    FileArtifacts(home / "artifacts").sweep()
    assert [path for path in home.rglob("*") if "partial" in path.name or path.suffix in (".tmp", ".part")] == []
