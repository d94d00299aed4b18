"""The real MCP servers from npm, by the lock file in this folder."""

from pathlib import Path

from tests.support.installed import npm_folder, program

LOCK_FOLDER = Path(__file__).parent / "npm"


def command_of(server: str, *arguments: str) -> tuple[str, ...]:
    """Returns the command of `@modelcontextprotocol/server-<server>`; skips the test if it cannot be installed."""
    package = npm_folder(LOCK_FOLDER) / "node_modules" / "@modelcontextprotocol" / f"server-{server}"
    return (program("node"), str(package / "dist" / "index.js"), *arguments)
