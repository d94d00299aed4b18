"""Payloads of Slack: reading a request's body, and the blocks of a message with buttons.

Does not own: what a payload says to us (slack).
"""

import html
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from palyra.core.channels.commands import parse_command
from palyra.core.channels.model import TEXT_LENGTH_MAX
from palyra.core.errors import Invalid
from palyra.ports.channels import OutgoingPart

Json = dict[str, Any]
SECONDS_LENGTH_MAX = 12


def read_body(headers: Mapping[str, str], body: bytes) -> Json:
    """Events are JSON. Buttons are a form with JSON in `payload`, and slash commands a plain form."""
    try:
        if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            form = dict(parse_qsl(body.decode("utf-8"), max_num_fields=100))
            found: object = msgspec.json.decode(form["payload"]) if "payload" in form else form
        else:
            found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as cause:
        raise Invalid("body_invalid", "the body is none of Slack's") from cause
    if not isinstance(found, dict):
        raise Invalid("body_invalid", "the body is none of Slack's")
    return found


def thread_of(event: Json, is_direct: bool) -> str | None:
    """A message in a channel is answered in a thread of its own; in a direct conversation only where there is one."""
    thread = event.get("thread_ts")
    return str(thread) if thread else None if is_direct else str(event["ts"])


def plain_text(text: str) -> str:
    return html.unescape(text).strip()[:TEXT_LENGTH_MAX]


def slash_text(payload: Json) -> str:
    """Returns what a slash command of Slack says: `/palyra status` and `/status` are our command, if Slack has them.

    One bare word is a command if we have such a one. Several are words: `/palyra new ideas` must not start over.
    """
    command, text = str(payload["command"]), plain_text(str(payload.get("text", "")))
    if parse_command(command) is not None:
        return f"{command} {text}".strip()
    return f"/{text}" if " " not in text and parse_command(f"/{text}") is not None else text


def blocks_of(text: str, part: OutgoingPart) -> list[Json]:
    buttons = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": button.label},
            "value": button.value,
            "action_id": f"palyra_{number}",
        }
        for number, button in enumerate(part.buttons)
    ]
    shown = {"type": "section", "text": {"type": "mrkdwn", "text": text[:3_000]}}
    return [shown, {"type": "actions", "elements": buttons}]


def written_at_ms(stamp: str) -> int | None:
    """Reads the time of a message, which Slack also names it by: seconds with six places."""
    seconds, _, places = stamp.partition(".")
    is_time = stamp.isascii() and seconds.isdecimal() and len(seconds) <= SECONDS_LENGTH_MAX
    return int(seconds) * 1000 + int(places[:3]) if is_time and places[:3].isdecimal() else None
