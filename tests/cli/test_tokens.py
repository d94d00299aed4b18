"""`palyra tokens` and `palyra login-link` from outside, through a running daemon and without one."""

import asyncio
import http.client
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.app import Home, open_offline
from palyra.cli.main import app
from palyra.core.events import Event
from palyra.core.events.system import AdminActed
from tests.support.daemons import Daemon
from tests.support.terminals import Terminal
from tests.support.waiting import WAIT_S


def palyra(home: Path, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> Result:
    result = CliRunner().invoke(app, ["--home", str(home), *arguments], env={"NO_COLOR": "1", **(env or {})})
    assert result.exit_code == code, result.output
    return result


def acts(home: Path) -> list[tuple[str, str]]:
    async def read() -> tuple[Event, ...]:
        async with open_offline(Home(home)) as offline:
            return await offline.journal.read_all(0, 500)

    return [
        (event.data.action, event.data.target) for event in asyncio.run(read()) if isinstance(event.data, AdminActed)
    ]


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address at which no daemon is."""
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    monkeypatch.delenv("PALYRA_TOKEN", raising=False)


@pytest.mark.usefixtures("nowhere")
def test_tokens_are_made_listed_and_revoked_without_a_daemon(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = palyra(
        home, "tokens", "new", "--for", "user:alice", "--role", "user", "--expires", "30d", "--label", "laptop"
    )
    token = made.stdout.strip()
    assert token.startswith("palyra_")
    assert "shown this once" in made.stderr
    listed = palyra(home, "tokens", "list")
    assert token not in listed.output
    assert "user:alice" in listed.stdout
    (record,) = json.loads(palyra(home, "tokens", "list", "--json").stdout)["items"]
    assert (record["label"], record["state"], record["expires_at_ms"] - record["created_at_ms"]) == (
        "laptop",
        "valid",
        30 * 24 * 3600 * 1000,
    )
    palyra(home, "tokens", "revoke", record["id"][:6])
    assert json.loads(palyra(home, "tokens", "list", "--json").stdout)["items"][0]["state"] == "revoked"
    assert "token_unknown" in palyra(home, "tokens", "revoke", "nope", code=1).stderr
    assert (
        "action_unknown"
        in palyra(home, "tokens", "new", "--for", "user:a", "--role", "user", "--action", "fly", code=1).stderr
    )


@pytest.mark.usefixtures("nowhere")
def test_an_address_that_was_named_must_answer(tmp_path: Path) -> None:
    palyra(tmp_path, "tokens", "rotate-admin")
    refused = palyra(tmp_path, "tokens", "list", "--url", "http://127.0.0.1:1", code=1)
    assert "daemon_unreachable" in refused.stderr


def test_through_a_daemon_every_act_is_on_its_tape_and_without_one_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Daemon(home) as daemon:
        environment = {"PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}
        wish = ("tokens", "new", "--for", "user:phone", "--role", "user", "--action", "approvals", "--json")
        issued = json.loads(palyra(home, *wish, env=environment).stdout)
        own = {**environment, "PALYRA_TOKEN": issued["token"]}
        palyra(home, "approvals", "list", env=own)
        assert "scope_insufficient" in palyra(home, "runs", "list", code=1, env=own).stderr
        listed = json.loads(palyra(home, "tokens", "list", "--json", env=environment).stdout)["items"]
        assert {item["id"]: item["last_used_at_ms"] is not None for item in listed} == {
            "admin": True,
            issued["record"]["id"]: True,
        }
        link = palyra(home, "login-link", env=environment).stdout.strip()
        assert link.startswith(f"http://127.0.0.1:{daemon.port}/#login=")
        assert log_in(daemon.port, link.partition("#login=")[2]) == [200, 200, 401]
        old = daemon.token
        palyra(home, "tokens", "rotate-admin", env=environment)
        assert daemon.token != old
        assert (
            "token_invalid" in palyra(home, "tokens", "list", code=1, env={**environment, "PALYRA_TOKEN": old}).stderr
        )
        palyra(home, "tokens", "revoke", issued["record"]["id"], env=environment)
        assert "#login=" not in daemon.log()
    assert (home / "tokens.last-use.json").exists()
    palyra(home, "tokens", "rotate-admin", env={"PALYRA_SERVER__HTTP": "127.0.0.1:1"})
    token_id = issued["record"]["id"]
    assert acts(home) == [
        ("tokens.issue", token_id),
        ("login.link", "admin"),
        ("login.begin", "admin"),
        ("tokens.rotate", "admin"),
        ("tokens.revoke", token_id),
        ("tokens.rotate", "admin"),
    ]


def log_in(port: int, code: str) -> list[int]:
    """As the page's script does: exchange the code, look who one is, and try the code again."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    statuses, cookie = [], ""
    for method, path, body in (
        ("POST", "login", {"code": code}),
        ("GET", "me", None),
        ("POST", "login", {"code": code}),
    ):
        headers = {"origin": f"http://127.0.0.1:{port}"} | ({"cookie": cookie} if cookie else {})
        connection.request(method, f"/api/v1/{path}", json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
        cookie = cookie or (answer.getheader("set-cookie") or "").partition(";")[0]
    connection.close()
    return statuses


def test_a_terminal_is_shown_a_link_at_the_start_that_logs_a_browser_in(tmp_path: Path) -> None:
    with Terminal(["--home", str(tmp_path / "home"), "serve"], {"PALYRA_SERVER__HTTP": "127.0.0.1:0"}) as terminal:
        terminal.expect("palyra listens on 127.0.0.1:")
        terminal.expect("within 10 minutes:")
        terminal.expect("http://127.0.0.1:")
        port, _, code = terminal.expect("\n").strip().partition("/#login=")
        assert log_in(int(port), code) == [200, 200, 401]
        terminal.interrupt()
        assert terminal.process.wait(WAIT_S) == 0


@pytest.mark.usefixtures("nowhere")
def test_a_token_says_who_speaks_and_doctor_lists_those_of_which_nobody_said_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for flag, label in (("--person", "laptop"), ("--program", "ci"), (None, "old")):
        flags = [flag] if flag is not None else []
        made = palyra(home, "tokens", "new", "--for", "user:alice", "--role", "user", "--label", label, *flags)
        assert ("Say --person or --program" in made.stderr) is (flag is None)
    palyra(home, "tokens", "new", "--for", "user:watch", "--role", "viewer")
    records = json.loads(palyra(home, "tokens", "list", "--json").stdout)["items"]
    assert {each["label"]: each["speaks"] for each in records if each["label"]} == {
        "laptop": "person",
        "ci": "program",
        "old": None,
    }
    result = CliRunner().invoke(app, ["--home", str(home), "doctor", "--json"])
    (finding,) = [each for each in json.loads(result.stdout)["checks"] if each["check"] == "tokens"]
    assert finding["mark"] == "warn"
    assert "(old)" in finding["what"]
    assert "(ci)" not in finding["what"]
    assert "user:watch" not in finding["what"]


@pytest.mark.usefixtures("nowhere")
def test_a_home_whose_tokens_were_made_before_the_choice_goes_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    palyra(home, "tokens", "new", "--for", "user:alice", "--role", "user")
    rows = home / "tokens.jsonl"
    row = json.loads(rows.read_text())
    del row["speaks"]
    rows.write_text(json.dumps(row) + "\n")
    (record,) = json.loads(palyra(home, "tokens", "list", "--json").stdout)["items"]
    assert (record["state"], record["speaks"]) == ("valid", None)
