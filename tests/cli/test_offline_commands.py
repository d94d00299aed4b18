"""`palyra config`, `palyra doctor`, `palyra serve` before it serves, help and start-up."""

import json
import os
import pty
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from palyra.app import daemon as wiring
from palyra.cli.commands.serve import daemon_arguments
from palyra.cli.main import app
from palyra.config import Config, read_config
from palyra.config.example import EXAMPLE
from tests.support.homes import TestHome
from tests.support.stand_in import StandIn
from tests.support.waiting import WAIT_S
from tests.test_docs import command_names

ROOT = Path(__file__).parents[2]
MARKING = ROOT / "tests" / "support" / "mcp_servers" / "marking.py"
NAMES = list(command_names(get_command(app)))


def palyra(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--home", str(root), *arguments])


def test_config_shown_reads_back_as_the_same(tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text(EXAMPLE)
    shown = palyra(tmp_path, "config", "show").stdout
    found, given = read_config(shown, {}, "palyra.toml"), read_config(EXAMPLE, {}, "palyra.toml")
    assert isinstance(found, Config)
    assert isinstance(given, Config)
    assert found == given
    assert json.loads(palyra(tmp_path, "config", "show", "--json").stdout) == tomllib.loads(shown)


def test_config_shown_has_variables_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:9")
    assert 'http = "127.0.0.1:9"' in palyra(tmp_path, "config", "show").stdout


def test_config_check_tells_all_problems(tmp_path: Path) -> None:
    assert palyra(tmp_path, "config", "check").stdout == "all is well\n"
    (tmp_path / "palyra.toml").write_text("[run]\ndrain = 1\n[sever]\n")
    result = palyra(tmp_path, "config", "check", "--json")
    members = json.loads(result.stdout)
    assert (result.exit_code, members["ok"]) == (1, False)
    assert [(problem["line"], problem["where"]) for problem in members["problems"]] == [(2, "run.drain"), (3, "sever")]


REFUSED = """[[provider]]
name = "played"
kind = "scripted"
file = "none.toml"
[server]
http = "0.0.0.0:0"
tls_cert = "{folder}/none.pem"
tls_key = "{folder}/none.pem"
[[agent]]
name = "main"
workspace = ["{folder}/../../etc"]
"""


def test_config_check_says_all_that_a_start_would_refuse_in_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text(REFUSED.format(folder=tmp_path))
    checked = palyra(tmp_path, "config", "check")
    served = palyra(tmp_path, "serve", "--no-supervisor")
    assert (checked.exit_code, served.exit_code) == (1, 1)
    problems = checked.stdout.splitlines()[:-1]
    assert [line.removeprefix("error: ") for line in served.stderr.splitlines()] == problems
    assert {code for code in ("tls_unreadable", "script_unreadable") if code in checked.stdout} == {
        "tls_unreadable",
        "script_unreadable",
    }


def test_a_home_or_a_folder_above_a_repository_as_workspace_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    own, person = tmp_path / "own", tmp_path / "person"
    (person / "projects/one/.git").mkdir(parents=True)
    own.mkdir()
    monkeypatch.setenv("HOME", str(person))
    roots = [str(person), str(person / "projects"), str(person / "projects/one")]
    (own / "palyra.toml").write_text(f'[[agent]]\nname = "main"\nworkspace = {json.dumps(roots)}\n')
    told = palyra(own, "config", "check").stdout
    assert told.count("warning") == 2
    assert f"the workspace {person} is a home folder" in told
    assert f"the workspace {person / 'projects'} lies above a repository (one)" in told
    found = json.loads(palyra(own, "doctor", "--json").stdout)["checks"]
    assert [each["mark"] for each in found if each["check"] == "workspace"] == ["warn", "warn"]


def test_a_mailbox_whose_senders_nobody_vouches_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    section = '[[channel]]\nname = "{0}"\nkind = "email"\nimap = "imaps://a@b.c"\nsmtp = "smtps://a@b.c"\n'
    named = 'authserv_id = "mx.example.com"\n'
    (tmp_path / "palyra.toml").write_text(section.format("open") + section.format("sure") + named)
    told = palyra(tmp_path, "config", "check")
    assert (told.exit_code, told.stdout.count("warning")) == (0, 1)
    assert "channel open: without authserv_id" in told.stdout
    (found,) = [
        each
        for each in json.loads(palyra(tmp_path, "doctor", "--json").stdout)["checks"]
        if each["check"] == "channels"
    ]
    assert (found["mark"], found["remedy"]) == ("warn", "palyra channels test open says what to write")


def test_key_that_is_no_key_is_told_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("key")
    (tmp_path / "palyra.toml").write_text('[server]\ntls_cert = "{0}"\ntls_key = "{0}"\n'.format(tmp_path / "bad.pem"))
    assert "tls_unfit" in palyra(tmp_path, "config", "check").stdout
    assert "Traceback" not in palyra(tmp_path, "serve", "--no-supervisor").stderr


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o640, False), (0o600, False)])
def test_a_tls_key_that_others_can_read_is_told(tmp_path: Path, mode: int, is_told: bool) -> None:
    key = tmp_path / "key.pem"
    key.write_text("key")
    key.chmod(mode)
    (tmp_path / "palyra.toml").write_text(f'[server]\ntls_cert = "{key}"\ntls_key = "{key}"\n')
    assert ("chmod 600" in palyra(tmp_path, "config", "check").stdout) is is_told
    assert ("chmod 600" in palyra(tmp_path, "doctor", "--json").stdout) is is_told


def test_variable_of_a_secret_that_is_not_set_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = 'kind = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "env:NO_SUCH_KEY"\n'
    (tmp_path / "palyra.toml").write_text(f'[[provider]]\nname = "a"\n{key}[[model]]\nname = "m"\nprovider = "a"\n')
    warned = palyra(tmp_path, "config", "check")
    assert (warned.exit_code, "env:NO_SUCH_KEY is not set" in warned.stdout) == (0, True)
    monkeypatch.setenv("NO_SUCH_KEY", "x")
    assert palyra(tmp_path, "config", "check").stdout == "all is well\n"


def test_config_path_and_example(tmp_path: Path) -> None:
    assert palyra(tmp_path, "config", "path").stdout == f"{tmp_path / 'palyra.toml'}\n"
    assert palyra(tmp_path, "config", "example").stdout == EXAMPLE


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    return TestHome(tmp_path_factory.mktemp("doctor") / "home").fill()


def checks(root: Path, *arguments: str) -> dict[str, list[str]]:
    result = palyra(root, "doctor", "--json", *arguments)
    members = json.loads(result.stdout)
    found: dict[str, list[str]] = {}
    for check in members["checks"]:
        found.setdefault(check["check"], []).append(check["mark"])
    assert members["ok"] is (result.exit_code == 0) is all("fail" not in marks for marks in found.values())
    return found


@pytest.mark.usefixtures("reaching")
def test_doctor_finds_a_sound_installation_sound(home: TestHome, stand_in: StandIn) -> None:
    found = checks(home.home.root, "--url", stand_in.url)
    assert (found["python"], found["home"], found["journal"], found["daemon"]) == (["ok"], ["ok"], ["ok"], ["ok"])


def test_doctor_names_what_is_wrong(home: TestHome, tmp_path: Path) -> None:
    copy = home.copy_to(tmp_path / "home")
    copy.home.root.chmod(0o755)
    copy.home.signing_key.chmod(0o644)
    (copy.home.root / "palyra.toml").write_text("[sever]\n")
    copy.home.journal.write_bytes(b"not a database at all" * 100)
    found = checks(copy.home.root)
    assert (found["home"], found["keys"], found["config"], found["journal"]) == (["warn"], ["fail"], ["fail"], ["fail"])
    assert "chmod 700" in palyra(copy.home.root, "doctor").stdout


def test_doctor_names_a_broken_policy_without_a_daemon_and_without_an_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    policies = tmp_path / "policies"
    policies.mkdir()
    mine = policies / "mine.cedar"
    mine.write_text("forbid (principal, action, resource);")
    assert checks(tmp_path)["policies"] == ["ok"]
    mine.write_text("forbid (principal")
    found = palyra(tmp_path, "doctor").stdout
    assert "fail  policies" in found
    assert "mine.cedar" in found


def test_doctor_names_the_policies_of_a_home_without_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    assert checks(tmp_path)["policies"] == ["ok"]


def test_many_problems_of_the_configuration_are_one_line_in_other_commands(tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text("[sever]\n[runn]\n[memoy]\n")
    told = palyra(tmp_path, "runs", "list").stderr
    assert "palyra.toml:1: sever: " in told
    assert told.endswith("; and 2 more: palyra config check lists them\n")
    assert palyra(tmp_path, "doctor").stdout.count("runn") == 1, "the other checks do not repeat the list"


def test_a_wrong_choice_is_told_in_our_words(tmp_path: Path) -> None:
    told = palyra(tmp_path, "approvals", "list", "--status", "bogus").stderr
    assert "'--status': 'bogus' is not one of 'pending'" in told


def test_doctor_of_an_empty_home_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    monkeypatch.setenv("PALYRA_TOKEN", "x")
    monkeypatch.setenv("PALYRA_SERVER__DETECT", "[]")
    found = checks(tmp_path / "new")
    assert (found["home"], found["journal"], found["daemon"], found["models"]) == (["warn"],) * 4


def test_serve_starts_nothing_with_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text("[run]\ndrain = 1\n[sever]\n")
    result = palyra(tmp_path, "serve", "--no-supervisor")
    assert result.exit_code == 1
    assert [line.split(":")[2] for line in result.stderr.splitlines()] == ["2", "3"]


def test_serve_refuses_an_open_bind_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Config] = []

    async def serve(home: object, config: Config, *others: object) -> None:
        served.append(config)

    monkeypatch.setattr(wiring, "serve", serve)
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "0.0.0.0:7142")
    assert "bind_insecure" in palyra(tmp_path, "serve", "--no-supervisor").stderr
    assert palyra(tmp_path, "serve", "--no-supervisor", "--insecure").exit_code == 0
    assert [config.server.insecure for config in served] == [True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["serve"]),
        (["--insecure", "--home", "/x"], ["--home", "/x", "serve", "--insecure"]),
        (["--home=/x", "--help"], ["--home=/x", "serve", "--help"]),
        (["--home"], ["--home", "serve"]),
    ],
)
def test_palyrad_is_palyra_serve(given: list[str], expected: list[str]) -> None:
    assert daemon_arguments(given) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert f"palyra {name}" in result.stdout.partition("Examples:")[2].replace("palyra --home /srv/palyra", "palyra")


def test_every_command_but_those_that_talk_has_json() -> None:
    commands = dict(zip(NAMES, leaves(get_command(app)), strict=True))
    silent = [name for name, command in commands.items() if "json" not in {each.name for each in command.params}]
    assert silent == ["serve", "chat", "acp", "mcp-server"]


def leaves(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from leaves(command) if getattr(command, "commands", None) else [command]


def test_page_of_commands_has_every_command() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`palyra {name}" not in text] == []


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from palyra.cli.main import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = {'aiohttp', 'rich.table', 'rich.console', 'apsw', 'ssl', 'asyncio', 'tomllib'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, env=environment)
    assert (run.stdout, run.stderr) == ("[]\n", "")


def test_a_server_is_shown_before_it_is_accepted_and_the_result_is_json_alone(tmp_path: Path) -> None:
    talking = f"import runpy, sys; print('I talk', file=sys.stderr, flush=True); runpy.run_path({str(MARKING)!r}"
    server = [sys.executable, "-c", f"{talking}, run_name='__main__')", "marks", "hold"]
    command = [sys.executable, "-m", "palyra", "--home", str(tmp_path), "mcp", "add", "m", "--json", "--", *server]
    done = subprocess.run(command, input="y\n", capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, json.loads(done.stdout)["tools"][0]["name"]) == (0, "mark"), done.stderr
    shown, _, _ = done.stderr.partition("accept these tools?")
    assert "Leaves a mark." in shown
    assert "I talk" in done.stderr


def test_a_command_that_logs_beside_its_result_leaves_out_what_the_daemon_would() -> None:
    code = (
        "import structlog\n"
        "from palyra.app.logs import log_beside_results\n"
        "log_beside_results()\n"
        "structlog.get_logger().debug('mcp_pipe_broken')\n"
        "structlog.get_logger().info('mcp_stderr')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert (run.stdout, "mcp_stderr" in run.stderr, "mcp_pipe_broken" in run.stderr) == ("", True, False)


def test_mcp_alone_shows_its_help_at_a_terminal() -> None:
    read, write = pty.openpty()
    command = [sys.executable, "-m", "palyra", "mcp"]
    try:
        done = subprocess.run(command, stdin=write, capture_output=True, timeout=WAIT_S)
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 2
    assert b"palyra mcp add time -- uvx" in done.stdout
