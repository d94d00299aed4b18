"""Reads a list of an MCP server page by page, within limits. Does not own: what the list holds."""

from palyra.adapters.runtimes.mcp.connection import Connection

PAGES_MAX = 32
CURSOR_LENGTH_MAX = 4_096


async def list_all(connection: Connection, method: str, key: str, count_max: int, timeout_s: float) -> list[object]:
    """Returns the list, at most one page over `count_max`, so that the caller can tell that there is more."""
    found: list[object] = []
    cursors: set[str] = set()
    params: dict[str, object] = {}
    for _ in range(PAGES_MAX):
        answer = await connection.ask(method, params, timeout_s)
        page = answer.get(key)
        found.extend(page if isinstance(page, list) else ())
        cursor = answer.get("nextCursor")
        is_usable = isinstance(cursor, str) and 0 < len(cursor) <= CURSOR_LENGTH_MAX and cursor not in cursors
        if not is_usable or len(found) > count_max:
            break
        cursors.add(str(cursor))
        params = {"cursor": cursor}
    return found
