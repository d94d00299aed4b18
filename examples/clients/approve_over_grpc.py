"""Runs something over gRPC, and answers every question of the run on the terminal.

    python examples/clients/approve_over_grpc.py "Write a haiku into haiku.txt"

The token is read from admin.token in $PALYRA_HOME, or else in ~/.palyra. PALYRA_GRPC and PALYRA_TOKEN
override address and token.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from palyra.client import GrpcGatewayClient, LiveUpdate, RequestFailed, RunWish


async def run(address: str, token: str, text: str, decide: Callable[[str], bool]) -> str:
    """Returns the type of the run's last event. `decide` is asked about each tool call that waits."""
    last = ""
    async with GrpcGatewayClient(address, token) as client:
        conversation = await client.run(RunWish(text=text))
        async for update in conversation:
            if isinstance(update, LiveUpdate):
                sys.stdout.write(str(update.data.get("text", "")))
                continue
            last = update.type
            if update.type == "approval.requested":
                for card in (await client.list_approvals()).items:
                    if card.run_id == conversation.run_id:
                        decision = "allow" if decide(f"{card.tool} {card.arguments}") else "deny"
                        await conversation.answer_approval(card.id, decision)
    sys.stdout.write(f"\n{last}\n")
    return last


def main() -> None:
    address = os.environ.get("PALYRA_GRPC", "127.0.0.1:7143")
    home = Path(os.environ.get("PALYRA_HOME", Path.home() / ".palyra"))
    token = os.environ.get("PALYRA_TOKEN") or (home / "admin.token").read_text().strip()
    text = " ".join(sys.argv[1:]) or "What time is it?"
    try:
        asyncio.run(run(address, token, text, lambda what: input(f"\nallow {what}? [y/N] ").lower() == "y"))
    except RequestFailed as failed:
        sys.exit(f"error: {failed}")


if __name__ == "__main__":
    main()
