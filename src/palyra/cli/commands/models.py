"""`palyra models`: lists the daemon's models, and checks them with real calls.

Does not own: which models exist (config).
"""

import sys
from typing import Annotated
from urllib.parse import quote

import typer

from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, JsonOption, choose, is_json
from palyra.cli.output import print_json, print_line, progress
from palyra.cli.target import UrlOption
from palyra.cli.terminal.style import duration, in_one_line, shown, style_for
from palyra.cli.terminal.tables import print_rows
from palyra.core.errors import Conflict, NotFound
from palyra.core.events.base import JsonObject

CHECK_TIMEOUT_S = 90.0  # The daemon gives a check one minute, and needs a moment to record it.
MESSAGE_LENGTH_MAX = 400
_COLUMNS = ("name", "provider", "id", "window", "$/Mtok in", "$/Mtok out", "vision", "tools", "health", "routes")

app = CommandGroup()


@app.callback(invoke_without_command=True)
def group(context: typer.Context, url: UrlOption = None, json: JsonOption = False) -> None:
    """Models: which ones the daemon has, and whether they answer. Without a command it lists them.

    Examples:

      palyra models

      palyra models check
    """
    if context.invoked_subcommand is None:
        choose(context, url, json)
        show_all(context)


@app.command("list")
def show_all(context: typer.Context) -> None:
    """List the daemon's models. The default one is marked with *.

    A price that is not known is shown as unknown. You can set prices in palyra.toml.

    Examples:

      palyra models list

      palyra models list --json
    """
    found = ask_daemon(context, list_models)
    if is_json(context):
        print_json({"items": found})
        return
    print_rows(_COLUMNS, [_row(model) for model in found], "no models")
    if all(model.get("kind") == "demo" for model in found):
        print_line("the demo guide is not a language model; docs/providers.md shows how to add one")


@app.command()
def check(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="Only these models.")] = None,
) -> None:
    """Call each model once, through the daemon, and show which ones answer. The exit code is 1 if one does not.

    These are real calls: each costs a few tokens, and the daemon records it.

    Examples:

      palyra models check

      palyra models check sonnet qwen --json
    """
    is_quiet = is_json(context)

    async def probe(client: Client) -> list[JsonObject]:
        chosen = _chosen(await list_models(client), names or [])
        outcomes = []
        with progress("checking models", len(chosen)) as advance:
            for count, name in enumerate(chosen, 1):
                outcomes.append(await _check(client, name))
                if not is_quiet:
                    _print_outcome(outcomes[-1])
                advance(count)
        return outcomes

    outcomes = ask_daemon(context, probe)
    is_well = all(outcome.get("ok") is True for outcome in outcomes)
    if is_quiet:
        print_json({"ok": is_well, "items": outcomes})
    if not is_well:
        raise typer.Exit(1)


async def list_models(client: Client) -> list[JsonObject]:
    items = (await client.get("/models")).get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _chosen(models: list[JsonObject], names: list[str]) -> list[str]:
    known = [str(model.get("name")) for model in models]
    for name in names:
        if name not in known:
            raise NotFound("model_unknown", f"there is no model {shown(name)}; the daemon has {', '.join(known)}")
    return list(dict.fromkeys(names)) or known


async def _check(client: Client, name: str) -> JsonObject:
    """Checks one model. A check that is already running is reported as such; any other error ends the command."""
    try:
        return await client.post(f"/models/{quote(name, safe='')}/check", timeout_s=CHECK_TIMEOUT_S)
    except Conflict as error:
        return {"model": name, "ok": False, "code": error.code, "message": error.message}


def _print_outcome(outcome: JsonObject) -> None:
    style = style_for(sys.stdout)
    name = style.bold(in_one_line(str(outcome.get("model")), MESSAGE_LENGTH_MAX))
    if outcome.get("ok") is True:
        typer.echo(f"{style.green('✓')} {name}  {_times(outcome)}{_usage(outcome)}")
        return
    message = in_one_line(str(outcome.get("message")), MESSAGE_LENGTH_MAX)
    typer.echo(f"{style.red('✗')} {name}  {shown(str(outcome.get('code')))}: {message}")


def _times(outcome: JsonObject) -> str:
    first, total = outcome.get("first_token_ms"), outcome.get("total_ms")
    told = [f"first token after {duration(first)}"] if isinstance(first, int) else []
    told += [f"done after {duration(total)}"] if isinstance(total, int) else []
    return ", ".join(told)


def _usage(outcome: JsonObject) -> str:
    usage = outcome.get("usage")
    if not isinstance(usage, dict):
        return ", no usage reported"
    return f", {usage.get('input_tokens')} tokens in, {usage.get('output_tokens')} out"


def _row(model: JsonObject) -> tuple[object, ...]:
    routes = model.get("routes")
    return (
        f"{model.get('name')}{' *' if model.get('is_default') is True else ''}",
        model.get("provider"),
        model.get("id"),
        _count(model.get("window_tokens")),
        _price(model, "input_usd_per_mtok"),
        _price(model, "output_usd_per_mtok"),
        _yes(model.get("vision")),
        _yes(model.get("tools")),
        model.get("health"),
        ", ".join(map(str, routes)) if isinstance(routes, list) else None,
    )


def _price(model: JsonObject, member: str) -> str:
    """Returns a price as text. An unknown price is shown as unknown; only a free model is shown as free."""
    if model.get("price_source") == "free":
        return "free"
    price = model.get(member)
    return f"{price:g}" if isinstance(price, int | float) else "unknown"


def _count(tokens: object) -> str:
    return f"{tokens:,}" if isinstance(tokens, int) else "unknown"


def _yes(is_so: object) -> str:
    return "yes" if is_so is True else "no"
