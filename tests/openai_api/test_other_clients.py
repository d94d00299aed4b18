"""Clients that need an environment of their own: LangChain, litellm, the Vercel AI SDK, and the MCP conformance suite."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from tests.gateway.scene import ADMIN
from tests.openai_api.serving import serve, workshop_at
from tests.support.asking import says
from tests.support.installed import npm_folder, program, python_of
from tests.support.web_server import served

pytestmark = pytest.mark.anyio

OTHERS = Path(__file__).parent / "others"
LOCK = Path(__file__).parents[2] / "requirements" / "clients.txt"
TIMEOUT_S = 120.0
WEATHER = Turn(text="One moment.", calls=(PreparedCall("get_weather", {"city": "Paris"}),))
CALL = ["get_weather", {"city": "Paris"}]
ANSWERS = ["Good day.", True, CALL, "It rains.", "Good day."]
VERCEL_ANSWERS = ["Good day.", "stop", "It rains.", 2, "One moment.It rains."]

SCENARIOS = (
    "server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "resources-list",
    "dns-rebinding-protection",
)  # fmt: skip
EXAMPLE_TOOL = "calls a tool that only the suite's example server has"
EXAMPLE_RESOURCE = "reads a resource that only the suite's example server has"
NOT_OFFERED = "needs a capability that this server does not declare"
LEFT_OUT = {
    "logging-set-level": NOT_OFFERED,
    "completion-complete": NOT_OFFERED,
    "tools-call-simple-text": EXAMPLE_TOOL,
    "tools-call-image": EXAMPLE_TOOL,
    "tools-call-audio": EXAMPLE_TOOL,
    "tools-call-embedded-resource": EXAMPLE_TOOL,
    "tools-call-mixed-content": EXAMPLE_TOOL,
    "tools-call-with-logging": EXAMPLE_TOOL,
    "tools-call-error": EXAMPLE_TOOL,
    "tools-call-with-progress": EXAMPLE_TOOL,
    "tools-call-sampling": EXAMPLE_TOOL,
    "tools-call-elicitation": EXAMPLE_TOOL,
    "json-schema-2020-12": EXAMPLE_TOOL,
    "elicitation-sep1034-defaults": EXAMPLE_TOOL,
    "elicitation-sep1330-enums": EXAMPLE_TOOL,
    "server-sse-polling": EXAMPLE_TOOL,
    "resources-read-text": EXAMPLE_RESOURCE,
    "resources-read-binary": EXAMPLE_RESOURCE,
    "resources-templates-read": EXAMPLE_RESOURCE,
    "resources-subscribe": NOT_OFFERED,
    "resources-unsubscribe": NOT_OFFERED,
    "prompts-list": NOT_OFFERED,
    "prompts-get-simple": NOT_OFFERED,
    "prompts-get-with-args": NOT_OFFERED,
    "prompts-get-embedded-resource": NOT_OFFERED,
    "prompts-get-with-image": NOT_OFFERED,
}


async def test_langchain_uses_both_apis(tmp_path: Path) -> None:
    told = await lines_of(tmp_path, python_of(LOCK), str(OTHERS / "langchain_client.py"))
    assert told == [["chat", *ANSWERS], ["responses", *ANSWERS]]


async def test_litellm_answers_calls_streams_and_knows_our_errors(tmp_path: Path) -> None:
    told = await lines_of(tmp_path, python_of(LOCK), str(OTHERS / "litellm_client.py"))
    assert told == [["chat", *ANSWERS], ["AuthenticationError", "NotFoundError"]]


async def test_the_vercel_ai_sdk_works_with_three_of_its_providers(tmp_path: Path) -> None:
    script = tmp_path / "clients.mjs"
    script.write_bytes((OTHERS / "node" / "clients.mjs").read_bytes())
    (tmp_path / "node_modules").symlink_to(npm_folder(OTHERS / "node") / "node_modules")
    told = await lines_of(tmp_path / "home", program("node"), "--preserve-symlinks-main", str(script))
    assert told == [[name, *VERCEL_ANSWERS] for name in ("compatible", "chat", "responses")]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_mcp_server_conforms(tmp_path: Path, scenario: str) -> None:
    suite = conformance()
    async with serve(workshop_at(tmp_path, says("Good day."))[0]) as server, with_token(server.address) as address:
        await output_of(*suite, "server", "--url", f"{address}/mcp", "--scenario", scenario)


async def test_every_scenario_of_the_suite_is_run_or_left_out_for_a_reason() -> None:
    listed = (await output_of(*conformance(), "list", "--server")).splitlines()
    names = {line.split()[1] for line in listed if line.strip().startswith("- ")}
    assert names == {*SCENARIOS, *LEFT_OUT}


def conformance() -> tuple[str, str]:
    modules = npm_folder(OTHERS / "node") / "node_modules"
    return (program("node"), str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"))


async def lines_of(root: Path, *command: str) -> list[Any]:
    """Returns what a client told of a daemon, one JSON value a line."""
    workshop, _ = workshop_at(root, says("Good day."), more={"weather": (WEATHER, says("It rains."))})
    async with serve(workshop) as served:
        shown = await output_of(*command, PALYRA_URL=served.address, PALYRA_TOKEN=ADMIN)
    return [json.loads(line) for line in shown.splitlines() if line.startswith("[")]


async def output_of(*command: str, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command, env={**kept, **variables}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        shown, problems = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, (shown + problems).decode()[-4_000:]
    return shown.decode()


@asynccontextmanager
async def with_token(address: str) -> AsyncIterator[str]:
    """A proxy that adds a token to each request: the suite sends none."""

    async def pass_on(request: web.Request) -> web.Response:
        headers = {**request.headers, "Authorization": f"Bearer {ADMIN}"}
        url, body = f"{address}{request.rel_url}", await request.read()
        async with session.request(request.method, url, headers=headers, data=body) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() != "transfer-encoding"}
            return web.Response(body=await answer.read(), status=answer.status, headers=kept)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", pass_on)
    async with ClientSession() as session, served(app) as proxy:
        yield proxy
