"""A real daemon is killed again and again while webhooks come in: every message is answered once, in order."""

import hashlib
import hmac
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.daemons import Daemon
from tests.support.examples import examples
from tests.support.waiting import wait_until

SECRET = "the-secret-of-the-webhook"
CONVERSATIONS_COUNT = 4
EACH_COUNT = examples(3)
KILLS_COUNT = examples(2)
WAIT_S = 120.0
GIVEN_UP = "I could not finish this"


class Receiver(ThreadingHTTPServer):
    """Takes each delivery once, as docs/channels.md asks."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.taken: dict[str, dict] = {}

    def take(self, body: bytes, delivery: str) -> None:
        with self.lock:
            self.taken.setdefault(delivery, json.loads(body))

    def wait_for(self, answers_count: int) -> None:
        wait_until(lambda: len(self.taken) >= answers_count, f"{answers_count} answers", WAIT_S)

    def texts(self, conversation: str) -> list[str]:
        with self.lock:
            return [each["text"] for each in self.taken.values() if each["conversation_id"] == conversation]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.take(body, self.headers["x-palyra-delivery"])
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def make_daemon(home: Path, receiver: Receiver) -> Daemon:
    names = [name for number in range(CONVERSATIONS_COUNT) for name in messages_of(number)]
    script = "".join(f'[[scripts]]\nwhen = "^{name}$"\nturns = [{{ text = "heard {name}" }}]\n' for name in names)
    daemon = Daemon(home, script, HOOK_SECRET=SECRET)
    with (home / "palyra.toml").open("a") as file:
        file.write(
            '[[channel]]\nname = "hook"\nkind = "webhook"\nsecret = "env:HOOK_SECRET"\ndm_policy = "allow"\n'
            f'when_busy = "queue"\noutbound_url = "http://127.0.0.1:{receiver.server_port}/answers"\n'
        )
    return daemon


def messages_of(conversation: int) -> list[str]:
    return [f"word {conversation} {number}" for number in range(EACH_COUNT)]


def deliver(port: int, conversation: int) -> None:
    """Sends the messages of a conversation one after another, each until it is taken, as a platform does."""
    for text in messages_of(conversation):
        body = json.dumps(
            {"envelope_id": text, "sender_id": "7", "conversation_id": f"c{conversation}", "text": text,
             "is_direct": True}
        ).encode()  # fmt: skip
        while not _is_taken(port, body):
            time.sleep(0.02)


def _is_taken(port: int, body: bytes) -> bool:
    stamp = str(int(time.time()))
    signature = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-palyra-timestamp": stamp,
        "x-palyra-signature": f"v1={signature}",
    }
    try:
        with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("POST", "/api/v1/channels/hook/inbound", body, headers)
            return connection.getresponse().status in (200, 202)
    except (OSError, HTTPException):
        return False


def test_killed_at_any_time_every_message_is_answered_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(7)
    with receiving() as receiver, make_daemon(tmp_path, receiver) as daemon:
        senders = [
            threading.Thread(target=deliver, args=(daemon.port, number), daemon=True)
            for number in range(CONVERSATIONS_COUNT)
        ]
        for sender in senders:
            sender.start()
        total = CONVERSATIONS_COUNT * EACH_COUNT
        # By the count of answers, so that kills hit messages under way however slow the machine is.
        for answers_count in sorted(chance.sample(range(total), KILLS_COUNT)):
            receiver.wait_for(answers_count)
            time.sleep(chance.uniform(0.0, 0.05))
            daemon.kill()
            daemon.start()
        for sender in senders:
            sender.join(WAIT_S)
            assert not sender.is_alive()
        receiver.wait_for(total)
        for number in range(CONVERSATIONS_COUNT):
            answers, wanted = receiver.texts(f"c{number}"), [f"heard {text}" for text in messages_of(number)]
            # A run that several kills in a row hit is given up, as one that crashes the daemon is. It says so in its place.
            given_up = [text for text in answers if text.startswith(GIVEN_UP)]
            assert len(given_up) <= KILLS_COUNT // 3
            assert [each for each in zip(answers, wanted, strict=True) if each[0] not in (*given_up, each[1])] == []
        wait_until(lambda: _states(daemon) == {"sent"}, "the outbox to be empty", WAIT_S)
        assert len(receiver.taken) == total


def _states(daemon: Daemon) -> set[str]:
    status, page = daemon.call("GET", "/api/v1/outbox?limit=500")
    assert status == 200
    return {item["state"] for item in page["items"]}
