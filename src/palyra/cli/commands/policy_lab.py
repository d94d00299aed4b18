"""`palyra policy lab`: its options, and its answer as JSON.

Does not own: the replay (app.lab), how the report looks (terminal.policy_lab_view).
"""

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from palyra.app import now_ms
from palyra.cli.commands.config import load_or_explain
from palyra.cli.commands.usage import local_zone
from palyra.cli.options import CommandGroup, expanded, home_of, is_json
from palyra.cli.output import print_json, progress
from palyra.core.errors import Conflict, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.grants import TTL_S_MAX
from palyra.core.ids import parse_principal

if TYPE_CHECKING:
    from palyra.app.lab import LabReport, LabRequest, Suggestion
    from palyra.core.lab import LabGroup

app = CommandGroup()

Kind = TypeVar("Kind", bound=Enum)

_TTL = re.compile(r"([1-9][0-9]{0,3})([hd])")
_TTL_S = {"h": 3600, "d": 24 * 3600}


@app.command(url=False)
def lab(
    context: typer.Context,
    drafts: Annotated[
        list[Path] | None,
        typer.Argument(help="Draft policies. A file named like one in policies/ replaces it.", metavar="DRAFT…"),
    ] = None,
    since: Annotated[str, typer.Option(metavar="30d|24h|DATE", help="Replay calls proposed since then.")] = "30d",
    principal: Annotated[str | None, typer.Option(help="Only calls of this principal, such as user:owner.")] = None,
    ttl: Annotated[str, typer.Option(metavar="7d|12h", help="How long proposed grants last; at most 30d.")] = "7d",
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the policies of the proposed grants to this file.")
    ] = None,
) -> None:
    """Replay recorded calls against draft policies, and show which verdicts would change.

    Nothing is executed or changed, and a daemon may be running. Without a draft it only proposes grants: calls that
    people allowed again and again, and everything that each grant would open.

    Examples:

      palyra policy lab draft.cedar --since 30d

      palyra policy lab --since 2026-01-01 --principal user:owner

      palyra policy lab --save grants.cedar

      palyra policy lab ~/.palyra/policies/mine.cedar --json
    """
    from palyra.app.lab import LabRequest, begin_ms, open_lab
    from palyra.cli.terminal.policy_lab_view import draw_report, print_drawn

    home = home_of(context)
    at_ms = now_ms()
    request = LabRequest(
        since_ms=begin_ms(since, local_zone(), at_ms),
        now_ms=at_ms,
        principal=None if principal is None else parse_principal(principal),
        ttl_s=_parse_ttl_s(ttl),
    )
    opened = open_lab(home, load_or_explain(home), [expanded(path) for path in drafts or ()], request)
    with progress("replaying", None) as advance:
        report = opened.run(advance)
    if save is not None:
        _save(report, expanded(save))
    if is_json(context):
        print_json(to_wire(report, request, bool(drafts)))
    else:
        print_drawn(lambda console: draw_report(console, report, since, bool(drafts)))


def _parse_ttl_s(text: str) -> int:
    match = _TTL.fullmatch(text)
    ttl_s = int(match[1]) * _TTL_S[match[2]] if match is not None else 0
    if not 1 <= ttl_s <= TTL_S_MAX:
        raise typer.BadParameter("--ttl takes hours or days up to 30d, such as 12h or 7d")
    return ttl_s


def _save(report: "LabReport", target: Path) -> None:
    """Writes only policies that would spare their prompts, and never overwrites a file."""
    texts = [each.policy for each in report.suggestions if each.policy is not None and each.held_by is None]
    if not texts:
        typer.echo(f"no proposed grant can be given by a policy, so {target} was not written", err=True)
        return
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write("\n".join(texts))
    except FileExistsError as cause:
        message = f"{target} exists already; choose another name, or remove it first"
        raise Conflict("file_exists", message, is_retryable=False) from cause
    except OSError as cause:
        raise Unavailable("file_unwritable", f"{target} cannot be written: {cause.strerror}") from cause
    typer.echo(f"{len(texts)} policies written to {target}", err=True)


def to_wire(report: "LabReport", request: "LabRequest", has_draft: bool) -> JsonObject:
    found = report.comparison
    return {
        "ok": True,
        "since_ms": request.since_ms,
        "principal": request.principal,
        "proposals_count": found.proposals_count,
        "replayed_count": found.replayed_count,
        "not_replayed": _counts(found.gaps),
        "masked_count": found.masked_count,
        "drifted_count": found.drifted_count,
        "now": _counts(found.before),
        "draft": _counts(found.after) if has_draft else None,
        "changes": _counts(found.changes) if has_draft else None,
        "groups": [_group(group) for group in found.groups],
        "grants": [_suggestion(each) for each in report.suggestions],
        "grants_count": report.suggestions_count,
        "masked_prompts_count": report.masked_prompts_count,
        "left_out_prompts_count": report.left_out_prompts_count,
        "tapes_count": report.tapes_count,
        "events_count": report.events_count,
    }


def _counts(counts: Mapping[Kind, int]) -> dict[str, int]:
    return {str(each.value): count for each, count in counts.items()}


def _group(group: "LabGroup") -> JsonObject:
    return {
        "change": group.shape.change.value,
        "tool": group.shape.tool,
        "place": group.shape.place,
        "now": {"verdict": group.before.value, "rule": group.shape.now.rule},
        "draft": {"verdict": group.after.value, "rule": group.shape.draft.rule},
        "calls_count": group.calls_count,
        "tainted_count": group.tainted_count,
        "answers": msgspec.to_builtins(group.answers),
        "examples": msgspec.to_builtins(group.examples),
    }


def _suggestion(suggestion: "Suggestion") -> JsonObject:
    grant = suggestion.grant
    return {
        "tool": grant.tool,
        "principal": grant.principal,
        "agent": grant.agent,
        "taint": grant.taint,
        "constraints": msgspec.to_builtins(grant.constraints),
        "expires_at_ms": grant.expires_at_ms,
        "answers": msgspec.to_builtins(grant.answers),
        "first_at_ms": grant.first_at_ms,
        "last_at_ms": grant.last_at_ms,
        "paths_seen": grant.paths_seen,
        "opens": suggestion.opens,
        "policy": suggestion.policy,
        "held_by": suggestion.held_by,
    }
