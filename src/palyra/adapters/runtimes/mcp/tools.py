"""A tool of an MCP server as the engine knows it: calling it, and the result of a call that fails.

Does not own: its definition (offers).
Everything but the server's own text is in our words and is not content from outside. A call whose answer never came is
reported as such: it may have happened. Only the class of its effect says whether it may be repeated.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from msgspec.structs import replace

from palyra.adapters.runtimes.mcp.failures import ConnectionLost, Down, ServerRefused, TimedOut, TooLarge
from palyra.adapters.runtimes.mcp.offers import Offered
from palyra.adapters.runtimes.mcp.results import tool_result
from palyra.adapters.runtimes.mcp.server import McpServer
from palyra.adapters.runtimes.mcp.settings import MESSAGE_BYTES_MAX, ServerSettings
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ToolError
from palyra.core.taint import label
from palyra.core.tools import CallNature, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

ENGINE_MARGIN_S = 30.0  # The engine's own limit also covers waiting for a restart and for a slot.

_MAY_REPEAT = "It is safe to repeat."
_MUST_LOOK = "It is not known whether it took effect: look before you repeat it."


class McpTool:
    def __init__(self, server: McpServer, offered: Offered) -> None:
        self._server = server
        self._offered = offered
        self._spec = replace(offered.spec, timeout_s=offered.spec.timeout_s + ENGINE_MARGIN_S)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @property
    def offered(self) -> Offered:
        return self._offered

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        spec = self._spec
        return CallNature(
            effect_class=spec.effect_class, parallel_class=spec.parallel_class, host=host_of(self._server.settings)
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        params: dict[str, object] = {"name": self._offered.raw_name, "arguments": arguments}
        source = source_of(self._server)

        async def ask() -> ToolResult:
            answer = await self._server.request("tools/call", params, lambda line: context.emit("stdout", line))
            return tool_result(answer, self._spec.name, source)

        return await settle(ask, self._server, self._spec.name, self._spec.effect_class)


async def settle(
    ask: Callable[[], Awaitable[ToolResult]], server: McpServer, tool: str, effect_class: EffectClass
) -> ToolResult:
    """Turns the outcome of a request, success or failure, into a result."""
    name, limit_s = server.settings.name, server.settings.timeout_s
    advice = _MUST_LOOK if effect_class is EffectClass.ONCE else _MAY_REPEAT
    try:
        return await ask()
    except Down as down:
        return _ours("server_down", f"Nothing was sent: the MCP server {name} cannot be reached now ({down}).")
    except ConnectionLost:
        lost = _ours("connection_lost", f"The MCP server {name} went away before {tool} answered. {advice}")
        return replace(lost, is_unknown=True)
    except TimedOut:
        message = f"{tool} did not answer within {limit_s:g} s and was told to stop. {advice}"
        error = ToolError(code="timeout", message=message)
        return ToolResult(outcome=Outcome.TIMEOUT, error=error, is_unknown=True)
    except TooLarge:
        limit_mib = MESSAGE_BYTES_MAX // (1024 * 1024)
        message = f"{tool} ran, but its answer is larger than {limit_mib} MiB and was thrown away. Ask for less."
        return _ours("answer_too_large", message)
    except ServerRefused as refused:
        message = f"The MCP server {name} refused the call with code {refused.code}. What it says is below."
        return replace(failed("server_refused", message), output=refused.said, source=source_of(server))


def source_of(server: McpServer) -> str:
    return label("mcp", server.settings.name)


def host_of(settings: ServerSettings) -> str | None:
    return urlsplit(settings.url).hostname if settings.url is not None else None


def _ours(code: str, message: str) -> ToolResult:
    return replace(failed(code, message), trust=Trust.SYSTEM)
