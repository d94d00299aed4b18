"""`palyra policy`: what is wrong is told with its place, cases are compared, and a question reaches the daemon."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from tests.support.policies import put_policy
from tests.support.stand_in import Json, StandIn

FREE = '@id("fetch") @says("Mail is free.") permit (principal, action, resource == Tool::"mail.send");'
CASES = """
[[case]]
name = "notes are free"
tool = "fs.write"
arguments = {path = "notes/a.md", content = "x"}
expect = "allow"

[[case]]
tool = "fs.write"
arguments = {path = "AGENTS.md", content = "x"}
taint = ["http:example.com"]
expect = "ask"
rule = "tainted_instructions"

[[case]]
name = "mail"
tool = "mail.send"
expect = "ask"
[case.call]
runtime = "mcp"
capabilities = ["message_send"]
"""


class WithPolicy(StandIn):
    """A daemon that is asked about calls."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Json] = []

    def _routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]]:
        return [*super()._routes(), ("POST", "/api/v1/policy/explain", self._explain)]

    async def _explain(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        policies = ["tainted_act", "mine/\x1b[2Jx"]
        answer = {"verdict": "ask", "rule": "tainted_act", "policies": policies, "reason": "It asks."}
        return web.json_response(answer)


@pytest.fixture
def stand_in() -> Iterator[WithPolicy]:
    daemon = WithPolicy()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def palyra(*words: str) -> Result:
    return CliRunner().invoke(app, ["policy", *words])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "home"
    root.mkdir()
    monkeypatch.setenv("PALYRA_HOME", str(root))
    monkeypatch.setenv("NO_COLOR", "1")
    return root


def test_check_lists_every_policy_with_its_place(home: Path) -> None:
    put_policy(home / "policies", FREE)
    result = palyra("check")
    assert result.exit_code == 0
    assert "mine/fetch" in result.output
    assert "mine.cedar:1" in result.output
    assert "Mail is free." in result.output
    assert "workspace_write" in result.output
    report = json.loads(palyra("check", "--json").output)
    assert report["ok"] is True
    assert [found["id"] for found in report["policies"]].count("mine/fetch") == 1


def test_check_tells_every_problem_and_exits_with_1(home: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft.cedar"
    draft.write_text("\npermit (principal, action, resource) when { context.hots };\nforbid;\n")
    result = palyra("check", str(draft))
    assert result.exit_code == 1
    assert "draft.cedar:2: " in result.output
    assert "draft.cedar:3: " in result.output
    assert json.loads(palyra("check", str(draft), "--json").output)["ok"] is False
    assert palyra("check").exit_code == 0
    assert palyra("check", str(tmp_path / "none.cedar")).exit_code == 1


def test_cases_that_hold_exit_with_0(home: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.toml"
    cases.write_text(CASES)
    result = palyra("test", str(cases))
    assert result.exit_code == 0, result.output
    assert "✓ notes are free  allow by workspace_write" in result.output
    assert "3 cases, 0 differ" in result.output


def test_case_that_differs_exits_with_1_and_says_how(home: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.toml"
    cases.write_text(CASES)
    put_policy(home / "policies", FREE)
    result = palyra("test", str(cases))
    assert result.exit_code == 1
    assert "✗ mail  allow by mine/fetch, expected ask" in result.output
    items = json.loads(palyra("test", str(cases), "--json").output)["items"]
    assert [item["ok"] for item in items] == [True, True, False]


def test_draft_is_tried_without_being_put_in_force(home: Path, tmp_path: Path) -> None:
    cases, draft = tmp_path / "cases.toml", tmp_path / "draft.cedar"
    cases.write_text(CASES)
    draft.write_text(FREE)
    assert palyra("test", str(cases), "--draft", str(draft)).exit_code == 1
    assert palyra("test", str(cases)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("case = 1", "cases_invalid"),
        ("[[case]]\ntool = 'a'", "cases_invalid"),
        ("[[case]]\ntool = 'a'\nexpect = 'maybe'", "cases_invalid"),
        ("[[case]]\ntool = 'a'\nexpect = 'ask'\nextra = 1", "cases_invalid"),
        ("case = []", "cases_invalid"),
        ("[[case]]\nexpect = 'ask'", "cases_invalid"),
        ("[[case]]\ntool = 'time.now'\nmodel = 'a'\nexpect = 'ask'", "cases_invalid"),
        ("[[case]", "cases_invalid"),
        ("[[case]]\ntool = 'fs.burn'\nexpect = 'ask'", "tool_unknown"),
        ("[[case]]\ntool = 'fs.read'\nexpect = 'ask'\nagent = 'nobody'", "agent_unknown"),
        ("[[case]]\ntool = 'time.now'\nexpect = 'ask'\nprincipal = 'x'", "principal"),
    ],
)
def test_cases_that_make_no_sense_are_refused(home: Path, tmp_path: Path, text: str, code: str) -> None:
    cases = tmp_path / "cases.toml"
    cases.write_text(text)
    result = palyra("test", str(cases))
    assert result.exit_code == 1
    assert code in result.output


def test_case_about_a_model_is_judged(home: Path, tmp_path: Path) -> None:
    text = (
        '@id("ours") forbid (principal, action == Action::"use_model", resource) when { context.provider != "here" };'
    )
    put_policy(home / "policies", text)
    cases = tmp_path / "cases.toml"
    cases.write_text(
        "[[case]]\nmodel = 'a'\nprovider = 'here'\nexpect = 'allow'\n[[case]]\nmodel = 'a'\nexpect = 'allow'"
    )
    result = palyra("test", str(cases))
    assert result.exit_code == 1
    assert "✓ 1: a  allow by any_model" in result.output
    assert "✗ 2: a  deny by mine/ours, expected allow" in result.output


def test_broken_policies_are_not_tested(home: Path, tmp_path: Path) -> None:
    put_policy(home / "policies", "permit")
    cases = tmp_path / "cases.toml"
    cases.write_text(CASES)
    result = palyra("test", str(cases))
    assert result.exit_code == 1
    assert "mine.cedar:1" in result.output


@pytest.mark.usefixtures("reaching")
def test_explain_asks_the_daemon_and_tells_why(stand_in: WithPolicy) -> None:
    result = palyra(
        "explain", "fs.write", "--arguments", '{"path": "a"}', "--taint", "http:a, mcp:b", "--agent", "main"
    )
    assert result.exit_code == 0, result.output
    assert stand_in.asked == [
        {"tool": "fs.write", "arguments": {"path": "a"}, "agent": "main", "taint": ["http:a", "mcp:b"]}
    ]
    assert "ask  tainted_act" in result.output
    assert "It asks." in result.output
    assert "\x1b" not in result.output
    assert json.loads(palyra("explain", "time.now", "--json").output)["verdict"] == "ask"


@pytest.mark.usefixtures("reaching")
def test_explain_asks_about_a_model(stand_in: WithPolicy) -> None:
    assert palyra("explain", "--model", "gpt-5", "--agent", "intern", "--named").exit_code == 0
    assert palyra("explain", "--model", "gpt-5", "--taint", "http:a").exit_code == 0
    assert stand_in.asked == [
        {"model": "gpt-5", "is_named": True, "agent": "intern"},
        {"model": "gpt-5", "taint": ["http:a"]},
    ]


@pytest.mark.usefixtures("reaching")
@pytest.mark.parametrize("arguments", [(), ("fs.read", "--model", "gpt-5"), ("fs.read", "--named")])
def test_explain_needs_a_tool_or_a_model(stand_in: WithPolicy, arguments: tuple[str, ...]) -> None:
    assert palyra("explain", *arguments).exit_code == 2
    assert stand_in.asked == []


@pytest.mark.usefixtures("reaching")
@pytest.mark.parametrize("arguments", ["", "[]", "{", "path=a"])
def test_arguments_that_are_no_object_are_refused(stand_in: WithPolicy, arguments: str) -> None:
    result = palyra("explain", "fs.write", "--arguments", arguments)
    assert result.exit_code == 1
    assert "arguments_invalid" in result.output
    assert stand_in.asked == []


def test_examples_of_the_documentation_hold(home: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    cedar = re.findall(r"```cedar\n(.*?)```", text, re.DOTALL)
    (cases,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    for number, example in enumerate(cedar):
        put_policy(home / "policies", example, f"example{number}.cedar")
    (tmp_path / "cases.toml").write_text(cases)
    result = palyra("test", str(tmp_path / "cases.toml"))
    assert result.exit_code == 0, result.output
    assert len(cedar) == 4
    assert "example0/tests" in palyra("check").output
