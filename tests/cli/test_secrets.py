"""`palyra secrets` from outside, and those who use what it keeps: the daemon, the doctor, backups."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.adapters.vault.header import Costs
from palyra.app import Home
from palyra.app.passphrases import PASSPHRASE_FILE_VARIABLE, PASSPHRASE_VARIABLE, Passphrases
from palyra.app.secrets import SecretSources, open_sources, open_vault, references_of
from palyra.cli.commands.secrets import VALUE_BYTES_READ_MAX
from palyra.cli.main import app
from palyra.config import Config, load, parse_secret
from palyra.core.errors import PalyraError
from tests.support.daemons import Daemon
from tests.support.homes import TestHome
from tests.support.provider_answers import chat
from tests.support.stand_in_provider import Played, StandInProvider
from tests.support.terminals import Terminal
from tests.support.waiting import WAIT_S

ROOT = Path(__file__).parents[2]
VALUE = "a-value-nobody-may-see-7f3k"
PASSPHRASE = "correct horse battery"
CHEAP = Costs(passes=1, memory_kib=8, lanes=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    monkeypatch.delenv(PASSPHRASE_FILE_VARIABLE, raising=False)
    return Home(tmp_path / "home")


def secrets(home: Home, *arguments: str, text: str | bytes = "") -> Result:
    result = CliRunner().invoke(app, ["--home", str(home.root), "secrets", *arguments], input=text)
    assert VALUE not in result.output
    assert PASSPHRASE not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), "a crash shows no traceback"
    return result


def answer(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.stderr
    members: dict[str, object] = json.loads(result.stdout)
    return members


def code(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr.split(":")[1].strip()


def kept(home: Home, name: str = "openai") -> str | None:
    return open_vault(home).get(name)


def test_secret_is_set_listed_replaced_and_removed(home: Home) -> None:
    assert answer(secrets(home, "set", "openai", "--json", text=VALUE)) == {
        "ok": True,
        "name": "openai",
        "replaced": False,
    }
    assert kept(home) == VALUE
    listed = answer(secrets(home, "list", "--json"))
    items = listed["items"]
    assert isinstance(items, list)
    assert [sorted(item) for item in items] == [["name", "set_at_ms"]]
    assert (items[0]["name"], listed["next_after"], listed["lock"]) == ("openai", None, "key-file")
    assert answer(secrets(home, "set", "openai", "--json", text="other"))["replaced"] is True
    assert answer(secrets(home, "rm", "openai", "--json")) == {"ok": True, "name": "openai"}
    assert secrets(home, "list").stdout == "the vault holds no secrets; palyra secrets set NAME adds one\n"
    assert code(secrets(home, "rm", "openai")) == "secret_unknown"


def test_people_are_told_names_and_times_and_how_to_refer_to_one(home: Home) -> None:
    assert secrets(home, "set", "openai", text=VALUE).stdout == "openai is kept; refer to it as vault:openai\n"
    assert "has a new value" in secrets(home, "set", "openai", text=VALUE).stdout
    heading, row = secrets(home, "list").stdout.splitlines()
    assert heading.split() == ["name", "set"]
    assert row.startswith("openai  20")
    assert secrets(home, "rm", "openai").stdout == "openai is removed\n"


def test_listing_an_empty_home_makes_nothing(home: Home) -> None:
    assert answer(secrets(home, "list", "--json")) == {"items": [], "next_after": None, "lock": None}
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (f"{VALUE}\n", VALUE),
        (f"{VALUE}\r\n", VALUE),
        (f"{VALUE}\n\n", f"{VALUE}\n"),
        (VALUE, VALUE),
        (f" {VALUE} \n", f" {VALUE} "),
        (f"{VALUE}\r", f"{VALUE}\r"),
        ("-----BEGIN KEY-----\nabc\n-----END KEY-----\n", "-----BEGIN KEY-----\nabc\n-----END KEY-----"),
    ],
)
def test_one_line_end_of_standard_input_is_dropped(home: Home, given: str, value: str) -> None:
    secrets(home, "set", "openai", text=given)
    assert kept(home) == value


def test_value_comes_from_a_variable_or_a_file(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", f"{VALUE}1")
    (tmp_path / "key").write_text(f"{VALUE}2\n")
    assert answer(secrets(home, "set", "a", "--from-env", "SOME_KEY", "--json"))["ok"] is True
    assert answer(secrets(home, "set", "b", "--from-file", str(tmp_path / "key"), "--json"))["ok"] is True
    assert (kept(home, "a"), kept(home, "b")) == (f"{VALUE}1", f"{VALUE}2")
    assert code(secrets(home, "set", "c", "--from-env", "NO_SUCH_KEY")) == "variable_missing"
    assert code(secrets(home, "set", "c", "--from-file", str(tmp_path / "none"))) == "file_unreadable"
    assert code(secrets(home, "set", "c", "--from-file", str(tmp_path))) == "file_unreadable"
    both = secrets(home, "set", "c", "--from-env", "SOME_KEY", "--from-file", str(tmp_path / "key"))
    assert both.exit_code == 2
    assert kept(home, "c") is None


@pytest.mark.parametrize(
    "words", [[VALUE], ["a", VALUE], [f"--value={VALUE}"], ["--value", VALUE], [f"-----BEGIN {VALUE}"], ["--", VALUE]]
)
def test_value_in_the_command_line_is_refused_and_not_repeated(home: Home, words: list[str]) -> None:
    for command in (["set", "openai"], ["passphrase"]):
        result = secrets(home, *command, *words, text="value")
        assert result.exit_code == 2
        assert "a secret cannot be an argument" in " ".join(result.stderr.split())
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "secret_empty"),
        (b"\n", "secret_empty"),
        (b"\xff" + VALUE.encode(), "secret_not_text"),
        (VALUE.encode() + b"x" * VALUE_BYTES_READ_MAX, "secret_too_large"),
        (b"x" * (64 * 1024 + 1), "secret_too_large"),
        (b"x" * (64 * 1024 + 1) + b"\n", "secret_too_large"),
    ],
    ids=["empty", "line_end", "not_text", "large", "one_more", "one_more_and_line_end"],
)
def test_unfit_value_is_refused(home: Home, text: bytes, expected: str) -> None:
    assert code(secrets(home, "set", "openai", text=text)) == expected
    assert not home.vault.exists()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_largest_value_goes_in_with_its_line_end(home: Home, end: str) -> None:
    assert secrets(home, "set", "openai", text="x" * 64 * 1024 + end).exit_code == 0
    assert kept(home) == "x" * 64 * 1024


@pytest.mark.parametrize("name", ["openai", "a.b-c", "_x", "9", "OPENAI_API_KEY", "slack.signing-2", "n" * 128])
def test_name_is_whatever_a_configuration_can_refer_to(home: Home, name: str) -> None:
    assert parse_secret(f"vault:{name}").name == name
    assert secrets(home, "set", name, text=VALUE).exit_code == 0
    assert SecretSources(home, {}).look_up(parse_secret(f"vault:{name}")) == VALUE


@pytest.mark.parametrize("name", ["", ".a", "a b", "a/b", "ä", "a:b", "n" * 129])
def test_other_names_are_refused(home: Home, name: str) -> None:
    assert code(secrets(home, "set", name, text=VALUE)) == "secret_name_invalid"
    assert not home.vault.exists()


def test_secret_in_the_place_of_the_name_is_refused_and_not_repeated(home: Home) -> None:
    slip = "sk-proj-" + "aB3dE5gH7jK9" * 4
    result = secrets(home, "set", slip, text=VALUE)
    assert code(result) == "secret_name_invalid"
    assert slip not in result.output
    assert "replace this one" in result.stderr


def test_crash_of_a_command_would_not_show_its_variables() -> None:
    assert app.pretty_exceptions_show_locals is False


# Passphrases


def test_passphrase_is_set_needed_changed_and_removed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets(home, "set", "openai", text=VALUE)
    open_vault(home, CHEAP).lock_with_passphrase(PASSPHRASE)
    home.vault_key.unlink()
    missing = secrets(home, "list")
    assert code(missing) == "vault_passphrase_missing"
    assert PASSPHRASE_VARIABLE in missing.stderr
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "wrong passphrase")
    assert code(secrets(home, "list")) == "vault_passphrase_wrong"
    monkeypatch.setenv(PASSPHRASE_VARIABLE, PASSPHRASE)
    assert answer(secrets(home, "list", "--json"))["lock"] == "passphrase"
    changed = answer(secrets(home, "passphrase", "--json", text="quite another one\n"))
    assert changed == {"ok": True, "lock": "passphrase"}
    assert code(secrets(home, "list")) == "vault_passphrase_wrong"
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "quite another one")
    assert secrets(home, "passphrase", "--remove").stdout == "the vault opens with vault.key again\n"
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    assert kept(home) == VALUE
    assert code(secrets(home, "passphrase", "--remove")) == "vault_unprotected"
    assert code(secrets(home, "passphrase", text="short")) == "vault_passphrase_short"
    assert secrets(home, "passphrase", "--remove", "--from-env", "HOME").exit_code == 2


def test_passphrase_is_read_from_a_private_file(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "passphrase"
    file.touch(0o600)
    file.write_text(f"{PASSPHRASE}\n")
    assert "give it to the daemon" in secrets(home, "passphrase", "--from-file", str(file)).stdout
    monkeypatch.setenv(PASSPHRASE_FILE_VARIABLE, str(file))
    assert secrets(home, "set", "openai", text=VALUE).exit_code == 0
    assert kept(home) == VALUE
    file.chmod(0o644)
    exposed = secrets(home, "list")
    assert code(exposed) == "vault_passphrase_exposed"
    assert f"chmod 600 {file}" in exposed.stderr


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 9000, None])
def test_file_without_a_passphrase_is_said(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "passphrase"
    if content is not None:
        file.touch(0o600)
        file.write_bytes(content)
    with pytest.raises(PalyraError) as caught:
        Passphrases({PASSPHRASE_FILE_VARIABLE: str(file)}, lambda: "a person").ask()
    assert caught.value.code == "vault_passphrase_missing"


def test_variable_comes_before_the_file_and_the_file_before_the_person(tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.touch(0o640)
    file.write_text("of the file")
    both = {PASSPHRASE_VARIABLE: "of the variable", PASSPHRASE_FILE_VARIABLE: str(file)}
    assert Passphrases(both, lambda: "of the person").ask() == "of the variable"
    assert Passphrases({PASSPHRASE_FILE_VARIABLE: str(file)}, lambda: "of the person").ask() == "of the file"
    person = Passphrases({PASSPHRASE_VARIABLE: ""}, lambda: "of the person")
    assert person.ask() == "of the person"
    person.leave_person_alone()
    with pytest.raises(PalyraError):
        person.ask()


# On a terminal


def at_terminal(home: Home, *arguments: str) -> Terminal:
    return Terminal(["--home", str(home.root), *arguments], {"NO_COLOR": "1", "PALYRA_SERVER__HTTP": "127.0.0.1:0"})


def test_value_is_asked_for_on_a_terminal_and_not_shown(home: Home) -> None:
    with at_terminal(home, "secrets", "set", "openai") as terminal:
        terminal.expect("Value of openai: ")
        terminal.type(f"{VALUE}\n")
        terminal.expect("openai is kept")
        assert terminal.wait() == 0
        assert VALUE not in terminal.seen
    assert kept(home) == VALUE


def test_passphrase_is_asked_for_old_first_then_new_twice(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    open_vault(home, CHEAP).lock_with_passphrase(PASSPHRASE)
    with at_terminal(home, "secrets", "passphrase") as terminal:
        terminal.expect("Passphrase of the vault: ")
        terminal.type(f"{PASSPHRASE}\n")
        for question in ("New passphrase: ", "Once more: "):
            terminal.expect(question)
            terminal.type("quite another one\n")
        terminal.expect("the vault opens with the new passphrase")
        assert terminal.wait() == 0
        assert "another one" not in terminal.seen
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "quite another one")
    assert open_vault(home).rows() == ()


def test_two_different_new_passphrases_change_nothing(home: Home) -> None:
    secrets(home, "set", "openai", text=VALUE)
    with at_terminal(home, "secrets", "passphrase") as terminal:
        terminal.expect("New passphrase: ")
        terminal.type("quite another one\n")
        terminal.expect("Once more: ")
        terminal.type("quite another two\n")
        terminal.expect("vault_passphrase_unequal")
        assert terminal.wait() == 1
    assert kept(home) == VALUE


def configure(home: Home, text: str) -> Config:
    home.root.mkdir(mode=0o700, exist_ok=True)
    (home.root / "palyra.toml").write_text(text)
    return load(home.root, {})


PROVIDER = '[[provider]]\nname = "p"\nkind = "openai-chat"\napi_key = "vault:openai"\n'


def test_daemon_asks_for_the_passphrase_at_its_start_and_can_be_interrupted_there(home: Home) -> None:
    open_vault(home, CHEAP).lock_with_passphrase(PASSPHRASE)
    configure(home, PROVIDER)
    with at_terminal(home, "serve") as terminal:
        terminal.expect("Passphrase of the vault: ")
        terminal.interrupt()
        assert terminal.wait() != 0
    with at_terminal(home, "serve") as terminal:
        terminal.expect("Passphrase of the vault: ")
        terminal.type(f"{PASSPHRASE}\n")
        terminal.expect("palyra listens on")
        terminal.interrupt()
        assert terminal.wait() == 0
        assert PASSPHRASE not in terminal.seen


# Who uses it


async def test_running_daemon_uses_a_changed_secret_and_writes_it_nowhere(home: Home) -> None:
    keys = ["first-key-nobody-may-see", "second-key-nobody-may-see"]
    async with StandInProvider(Played(chat({"content": "Done."}))) as provider:
        configure(home, f'{PROVIDER}base_url = "{provider.url}/v1"\n[[model]]\nname = "m"\nprovider = "p"\n')
        with Daemon(home.root) as daemon:
            assert "palyra secrets set openai" in await run_once(daemon)
            for key in keys:
                assert secrets(home, "set", "openai", text=key).exit_code == 0
                assert "Done." in await run_once(daemon)
    assert [asked.headers["authorization"] for asked in provider.asked] == [f"Bearer {key}" for key in keys]
    files = [path for path in home.root.rglob("*") if path.is_file()]
    assert not [path for path in files for key in keys if key.encode() in path.read_bytes()]


async def run_once(daemon: Daemon) -> str:
    """Everything that is told of a run."""
    _, record = await asyncio.to_thread(daemon.call, "POST", "/api/v1/runs", {"text": "hello"})
    frames = await asyncio.to_thread(lambda: list(daemon.follow(record["id"])))
    return json.dumps(frames)


def test_source_is_asked_each_time_and_says_what_is_missing(home: Home) -> None:
    environ = {"KEY": "of the variable"}
    sources = SecretSources(home, environ)
    assert sources.source(None)() is None
    variable, vault = sources.source(parse_secret("env:KEY")), sources.source(parse_secret("vault:openai"))
    assert variable() == "of the variable"
    environ.clear()
    for ask, words in ((variable, "daemon's environment"), (vault, "palyra secrets set openai")):
        with pytest.raises(PalyraError) as caught:
            ask()
        assert caught.value.code == "secret_missing"
        assert words in caught.value.message
    secrets(home, "set", "openai", text=VALUE)
    assert vault() == VALUE
    secrets(home, "set", "openai", text="changed")
    assert vault() == "changed"


EVERYWHERE = """
[[provider]]
name = "p"
kind = "openai-chat"
api_key = "vault:openai"
[[provider]]
name = "q"
kind = "openai-chat"
api_key = "vault:openai"
[[mcp]]
name = "files"
command = ["files"]
env = { LOG_LEVEL = "env", FILES_TOKEN = "env:FILES_TOKEN" }
[[channel]]
name = "slack"
kind = "slack"
token = "vault:slack_bot"
signing_secret = "env:SLACK_SIGNING"
"""


def test_every_reference_of_a_configuration_is_found_once(home: Home) -> None:
    found = [str(each) for each in references_of(configure(home, EVERYWHERE))]
    assert found == ["vault:openai", "env:FILES_TOKEN", "vault:slack_bot", "env:SLACK_SIGNING"]
    hinted = load(home.root.parent, {"OPENAI_API_KEY": "x"})
    assert [str(each) for each in references_of(hinted)] == ["env:OPENAI_API_KEY"]


def test_known_values_are_those_of_the_vault_and_of_the_variables_in_use(home: Home) -> None:
    config = configure(home, EVERYWHERE)
    environ = {"FILES_TOKEN": "of the variable", "HOME": "somewhere", "SLACK_SIGNING": ""}
    sources = SecretSources(home, environ)
    assert sources.known_values(config) == {"of the variable"}
    secrets(home, "set", "unused", text=VALUE)
    assert sources.known_values(config) == {"of the variable", VALUE}


def test_vault_is_opened_at_start_or_the_daemon_does_not_start_if_something_refers_to_it(home: Home) -> None:
    open_sources(home, configure(home, PROVIDER))
    open_vault(home, CHEAP).lock_with_passphrase(PASSPHRASE)
    open_sources(home, configure(home, ""))
    for mode, code in ((0o600, "vault_passphrase_missing"), (0o644, "vault_exposed")):
        home.vault.chmod(mode)
        with pytest.raises(PalyraError) as caught:
            open_sources(home, configure(home, PROVIDER))
        assert caught.value.code == code


def finding(home: Home) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["--home", str(home.root), "doctor", "--json"])
    assert VALUE not in result.output
    (found,) = [check for check in json.loads(result.stdout)["checks"] if check["check"] == "vault"]
    return found["mark"], found["what"]


def test_doctor_tells_of_the_vault_and_of_every_reference(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(home) == ("ok", "there is none; nothing refers to it or to a variable")
    configure(home, EVERYWHERE)
    secrets(home, "set", "openai", text=VALUE)
    mark, what = finding(home)
    assert (mark, what) == (
        "fail",
        "opens, secrets: 1; no value for env:FILES_TOKEN, vault:slack_bot, env:SLACK_SIGNING",
    )
    secrets(home, "set", "slack_bot", text=VALUE)
    assert finding(home)[0] == "warn"
    for name in ("FILES_TOKEN", "SLACK_SIGNING"):
        monkeypatch.setenv(name, VALUE)
    assert finding(home) == ("ok", "opens, secrets: 2; references with a value: 4 of 4")
    open_vault(home, CHEAP).lock_with_passphrase(PASSPHRASE)
    assert finding(home)[0] == "warn"
    home.vault.write_bytes(b"spoilt")
    assert finding(home)[0] == "fail"


def test_backup_with_keys_takes_the_vault_and_one_without_does_not(tmp_path: Path) -> None:
    filled = TestHome(tmp_path / "home").fill()
    secrets(filled.home, "set", "openai", text=VALUE)

    def palyra(*arguments: str) -> Result:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.stderr
        return result

    palyra("--home", str(filled.home.root), "backup", str(tmp_path / "plain"))
    palyra("--home", str(filled.home.root), "backup", "--with-keys", str(tmp_path / "whole"))
    assert not (tmp_path / "plain" / "vault").exists()
    other = Home(tmp_path / "other")
    palyra("--home", str(other.root), "restore", str(tmp_path / "whole"))
    assert kept(other) == VALUE
    secrets(filled.home, "set", "openai", text="newer")
    palyra("--home", str(filled.home.root), "restore", "--replace", "--yes", str(tmp_path / "whole"))
    assert kept(filled.home) == "newer", "a vault that the home has stays the home's"


def test_passphrase_loads_argon2_and_a_key_file_does_not(home: Home, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from palyra.app import Home; from palyra.app.secrets import open_vault\n"
        "vault = open_vault(Home(Path(sys.argv[1]))); vault.set('a', 'b', 1); vault.rows(); print('argon2' in sys.modules)\n"
        "vault.lock_with_passphrase('correct horse'); print('argon2' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, str(home.root)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment)
    assert (run.stdout, run.stderr) == ("False\nTrue\n", "")
