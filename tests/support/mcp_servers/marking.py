"""An MCP server whose one tool leaves a mark: a line in a file for each call. It waits while another file exists.

It speaks plain JSON-RPC over standard input and output, so that nothing but the call itself happens.
Usage: marking.py MARKS HOLD
"""

import json
import sys
import time
from pathlib import Path

TOOL = {"name": "mark", "description": "Leaves a mark.", "inputSchema": {"type": "object", "properties": {}}}


def answer(method: str, asked: dict[str, object], marks: Path, hold: Path) -> dict[str, object]:
    match method:
        case "initialize":
            version = asked.get("protocolVersion", "2025-06-18")
            server = {"name": "marking", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            with marks.open("a") as file:
                file.write("marked\n")
            while hold.exists():
                time.sleep(0.02)
            return {"content": [{"type": "text", "text": "marked"}]}
        case _:
            return {}


def main() -> None:
    marks, hold = Path(sys.argv[1]), Path(sys.argv[2])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, marks, hold)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
