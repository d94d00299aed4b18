"""Explaining a verdict: the gate's answer, and nothing of the gate's effects."""

from pathlib import Path

import pytest

from palyra.core.agents import AgentSpec
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.tool import Verdict
from palyra.engine.api.policy_explainer import ExplainRequest
from palyra.engine.api.requests import SessionRequest
from tests.support.engines import ALICE, OWNER, Workshop

WRITE: dict[str, object] = {"path": "AGENTS.md", "content": "x"}


@pytest.mark.parametrize(
    ("tool", "arguments", "taint", "verdict", "rule"),
    [
        ("fs.write", WRITE, None, Verdict.ASK, "run_outside"),
        ("fs.write", {"path": "a", "content": "x"}, None, Verdict.ALLOW, "workspace_write"),
        ("fs.write", WRITE, ("http:a",), Verdict.ASK, "tainted_instructions"),
        ("fs.write", {"path": "../x", "content": "x"}, None, Verdict.DENY, "outside_workspace"),
        ("mark.send", {"text": "x"}, None, Verdict.ASK, "message_send"),
        ("fs.write", {"path": "a"}, None, Verdict.DENY, "schema"),
        ("fs.burn", {}, None, Verdict.DENY, "unknown_tool"),
    ],
)
async def test_explanation_is_what_the_gate_would_say(
    tmp_path: Path,
    tool: str,
    arguments: dict[str, object],
    taint: tuple[str, ...] | None,
    verdict: Verdict,
    rule: str,
) -> None:
    shop = Workshop(tmp_path, [])
    async with shop.open() as engine:
        told = await engine.explaining.explain(OWNER, ExplainRequest(tool=tool, arguments=arguments, taint=taint))
    assert (told.verdict, told.rule) == (verdict, rule)
    assert not told.policies or told.policies[0] == rule
    assert told.reason
    assert shop.executed() == []
    assert list(shop.workspace.iterdir()) == []


async def test_agent_and_session_are_those_asked_about(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, [])
    shop.agents["reader"] = AgentSpec(name="reader", tools=("fs.read",), workspace=(str(shop.workspace),))
    async with shop.open() as engine:
        session = await engine.sessions.resolve(OWNER, SessionRequest(agent="reader"))
        asked = ExplainRequest(tool="fs.write", arguments=WRITE, session_id=session.id)
        assert (await engine.explaining.explain(OWNER, asked)).rule == "tool_not_allowed"
        with pytest.raises(NotFound):
            await engine.explaining.explain(ALICE, asked)
        with pytest.raises(Invalid):
            await engine.explaining.explain(OWNER, ExplainRequest(tool="fs.read", arguments={}, agent="nobody"))


async def test_policy_that_is_broken_is_a_part_that_is_not_well(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, [])
    async with shop.open() as engine:
        assert (await engine.status.parts())["policy"] == "ok"
