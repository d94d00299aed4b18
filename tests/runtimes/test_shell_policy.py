"""The shell's tools under the policies that come with Palyra: what is free, what asks."""

from pathlib import Path

import pytest

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.runtimes.shell.background import ShellList, ShellOutput, ShellStop
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.ports.policy import PolicyQuestion
from palyra.ports.tools import Tool
from tests.runtimes.shells import found_sandbox, make_setup

SETUP = make_setup()
RUN = ShellRun(found_sandbox(), SETUP)
STOP, LIST, OUTPUT = ShellStop(SETUP.processes), ShellList(SETUP.processes), ShellOutput(SETUP)
POLICY = CedarPolicy()
TAINT = ("http:example.com",)


def asked(tool: Tool, arguments: JsonObject, root: Path, taint: tuple[str, ...] = ()) -> tuple[Verdict, str]:
    question = PolicyQuestion(
        principal=Principal("user:alice"),
        agent="main",
        session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
        channel="http",
        spec=tool.spec,
        arguments=arguments,
        nature=tool.nature(arguments, (str(root),)),
        taint=taint,
    )
    answer = POLICY.judge(question)
    return answer.verdict, answer.rule


@pytest.mark.parametrize(
    ("tool", "arguments", "taint", "verdict"),
    [
        (RUN, {"command": "ls -la"}, (), (Verdict.ALLOW, "draft")),
        (RUN, {"command": "ls -la"}, TAINT, (Verdict.ALLOW, "draft")),
        (RUN, {"command": "curl x", "network": True}, (), (Verdict.ASK, "process_exec")),
        (RUN, {"command": "curl x", "network": True}, TAINT, (Verdict.ASK, "tainted_act")),
        (RUN, {"command": "make", "direct": True}, (), (Verdict.ASK, "process_exec")),
        (RUN, {"command": "make", "direct": True}, TAINT, (Verdict.ASK, "tainted_act")),
        (RUN, {"command": "ls -la", "background": True}, (), (Verdict.ASK, "process_exec")),
        (RUN, {"command": "echo x >> f; cat /etc/passwd"}, (), (Verdict.ALLOW, "draft")),
        (RUN, {"command": "ls", "cwd": "../.."}, (), (Verdict.ASK, "outside_shell")),
        (LIST, {}, TAINT, (Verdict.ALLOW, "internal_read")),
        (OUTPUT, {"id": "p1"}, TAINT, (Verdict.ALLOW, "internal_read")),
        (STOP, {"id": "p1"}, (), (Verdict.ALLOW, "own_process")),
        (STOP, {"id": "p1"}, TAINT, (Verdict.ALLOW, "own_process")),
    ],
)
def test_verdict(
    tmp_path: Path, tool: Tool, arguments: JsonObject, taint: tuple[str, ...], verdict: tuple[Verdict, str]
) -> None:
    assert asked(tool, arguments, tmp_path, taint) == verdict
