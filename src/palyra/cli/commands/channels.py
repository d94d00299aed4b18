"""`palyra channels`: shows, tests, pauses and resumes channels, and looks after messages that could not be sent.

Does not own: pairing (pair).
"""

from typing import Annotated

import typer

from palyra.cli.commands.channel_steps import GUIDES, ChannelGuide
from palyra.cli.daemon_call import Client, ask_daemon
from palyra.cli.options import CommandGroup, home_of, is_json
from palyra.cli.output import print_json, print_line, print_result
from palyra.cli.terminal.style import date_time, in_one_line, shown
from palyra.cli.terminal.tables import print_rows
from palyra.core.channels.model import ChannelKind
from palyra.core.events.base import JsonObject

ITEMS_MAX = 1_000
TEXT_SHOWN_MAX = 60

app = CommandGroup(no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name.")]
MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE", help="The message's id.")]


@app.callback()
def group() -> None:
    """Channels: where people talk to agents, such as Slack, Telegram, Discord or a webhook.

    Examples:

      palyra channels list
    """


@app.command("list")
def show_all(context: typer.Context) -> None:
    """List channels with their state.

    Examples:

      palyra channels list
    """
    found = ask_daemon(context, lambda client: client.items("/channels", ITEMS_MAX))
    if is_json(context):
        print_json({"items": found})
        return
    columns = ("name", "kind", "state", "waiting", "stuck", "error")
    rows = [
        (each.get("name"), each.get("kind"), each.get("state"), each.get("waiting_count"), each.get("stuck_count"),
         each.get("error"))
        for each in found
    ]  # fmt: skip
    print_rows(columns, rows, "there are no channels; palyra channels add shows how to make one")
    for each in found:
        if left_count := each.get("left_count"):
            print_line(
                f"{shown(str(each.get('name')))} left {left_count} or more messages unread: too old, or too many."
            )


@app.command(url=False)
def add(
    context: typer.Context,
    kind: Annotated[ChannelKind, typer.Argument(help="The platform.")],
    name: NameArgument,
    api_url: Annotated[str | None, typer.Option(metavar="URL", help="Another address of the platform's API.")] = None,
) -> None:
    """Add a channel: says what to click on the platform, asks for its secrets, tries them, and writes palyra.toml.

    Without a terminal it only shows the steps. So it does for e-mail, whose addresses you must write yourself.

    Examples:

      palyra channels add telegram team
    """
    from palyra.app.channel_setup import check_extra
    from palyra.app.passphrases import is_terminal

    guide = GUIDES[kind]
    if is_json(context):
        print_json({"kind": kind.value, "name": name, "steps": guide.steps(name, api_url)})
        return
    if kind is ChannelKind.EMAIL or not is_terminal():
        for line in guide.steps(name, api_url):
            print_line(line)
        return
    check_extra(kind)
    _add_guided(context, guide, name, api_url)


def _add_guided(context: typer.Context, guide: ChannelGuide, name: str, api_url: str | None) -> None:
    from palyra.app.channel_setup import add_channel, require_addable
    from palyra.app.passphrases import ask_hidden

    section = guide.section(name, api_url)
    require_addable(home_of(context), name, section)
    for line in guide.clicks.replace("NAME", name).splitlines():
        print_line(line)
    values = {f"{name}_{each.suffix}": ask_hidden(f"{each.asked}: ") for each in guide.secrets}
    found = add_channel(home_of(context), name, section, values)
    print_line(f"It works; {_found(found.known_as, found.note)}")
    print_line("The secrets are in the vault, and the channel is in palyra.toml. Restart the daemon, then:")
    print_line("    palyra channels list")
    print_line(f"    palyra pair --channel {shown(name)}")


@app.command("check")
@app.command("test")
def try_token(context: typer.Context, name: NameArgument) -> None:
    """Try a channel's token, and say as whom the platform knows it. For a webhook: connect to its address.

    For a mailbox it also says whose Authentication-Results the newest mails bring, for authserv_id in palyra.toml.

    Examples:

      palyra channels test team

      palyra channels check mail
    """
    told = ask_daemon(context, lambda client: client.post(f"/channels/{name}/test"))
    if is_json(context):
        print_json(told)
        return
    print_line(f"{shown(name)} works; {_found(told.get('known_as'), told.get('note'))}")


@app.command()
def pause(context: typer.Context, name: NameArgument) -> None:
    """Pause a channel: it takes nothing in and sends nothing. Messages to be sent wait.

    Examples:

      palyra channels pause team
    """
    channel = ask_daemon(context, lambda client: client.post(f"/channels/{name}/pause"))
    print_result(context, channel, f"{shown(name)} is paused")


@app.command()
def resume(context: typer.Context, name: NameArgument) -> None:
    """Resume a paused channel.

    Examples:

      palyra channels resume team
    """
    channel = ask_daemon(context, lambda client: client.post(f"/channels/{name}/resume"))
    print_result(context, channel, f"{shown(name)} is resumed, and connects now")


@app.command("dead-letters")
def dead_letters(
    context: typer.Context,
    channel: Annotated[str | None, typer.Option(metavar="CHANNEL", help="Only of this channel.")] = None,
) -> None:
    """List messages that could not be sent or read, and those of which nobody knows whether they arrived.

    Examples:

      palyra channels dead-letters

      palyra channels dead-letters --channel team
    """
    query: dict[str, str | int] = {} if channel is None else {"channel": channel}

    async def act(client: Client) -> list[JsonObject]:
        found: list[JsonObject] = []
        for state in ("dead", "uncertain"):
            found += await client.items("/outbox", ITEMS_MAX, **{**query, "state": state})
        return found

    found = ask_daemon(context, act)
    if is_json(context):
        print_json({"items": found})
        return
    rows = [
        (each.get("id"), each.get("channel"), each.get("conversation_id"), each.get("state"), _time(each),
         each.get("error"), in_one_line(_told(each), TEXT_SHOWN_MAX))
        for each in found
    ]  # fmt: skip
    columns = ("id", "channel", "conversation", "state", "since", "error", "text")
    print_rows(columns, rows, "no message is dead, unread or uncertain; palyra channels list counts those that wait")


@app.command()
def replay(context: typer.Context, message: MessageArgument) -> None:
    """Send a dead or uncertain message again. An uncertain one may then arrive twice.

    Examples:

      palyra channels replay 01JZ8Y7Q4B9C2D5E6F7G8H9J0K
    """
    _print_message(context, ask_daemon(context, lambda client: client.post(f"/outbox/{message}/replay")))


@app.command()
def discard(context: typer.Context, message: MessageArgument) -> None:
    """Give a dead or uncertain message up, and drop its words.

    Examples:

      palyra channels discard 01JZ8Y7Q4B9C2D5E6F7G8H9J0K
    """
    _print_message(context, ask_daemon(context, lambda client: client.post(f"/outbox/{message}/discard")))


def _found(known_as: object, note: object) -> str:
    told = [f"the platform knows it as: {known_as}"] if known_as else []
    return shown("; ".join([*told, *([str(note)] if note else [])]))


def _told(item: JsonObject) -> str:
    """Returns the words of a message, or the ids of one that came in and could not be read."""
    ids = item.get("message_ids")
    return " ".join(map(str, ids)) if item.get("kind") == "unread" and isinstance(ids, list) else str(item.get("text"))


def _print_message(context: typer.Context, message: JsonObject) -> None:
    words = f"message {shown(str(message.get('id')))} is {shown(str(message.get('state')))}"
    print_result(context, message, words)


def _time(item: JsonObject) -> str:
    at_ms = item.get("updated_at_ms")
    return date_time(at_ms) if isinstance(at_ms, int) else ""
