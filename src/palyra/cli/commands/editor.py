"""`palyra acp` and `palyra mcp-server`: the daemon for editors and MCP clients, over standard input and output.

Does not own: the protocols (cli.acp, cli.mcp_bridge).
"""

from typing import Annotated

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup

app = CommandGroup()


@app.command("acp", json=False)
def serve_acp(
    context: typer.Context,
    agent: Annotated[str | None, typer.Option(help="The agent of new sessions, instead of the default one.")] = None,
) -> None:
    """Serve an editor: the Agent Client Protocol on standard input and output. The daemon must run.

    Examples:

      palyra acp

      palyra acp --agent coder
    """

    async def serve(client: Client) -> None:
        from palyra.cli.acp.agent import AcpAgent
        from palyra.cli.stdio_rpc import Lines

        await AcpAgent(client, Lines(), agent).serve()

    ask_daemon(context, serve)


@app.command("mcp-server", json=False)
def serve_mcp(context: typer.Context) -> None:
    """Serve an MCP client: MCP on standard input and output. The daemon must run.

    A client that speaks HTTP can use the daemon's /mcp instead.

    Examples:

      palyra mcp-server
    """
    forward_mcp(context)


def forward_mcp(context: typer.Context) -> None:
    """Passes messages between standard input and output and the daemon, until the input ends."""

    async def serve(client: Client) -> None:
        from palyra.cli.mcp_bridge import McpBridge
        from palyra.cli.stdio_rpc import Lines

        await McpBridge(client, Lines()).serve()

    ask_daemon(context, serve)
