"""Payloads of Slack: what arrives, as records of plain types, and the blocks of a message with buttons.

Owns: reading a request's body, whose workspace a payload is of, and what it says to us.
Does not own: signatures (core.channels.signatures), files and connections (slack).
Invariants: nothing is done with a payload before each member that we read has its type. Only payloads of the workspace
and the app of this channel are read: a signature proves the app alone, which may be installed in several workspaces.
What a message shares of other messages and pages is an attachment that somebody else wrote.
"""

import html
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from palyra.core.channels.commands import parse_command
from palyra.core.channels.model import (
    ATTACHMENTS_MAX,
    DISPLAY_LENGTH_MAX,
    SELF,
    TEXT_LENGTH_MAX,
    InboundAttachment,
    InboundMessage,
    foreign_words,
)
from palyra.core.channels.unread import plain_text as mended
from palyra.core.errors import Invalid, Unauthorized, Unavailable
from palyra.ports.channels import OutgoingPart

Json = dict[str, Any]
SECONDS_LENGTH_MAX = 12
FOREIGN = "the payload is of another workspace or app of Slack than this channel"

_SPOKEN = frozenset({None, "file_share", "thread_broadcast"})
_BROADCAST = re.compile(r"<!(?:here|channel|everyone)(?:\|[^>]*)?>")
Shape = TypeVar("Shape")


class SlackSelf(msgspec.Struct, frozen=True):
    """Who we are at Slack, by auth.test. An app of a whole organisation has its `enterprise_id`, and `is_org`."""

    user_id: str
    team_id: str
    user: str = ""
    team: str = ""
    enterprise_id: str | None = None
    is_org: bool | None = msgspec.field(name="is_enterprise_install", default=None)


class SlackAuthorization(msgspec.Struct, frozen=True):
    team_id: str | None = None
    enterprise_id: str | None = None


class SlackEnvelope(msgspec.Struct, frozen=True):
    """Whose a payload is. With Slack Connect `team_id` may be the sender's workspace; then `authorizations` name ours."""

    type: str | None = None
    team_id: str | None = None
    enterprise_id: str | None = None
    api_app_id: str | None = None
    authorizations: list[SlackAuthorization] | None = None
    is_ext_shared_channel: bool = False


class SlackConnection(msgspec.Struct, frozen=True):
    app_id: str | None = None


class SlackGreeting(msgspec.Struct, frozen=True):
    """The first message of a socket."""

    connection: SlackConnection | None = msgspec.field(name="connection_info", default=None)


class SlackEventKind(msgspec.Struct, frozen=True):
    type: str
    subtype: str | None = None
    bot_id: str | None = None


class SlackFile(msgspec.Struct, frozen=True):
    name: str | None = None
    mimetype: str | None = None
    url_private: str | None = None
    url_private_download: str | None = None


class SlackShared(msgspec.Struct, frozen=True):
    """What Slack shows of another message or of a page. Nobody of these words is the sender's."""

    text: str | None = None
    fallback: str | None = None
    pretext: str | None = None
    title: str | None = None
    from_url: str | None = None
    author_id: str | None = None
    author_name: str | None = None


class SlackMessage(msgspec.Struct, frozen=True):
    """An event that somebody said something. `user_team` is the sender's workspace, with Slack Connect."""

    channel: str
    ts: str
    user: str | None = None
    text: str | None = None
    channel_type: str | None = None
    thread_ts: str | None = None
    team: str | None = None
    user_team: str | None = None
    source_team: str | None = None
    files: list[SlackFile] | None = None
    attachments: list[SlackShared] | None = None


class SlackEntity(msgspec.Struct, frozen=True):
    id: str
    name: str | None = None
    team_id: str | None = None
    enterprise_id: str | None = None


class SlackAction(msgspec.Struct, frozen=True):
    value: str | None = None
    action_ts: str | None = None


class SlackPlace(msgspec.Struct, frozen=True):
    thread_ts: str | None = None


class SlackPressed(msgspec.Struct, frozen=True):
    user: SlackEntity
    channel: SlackEntity
    actions: list[SlackAction]
    trigger_id: str | None = None
    team: SlackEntity | None = None
    enterprise: SlackEntity | None = None
    container: SlackPlace | None = None
    message: SlackPlace | None = None


class SlackSlash(msgspec.Struct, frozen=True):
    command: str
    channel_id: str
    user_id: str
    trigger_id: str
    user_name: str = ""
    text: str = ""


class SlackSaid(NamedTuple):
    """What a payload says to us, and the files that came with it."""

    message: InboundMessage
    files: list[SlackFile]


class SlackReader:
    """Reads the payloads of one channel. `app_id` is the app's: the socket's greeting tells it, or the first payload."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self.own: SlackSelf | None = None
        self.app_id: str | None = None

    def greet(self, told: object) -> None:
        """Keeps the app that the socket's greeting names."""
        greeting = _typed(told, SlackGreeting)
        if self.app_id is None and greeting.connection is not None:
            self.app_id = greeting.connection.app_id

    def read(self, payload: object) -> SlackSaid | None:
        """Reads an event, a pressed button or a slash command. None if it says nothing to us.

        Unauthorized if it is of another workspace or app; Invalid if it is none of Slack's.
        """
        own, envelope = self.own, _typed(payload, SlackEnvelope)
        if own is None:
            raise Unavailable("not_connected", "Slack has not told yet which workspace this channel is of")
        match envelope.type:
            case "event_callback":
                self._require_own(own, envelope, _names_us(own, envelope))
                return self._event(own, envelope, _member(payload, "event"))
            case "block_actions":
                pressed = _typed(payload, SlackPressed)
                self._require_own(own, envelope, _is_pressed_here(own, pressed))
                return SlackSaid(self._pressed(own, pressed), [])
            case None if isinstance(payload, dict) and "command" in payload:
                self._require_own(own, envelope, _names_us(own, envelope))
                return SlackSaid(self._slash(own, _typed(payload, SlackSlash)), [])
            case _:
                return None

    def _require_own(self, own: SlackSelf, envelope: SlackEnvelope, is_own_team: bool) -> None:
        if not is_own_team or not envelope.api_app_id or self.app_id not in (None, envelope.api_app_id):
            raise Unauthorized("workspace_foreign", FOREIGN)
        self.app_id = envelope.api_app_id

    def _event(self, own: SlackSelf, envelope: SlackEnvelope, told: object) -> SlackSaid | None:
        kind = _typed(told, SlackEventKind)
        if kind.type not in ("message", "app_mention") or kind.subtype not in _SPOKEN or kind.bot_id:
            return None
        event = _typed(told, SlackMessage)
        if not event.user or event.user == own.user_id:
            return None
        text, is_direct, mark = event.text or "", event.channel_type == "im", f"<@{own.user_id}>"
        team = own.team_id
        if not own.is_org or envelope.is_ext_shared_channel:
            team = event.user_team or event.source_team or event.team or envelope.team_id or own.team_id
        sender_id, earlier = _sender(own, team, event.user)
        message = InboundMessage(
            # A mention comes as two events; both name the same message.
            envelope_id=f"{event.channel}:{event.ts}",
            channel=self._channel,
            conversation_id=event.channel,
            thread_id=event.thread_ts or (None if is_direct else event.ts),
            sender_id=sender_id,
            earlier_sender_id=earlier,
            text=plain_text(text.replace(mark, "")),
            is_direct=is_direct,
            mentions=(SELF,) if kind.type == "app_mention" or mark in text else (),
            requested_broadcast=_BROADCAST.search(text) is not None,
            message_id=event.ts,
            written_at_ms=written_at_ms(event.ts),
            has_files=bool(event.files),
            attachments=tuple(filter(None, map(_shared, event.attachments or [])))[:ATTACHMENTS_MAX],
        )
        return SlackSaid(message, event.files or [])

    def _pressed(self, own: SlackSelf, pressed: SlackPressed) -> InboundMessage:
        if not pressed.actions:
            raise Invalid("body_invalid", "the payload has no action")
        action, user, places = pressed.actions[0], pressed.user, (pressed.container, pressed.message)
        sender_id, earlier = _sender(own, own.team_id if own.is_org else user.team_id or own.team_id, user.id)
        return InboundMessage(
            envelope_id=f"action:{pressed.trigger_id or action.action_ts}",
            channel=self._channel,
            conversation_id=pressed.channel.id,
            thread_id=next((each.thread_ts for each in places if each is not None and each.thread_ts), None),
            sender_id=sender_id,
            earlier_sender_id=earlier,
            sender_display=mended(user.name or "", DISPLAY_LENGTH_MAX),
            text="",
            is_direct=pressed.channel.id.startswith("D"),
            pressed=action.value or "",
        )

    def _slash(self, own: SlackSelf, typed: SlackSlash) -> InboundMessage:
        sender_id, earlier = _sender(own, own.team_id, typed.user_id)
        return InboundMessage(
            envelope_id=f"slash:{typed.trigger_id}",
            channel=self._channel,
            conversation_id=typed.channel_id,
            sender_id=sender_id,
            earlier_sender_id=earlier,
            sender_display=mended(typed.user_name, DISPLAY_LENGTH_MAX),
            text=slash_text(typed.command, typed.text),
            is_direct=typed.channel_id.startswith("D"),
            mentions=(SELF,),
        )


def _sender(own: SlackSelf, team: str, user: str) -> tuple[str, str | None]:
    """Returns the sender's id, and the one that earlier releases knew a member of our own workspace by."""
    return f"{team}:{user}", user if team == own.team_id else None


def _names_us(own: SlackSelf, envelope: SlackEnvelope) -> bool:
    if envelope.authorizations:
        return any(_is_ours(own, each.team_id, each.enterprise_id) for each in envelope.authorizations)
    return _is_ours(own, envelope.team_id, envelope.enterprise_id)


def _is_pressed_here(own: SlackSelf, pressed: SlackPressed) -> bool:
    """An organisation's app is told no team, but the enterprise."""
    team, enterprise = pressed.team, pressed.enterprise
    enterprise_id = enterprise.id if enterprise is not None else team.enterprise_id if team is not None else None
    return _is_ours(own, team.id if team is not None else None, enterprise_id)


def _is_ours(own: SlackSelf, team_id: str | None, enterprise_id: str | None) -> bool:
    if own.is_org and own.enterprise_id is not None:
        return own.enterprise_id == enterprise_id or own.team_id == team_id
    return team_id == own.team_id


def _shared(shared: SlackShared) -> InboundAttachment | None:
    told = [each for each in (shared.pretext, shared.title, shared.text or shared.fallback) if each]
    origin = shared.from_url or shared.author_id or shared.author_name or ""
    return foreign_words("\n".join(map(plain_text, told)), f"slack {origin}".strip())


def _member(payload: object, name: str) -> object:
    return payload.get(name) if isinstance(payload, dict) else None


def _typed(told: object, shape: type[Shape]) -> Shape:
    """Reads a record strictly: a list is no text, and neither is a number."""
    try:
        return msgspec.convert(told, shape)
    except (msgspec.ValidationError, RecursionError) as cause:
        raise Invalid("body_invalid", "the payload does not have the form of Slack's") from cause


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


def plain_text(text: str) -> str:
    return mended(html.unescape(text).strip(), TEXT_LENGTH_MAX)


def slash_text(command: str, said: str) -> str:
    """Returns what a slash command of Slack says: `/palyra status` and `/status` are our command, if Slack has them.

    One bare word is a command if we have such a one. Several are words: `/palyra new ideas` must not start over.
    """
    text = plain_text(said)
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
