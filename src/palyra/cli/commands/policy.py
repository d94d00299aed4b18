"""`palyra policy`: checks, tests and explains policies.

Does not own: judging (adapters.policy), the lab (policy_lab).
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palyra.cli.commands import policy_lab
from palyra.cli.commands.config import load_or_explain
from palyra.cli.daemon_call import ask_daemon
from palyra.cli.options import CommandGroup, expanded, home_of, is_json
from palyra.cli.output import print_json, print_line, printable
from palyra.cli.terminal.style import Style, shown, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.plurals import counted

if TYPE_CHECKING:
    from palyra.app.policy_trial import CaseOutcome
    from palyra.cli.client import Client

_COLUMNS = ("id", "effect", "where", "says")

app = CommandGroup(no_args_is_help=True)
app.add_typer(policy_lab.app)


@app.callback()
def group() -> None:
    """Policies: what may run, what asks, what is refused.

    Examples:

      palyra policy check
    """


@app.command(url=False)
def check(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]…", help="Draft policies. A file named like one in policies/ replaces it."),
    ] = None,
) -> None:
    """Check the bundled policies, those of this home and the given files, and list them.

    Every problem is printed with its file and line, and the exit code is 1 if there is any. No daemon is needed.

    Examples:

      palyra policy check

      palyra policy check draft.cedar
    """
    from palyra.app.policies import check_policies

    report = check_policies(home_of(context), [expanded(file) for file in files or ()])
    if is_json(context):
        print_json(report)
    else:
        for problem in report.problems:
            typer.echo(printable(f"error: {problem}"), err=True)
        if report.ok:
            rows = [(found.id, found.effect, f"{found.file}:{found.line}", found.says) for found in report.policies]
            print_rows(_COLUMNS, rows, "no policies")
            print_line(f"{counted(len(rows), 'policy', 'policies')}, sha256 {report.sha256}")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def explain(
    context: typer.Context,
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="The tool, such as fs.write.")] = None,
    arguments: Annotated[str, typer.Option("--arguments", metavar="JSON", help="Its arguments, an object.")] = "{}",
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Ask about the use of this model instead of a tool.")
    ] = None,
    named: Annotated[
        bool, typer.Option("--named", help="With --model: as if the run had asked for the model.")
    ] = False,
    taint: Annotated[
        str | None, typer.Option("--taint", metavar="A,B", help="Judge as if these sources had been seen.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="The agent that would use it.")] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Judge for this principal; needs the role operator.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Use the agent and the taint of this session.")
    ] = None,
) -> None:
    """Show how the daemon would judge a call, or the use of a model, and by which policies.

    Nothing is executed, and earlier answers are ignored.

    Examples:

      palyra policy explain fs.write --arguments '{"path": "AGENTS.md", "content": ""}' --taint http:example.com

      palyra policy explain --model gpt-5 --agent intern

      palyra policy explain time.now --json
    """
    if (tool is None) == (model is None) or (named and model is None):
        raise typer.BadParameter("name a TOOL, or a model with --model; --named goes with --model")
    body: JsonObject = {"tool": tool, "arguments": _object(arguments)}
    if model is not None:
        body = {"model": model} | ({"is_named": True} if named else {})
    more = {"agent": agent, "principal": principal, "session_id": session}
    body.update({name: value for name, value in more.items() if value is not None})
    if taint is not None:
        body["taint"] = [source.strip() for source in taint.split(",") if source.strip()]

    async def ask(client: "Client") -> JsonObject:
        return await client.post("/policy/explain", body)

    answer = ask_daemon(context, ask)
    if is_json(context):
        print_json(answer)
        return
    policies = answer.get("policies")
    typer.echo(f"{_painted(str(answer.get('verdict')))}  {shown(str(answer.get('rule')))}")
    print_line(str(answer.get("reason")))
    if isinstance(policies, list) and len(policies) > 1:
        print_line(f"deciding: {', '.join(map(str, policies))}")


@app.command("test", url=False)
def try_cases(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Cases: calls, and the verdict expected of each.")],
    drafts: Annotated[
        list[Path] | None,
        typer.Option("--draft", metavar="FILE", help="Draft policies to judge with, besides those of this home."),
    ] = None,
) -> None:
    """Judge the calls in a file, and compare each verdict with the expected one. The exit code is 1 if any differs.

    No daemon is needed. docs/policy.md has an example of such a file.

    Examples:

      palyra policy test cases.toml

      palyra policy test cases.toml --draft draft.cedar
    """
    from palyra.app.engine_builder import build_catalog, make_agents, make_settings
    from palyra.app.policies import open_policy
    from palyra.app.policy_trial import TrialContext, read_cases, try_case

    home, config = home_of(context), load_or_explain(home_of(context))
    around = TrialContext(build_catalog(), make_agents(home, config), make_settings(config).default_agent)
    policy = open_policy(home, [expanded(draft) for draft in drafts or ()])
    cases = read_cases(expanded(file))
    outcomes = [try_case(case, number, policy, around) for number, case in enumerate(cases, 1)]
    failed_count = sum(not outcome.ok for outcome in outcomes)
    if is_json(context):
        print_json({"ok": not failed_count, "items": outcomes})
    else:
        for outcome in outcomes:
            _print_outcome(outcome, style_for(sys.stdout))
        print_line(f"{counted(len(outcomes), 'case')}, {failed_count} differ")
    if failed_count:
        raise typer.Exit(1)


def _object(text: str) -> JsonObject:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError) as cause:
        raise Invalid("arguments_invalid", "--arguments is not a JSON object; quote it for the shell") from cause


def _print_outcome(outcome: "CaseOutcome", style: Style) -> None:
    mark = style.green("✓") if outcome.ok else style.red("✗")
    tail = "" if outcome.ok else f", expected {outcome.expected}"
    typer.echo(f"{mark} {shown(outcome.name)}  {outcome.verdict} by {shown(outcome.rule)}{shown(tail)}")


def _painted(verdict: str) -> str:
    style = style_for(sys.stdout)
    paint = {"allow": style.green, "ask": style.yellow, "deny": style.red}.get(verdict, style.bold)
    return paint(shown(verdict))
