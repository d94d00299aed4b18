"""Channels of a real daemon by its commands: listed, tested, paused; codes, the question, and links."""

import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

from tests.support.daemons import Daemon
from tests.support.waiting import WAIT_S

SECRET = "the-secret-of-the-webhook"
CHANNEL = '[[channel]]\nname = "hook"\nkind = "webhook"\nsecret = "env:HOOK_SECRET"\ndm_policy = "pairing"\n'


def palyra(daemon: Daemon, *arguments: str) -> str:
    environment = {**os.environ, "PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}
    command = [sys.executable, "-m", "palyra", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def send(daemon: Daemon, envelope: str, text: str) -> tuple[int, dict]:
    told = {"envelope_id": envelope, "sender_id": "7", "conversation_id": "c", "text": text, "is_direct": True}
    body, stamp = json.dumps(told).encode(), str(int(time.time()))
    signature = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {"x-palyra-timestamp": stamp, "x-palyra-signature": f"v1={signature}"}
    connection = HTTPConnection("127.0.0.1", daemon.port, timeout=WAIT_S)
    connection.request("POST", "/api/v1/channels/hook/inbound", body, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_an_account_is_paired_and_a_channel_looked_after_by_commands(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, '[[scripts]]\nturns = [{ text = "hi" }]\n', HOOK_SECRET=SECRET)
    with (tmp_path / "palyra.toml").open("a") as file:
        file.write(CHANNEL)
    with daemon:
        assert "hook" in palyra(daemon, "channels", "list")
        assert "works" in palyra(daemon, "channels", "test", "hook")
        code = json.loads(palyra(daemon, "pair", "--as", "user:alice", "--json"))["code"]
        assert send(daemon, "e1", code) == (202, {"accepted": True, "run_id": None})
        palyra(daemon, "approvals", "allow", "last", "--role", "user")
        links = json.loads(palyra(daemon, "pair", "list", "--json"))["items"]
        assert [(link["principal"], link["role"]) for link in links] == [("user:alice", "user")]
        status, taken = send(daemon, "e2", "hello")
        assert (status, taken["accepted"]) == (202, True)
        palyra(daemon, "pair", "revoke", links[0]["id"])
        assert send(daemon, "e3", "hello")[1]["accepted"] is False
        palyra(daemon, "channels", "pause", "hook")
        assert send(daemon, "e4", "hello")[0] == 503
        assert palyra(daemon, "channels", "resume", "hook").startswith("hook is resumed")
        assert "no message is dead, unread or uncertain" in palyra(daemon, "channels", "dead-letters")
        # The journal with a question on its system tape is sound, also offline.
        assert daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True
