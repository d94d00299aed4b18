"""Asks a daemon something over HTTP, and prints the answer as it is written.

    python examples/clients/ask_over_http.py "What time is it?"

The token is read from admin.token in $PALYRA_HOME, or else in ~/.palyra. PALYRA_URL and PALYRA_TOKEN
override address and token.
"""

import asyncio
import os
import sys
from pathlib import Path

from palyra.client import HttpGatewayClient, LiveUpdate, RequestFailed, RunWish


async def ask(url: str, token: str, text: str) -> str:
    """Returns the state that the run ended in."""
    async with HttpGatewayClient(url, token) as client:
        run = await client.start_run(RunWish(text=text))
        is_shown = False
        async for update in client.follow(run.id):
            if isinstance(update, LiveUpdate) and update.type == "model.delta":
                sys.stdout.write(str(update.data["text"]))
                is_shown = True
        ended = await client.get_run(run.id)
        if not is_shown:  # The run was over before it was followed. Live text is gone then; the answer is recorded.
            sys.stdout.write(ended.answer or "")
        sys.stdout.write(f"\n{ended.state}, {ended.usage.output_tokens} tokens\n")
        return ended.state


def main() -> None:
    url = os.environ.get("PALYRA_URL", "http://127.0.0.1:7142")
    home = Path(os.environ.get("PALYRA_HOME", Path.home() / ".palyra"))
    token = os.environ.get("PALYRA_TOKEN") or (home / "admin.token").read_text().strip()
    try:
        asyncio.run(ask(url, token, " ".join(sys.argv[1:]) or "What time is it?"))
    except RequestFailed as failed:
        sys.exit(f"error: {failed}")


if __name__ == "__main__":
    main()
