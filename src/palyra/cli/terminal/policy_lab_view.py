"""How the report of the policy lab looks.

Owns: the verdicts of both policy sets side by side, groups as tables, grants with everything they open.
Does not own: the sums (core.lab).
Invariants: tables fit a terminal of 80 columns. Recorded text never reaches the terminal unescaped.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from palyra.cli.terminal.style import in_one_line, shown, style_for
from palyra.core.events.tool import Verdict
from palyra.core.lab import Comparison, Gap, LabAnswers, LabGroup, VerdictChange

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from palyra.app.lab import LabReport, Suggestion

PIPE_CELLS = 160  # In a pipe, lines may be long.
GROUPS_SHOWN_MAX = 12  # For each class of change; --json has them all.
SUGGESTIONS_SHOWN_MAX = 8
CELL_CHARS_MAX = 200

_TITLES = {
    VerdictChange.NEWLY_ALLOWED: ("Newly allowed: were refused, would run unasked", "bold red"),
    VerdictChange.DENIAL_BECOMES_PROMPT: ("Refusals that would become prompts", "bold yellow"),
    VerdictChange.PROMPT_VANISHES: ("Prompts that would vanish: would run unasked", "bold yellow"),
    VerdictChange.NEW_PROMPT: ("New prompts: ran unasked, would ask", "bold cyan"),
    VerdictChange.NEWLY_DENIED: ("Newly denied: would be refused", "bold magenta"),
}
_VERDICTS = {
    Verdict.ALLOW: ("run unasked", "green"),
    Verdict.ASK: ("ask a person", "yellow"),
    Verdict.DENY: ("are refused", "red"),
}
_SHORT = {Verdict.ALLOW: "allow", Verdict.ASK: "ask", Verdict.DENY: "deny"}
_GAPS = {
    Gap.ERASED: "erased",
    Gap.ARGUMENTS_RAW: "arguments that are no JSON object",
    Gap.BEFORE_POLICY: "refused before any policy was asked",
    Gap.UNJUDGED: "never judged, since their run ended",
    Gap.TOOL_UNKNOWN: "of tools that are no longer there",
    Gap.AGENT_UNKNOWN: "of agents that are no longer there, or may no longer use the tool",
    Gap.SCHEMA_CHANGED: "arguments that their tool no longer takes",
}


def print_drawn(draw: Callable[["Console"], None]) -> None:
    """Prints through one captured console, so that no line ends in spaces."""
    from rich.console import Console

    console = Console(
        width=None if sys.stdout.isatty() else PIPE_CELLS,
        color_system="auto" if style_for(sys.stdout).is_coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as drawn:
        draw(console)
    for line in drawn.get().splitlines():
        typer.echo(line.rstrip())


def draw_report(console: "Console", report: "LabReport", since: str, has_draft: bool) -> None:
    found = report.comparison
    if found.proposals_count == 0:
        console.print(f"No tool call was proposed since {since}. Look further back with --since 365d.")
        return
    _draw_coverage(console, found, since)
    if has_draft:
        _draw_totals(console, found)
        for change in _TITLES:
            _draw_change(console, change, [group for group in found.groups if group.shape.change is change])
    _draw_suggestions(console, report)


def _draw_coverage(console: "Console", found: Comparison, since: str) -> None:
    console.print(f"{_many(found.replayed_count, 'recorded call')} replayed, since {since}.")
    if found.gaps:
        total = sum(found.gaps.values())
        console.print(f"{total:,} not replayed, and not counted below:", style="yellow")
        for gap, count in found.gaps.items():
            console.print(f"  {count:,} {_GAPS[gap]}", style="yellow")
    if found.drifted_count:
        console.print(f"{found.drifted_count:,} had another verdict then than today's policies give.", style="dim")
    if found.masked_count:
        console.print(f"{found.masked_count:,} hold masked secrets; policies saw them masked then too.", style="dim")


def _draw_totals(console: "Console", found: Comparison) -> None:
    from rich.text import Text

    table = _table(("calls that", "now", "with the draft", "change"), numbers=(1, 2, 3))
    for verdict, (words, style) in _VERDICTS.items():
        before, after = found.before.get(verdict, 0), found.after.get(verdict, 0)
        change = f"{after - before:+,}" if after != before else "–"
        table.add_row(Text(words, style=style), f"{before:,}", f"{after:,}", change)
    console.print()
    console.print(table)
    if not found.groups:
        console.print("Every recorded call would have had the same verdict.", style="bold green")


def _draw_change(console: "Console", change: VerdictChange, groups: Sequence[LabGroup]) -> None:
    from rich.text import Text

    if not groups:
        return
    title, style = _TITLES[change]
    console.print()
    console.print(f"{title} ({_many(sum(group.calls_count for group in groups), 'call')})", style=style)
    table = _table(("calls", "tool and place", "now", "draft", "people said"), numbers=(0,))
    for group in groups[:GROUPS_SHOWN_MAX]:
        table.add_row(
            f"{group.calls_count:,}",
            _what(group),
            _verdict(group.before, group.shape.now.rule),
            _verdict(group.after, group.shape.draft.rule),
            Text(answers_words(group.answers), style="red" if group.answers.denied_count else ""),
        )
    console.print(table)
    if len(groups) > GROUPS_SHOWN_MAX:
        console.print(f"and {_many(len(groups) - GROUPS_SHOWN_MAX, 'more group')}, which --json shows", style="dim")


def _what(group: LabGroup) -> "Text":
    from rich.text import Text

    text = Text(_clean(f"{group.shape.tool} {group.shape.place}"))
    if group.tainted_count:
        text.append(f"\n{group.tainted_count:,} after content from outside", style="red")
    for example in group.examples[:1]:
        text.append(f"\n{in_one_line(example.text, 60)}", style="dim")
    return text


def _verdict(verdict: Verdict, rule: str) -> "Text":
    from rich.text import Text

    return Text(_SHORT[verdict], style=_VERDICTS[verdict][1]).append(f"\n{_clean(rule)}", style="dim")


def answers_words(answers: LabAnswers) -> str:
    """Returns words such as `41 of 41 allowed`."""
    if answers.prompts_count == 0:
        return "nobody was asked"
    words = f"{answers.allowed_count:,} of {answers.prompts_count:,} allowed"
    rest = ((answers.denied_count, "denied"), (answers.unanswered_count, "unanswered"))
    return ", ".join((words, *(f"{count:,} {word}" for count, word in rest if count)))


def _draw_suggestions(console: "Console", report: "LabReport") -> None:
    console.print()
    if not report.suggestions:
        console.print("No grant to propose: no call that still asks was allowed three times and never denied.")
    else:
        console.print("Grants worth giving", style="bold")
    for number, suggestion in enumerate(report.suggestions[:SUGGESTIONS_SHOWN_MAX], 1):
        _draw_suggestion(console, number, suggestion, report.ttl_s // 3600)
    more = report.suggestions_count - SUGGESTIONS_SHOWN_MAX
    if more > 0:
        console.print(f"and {_many(more, 'more grant')}; --json shows the first {len(report.suggestions)}", style="dim")
    if any(each.policy and not each.held_by for each in report.suggestions):
        console.print(
            "\nTo give one, put its policy into a .cedar file (--save FILE writes them all), look at it with palyra "
            "policy lab FILE, then move it into policies/ of your home.",
            style="dim",
        )
    if report.masked_prompts_count:
        console.print(f"{_many(report.masked_prompts_count, 'prompt')} held secrets: none is proposed from those.")
    if report.left_out_prompts_count:
        console.print(f"{_many(report.left_out_prompts_count, 'prompt')} of too many shapes were not looked at.")


def _draw_suggestion(console: "Console", number: int, suggestion: "Suggestion", ttl_h: int) -> None:
    from rich.text import Text

    grant = suggestion.grant
    console.print()
    console.print(
        f"{number}. {_clean(grant.tool)}: would have answered {_many(grant.answers.prompts_count, 'prompt')} "
        f"({answers_words(grant.answers)})",
        style="bold",
    )
    _print_lines(console, "opens ", suggestion.opens, "yellow")
    if suggestion.held_by is not None:
        _print_lines(console, "how   ", _by_answer(suggestion.held_by, ttl_h), "")
    elif suggestion.policy is not None:
        _print_lines(console, "how   ", ("this policy:",), "")
        # The policy is neither indented nor wrapped, so that it can be copied.
        console.print(Text(shown(suggestion.policy.rstrip()), style="cyan"), soft_wrap=True)


def _by_answer(rule: str, ttl_h: int) -> tuple[str, str]:
    return (
        f"the rule {_clean(rule)} asks whatever a policy permits, so only an answer covers it; at the next prompt:",
        f"palyra approvals allow ID --scope timeboxed --ttl {ttl_h}h",
    )


def _print_lines(console: "Console", head: str, lines: Iterable[str], style: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for place, line in enumerate(lines):
        table.add_row(Text("" if place else f"   {head}", style="dim"), Text(shown(line), style=style))
    console.print(table)


def _table(heads: Sequence[str], numbers: Sequence[int]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place in numbers else "left", overflow="fold")
    return table


def _clean(text: str) -> str:
    return in_one_line(text, CELL_CHARS_MAX)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
