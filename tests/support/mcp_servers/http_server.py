"""An MCP server of the mcp package, over streamable HTTP on loopback. Run it as `python http_server.py PORT [json]`."""

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer, Message, UserMessage

server = MCPServer("over-http")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def wait(seconds: float, context: Context) -> str:
    """Waits, and tells of it."""
    await context.report_progress(1, 2, "half")
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
def grow(count: int) -> str:
    """Gives back so many letters."""
    return "x" * count


@server.resource("note://one")
def note() -> str:
    """A note."""
    return "what the note says"


@server.prompt()
def greeting(name: str) -> list[Message]:
    """Greets."""
    return [UserMessage(f"Greet {name}.")]


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response="json" in sys.argv)
