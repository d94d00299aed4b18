"""The generic webhook: signed JSON in, signed JSON out.

Owns: reading requests of the form that docs/channels.md states, and posting answers to `outbound_url`.
Does not own: duplicates (engine.channels.intake), signing rules (core.channels.signatures).
The receiver is asked to take one `X-Palyra-Delivery` once, so sending again after a crash is safe.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from palyra.adapters.net.client import HttpClient, Outgoing, Timeouts
from palyra.core.channels.file_names import file_name
from palyra.core.channels.model import ChannelKind
from palyra.core.channels.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, check_webhook, refusal, sign_webhook
from palyra.core.channels.webhook_fields import read_message
from palyra.core.errors import Invalid, Unavailable
from palyra.ports.channels import (
    Arrival,
    ChannelCheck,
    ChannelTraits,
    ConnectionReport,
    Deliver,
    HttpReply,
    HttpRequestPart,
    OutgoingFile,
    OutgoingPart,
    Redelivery,
    SendFailed,
    SentMessage,
)
from palyra.ports.clock import Clock

DELIVERY_HEADER = "x-palyra-delivery"
LENGTH_MAX = 60_000
FILES_BYTES_MAX = 4_000_000  # Of one message; as base64 in JSON they are a third larger.
TIMEOUTS = Timeouts(connect_s=10.0, first_byte_s=20.0, idle_s=10.0)
_NOT_SENT = frozenset({"connect_failed", "connect_timed_out", "address_invalid"})
_LATER = frozenset({408, 425, 429})


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    secret: Callable[[], str | None]
    outbound_url: str | None = None
    mapping: Mapping[str, str] = {}


class WebhookChannel:
    def __init__(self, settings: WebhookSettings, client: HttpClient, clock: Clock) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self.traits = ChannelTraits(
            kind=ChannelKind.WEBHOOK,
            length_max=LENGTH_MAX,
            redelivery=Redelivery.IDEMPOTENT,
            can_send=settings.outbound_url is not None,
            file_bytes_max=FILES_BYTES_MAX,
            joins_files=True,
        )

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        """Waits: messages come over HTTP."""
        report.up()
        await asyncio.Event().wait()

    async def read_request(self, request: HttpRequestPart) -> tuple[Arrival, ...] | HttpReply:
        secret = self._settings.secret()
        if not secret:
            raise refusal()
        check_webhook(request.headers, request.body, secret, request.now_s)
        if (
            request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
            != "application/json"
        ):
            raise Invalid("body_invalid", "the body is JSON; send content-type: application/json")
        try:
            body = msgspec.json.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise Invalid("body_invalid", "the body is no JSON") from cause
        except RecursionError as cause:
            raise Invalid("body_invalid", "the body is nested too deep") from cause
        return (Arrival(message=read_message(body, self._settings.name, self._settings.mapping)),)

    async def send(self, part: OutgoingPart) -> SentMessage:
        url, secret = self._settings.outbound_url, self._settings.secret()
        if url is None or not secret:
            raise SendFailed("the channel has no outbound_url, or no secret", is_final=True)
        body = msgspec.json.encode(
            {
                "id": part.key,
                "channel": self._settings.name,
                "conversation_id": part.conversation_id,
                "thread_id": part.thread_id,
                "reply_to": part.reply_to,
                "text": part.text,
                "buttons": part.buttons,
                "files": [_encoded(file) for file in part.files],
            }
        )
        now_s = self._clock.now_ms() // 1000
        headers = {
            "content-type": "application/json",
            TIMESTAMP_HEADER: str(now_s),
            SIGNATURE_HEADER: sign_webhook(secret, now_s, body),
            DELIVERY_HEADER: part.key,
        }
        try:
            async with self._client.post(Outgoing(url=url, headers=headers, body=body, timeouts=TIMEOUTS)) as reply:
                _require_taken(reply.status, reply.headers)
        except Unavailable as error:
            raise SendFailed(error.message, is_unknown=error.code not in _NOT_SENT) from error
        return SentMessage(part.key)

    async def edit(self, part: OutgoingPart, message_id: str) -> SentMessage:
        """Is not asked: what was posted stays as it is."""
        raise SendFailed("a posted answer cannot be changed", is_final=True)

    async def show_typing(self, conversation_id: str, thread_id: str | None) -> None:
        """Does nothing: there is no such sign."""

    async def find(self, part: OutgoingPart) -> SentMessage | None:
        """Is not asked: the receiver takes a delivery once."""
        return None

    async def check(self) -> ChannelCheck:
        """Connects to the receiver and sends nothing: whether it takes a message shows when there is one."""
        if not self._settings.secret():
            raise Unavailable("secret_missing", "the channel has no secret; run palyra secrets set")
        url = self._settings.outbound_url
        if url is None:
            return ChannelCheck(note="it takes messages in, and sends no answers, because it has no outbound_url")
        await self._client.connect(url, TIMEOUTS.connect_s)
        return ChannelCheck(note=f"{url} takes connections; no message was sent there")


def _encoded(file: OutgoingFile) -> dict[str, object]:
    return {"name": file_name(file.name), "media_type": file.media_type, "base64": file.body}


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Reads a Retry-After in seconds. A date is left to the usual waits."""
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    try:
        return max(0.0, float(text))
    except ValueError:
        return None


def _require_taken(status: int, headers: Mapping[str, str]) -> None:
    """A redirect is no taking: the operator's address is called, and no other."""
    if 200 <= status < 300:
        return
    is_final = 300 <= status < 500 and status not in _LATER
    message = f"the receiver answered {status}"
    raise SendFailed(message, retry_after_s=retry_after_s(headers), is_final=is_final, is_unknown=status >= 500)
