"""The directory of channels by name, as configured.

Owns: the names, what keeps a channel from sending, for its health, and which answers are being shown.
Does not own: connections (connection), what becomes of a message (intake).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from palyra.core.channels.identity import AccountLink, Speaker, is_linked
from palyra.core.channels.model import ChannelRules
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.run import ReplyAddress
from palyra.core.ids import Principal
from palyra.ports.channels import ChannelAdapter

ERROR_KEPT_MS = 60_000  # Behind the time of the next attempt: as long as that may take.
# Whether a principal in a role may answer for what belongs to the last principal.
MayAnswer = Callable[[Principal, str, Principal], bool]


def nobody_may_answer(_principal: Principal, _role: str, _owner: Principal) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ConfiguredChannel:
    rules: ChannelRules
    adapter: ChannelAdapter


class SendErrors:
    """What keeps channels from sending at the moment. An error that nothing repeats is forgotten."""

    def __init__(self) -> None:
        self._errors: dict[str, tuple[str, int]] = {}

    def put(self, channel: str, error: str, again_at_ms: int) -> None:
        self._errors[channel] = (error, again_at_ms + ERROR_KEPT_MS)

    def clear(self, channel: str) -> None:
        self._errors.pop(channel, None)

    def current(self, channel: str, now_ms: int) -> str:
        error, until_ms = self._errors.get(channel, ("", 0))
        return error if now_ms < until_ms else ""


class ChannelDirectory:
    """`previews` are the ids of the messages that show answers which are still being written."""

    def __init__(self, channels: Iterable[ConfiguredChannel], may_answer: MayAnswer) -> None:
        self._channels = {channel.rules.name: channel for channel in channels}
        self.may_answer = may_answer
        self.send_errors = SendErrors()
        self.previews: set[str] = set()

    def __iter__(self) -> Iterator[ConfiguredChannel]:
        return iter(self._channels.values())

    def find(self, name: str) -> ConfiguredChannel | None:
        return self._channels.get(name)

    def get(self, name: str) -> ConfiguredChannel:
        found = self._channels.get(name)
        if found is None:
            raise NotFound("channel_unknown", f"there is no channel {name}; palyra channels list shows those there are")
        return found

    def routine_address(self, name: str) -> ReplyAddress:
        """Returns where answers of routines go. Invalid if the channel names no conversation for them."""
        found = self._channels.get(name)
        if found is None or found.rules.conversation is None:
            raise Invalid("routine_channel", f"there is no [[channel]] {name} with a conversation for routines")
        return ReplyAddress(channel=name, conversation_id=found.rules.conversation)

    def answers_for(self, speaker: Speaker, owner: Principal) -> bool:
        """Tells whether a speaker may answer questions about what belongs to that owner."""
        return speaker.role is not None and self.may_answer(speaker.principal, speaker.role, owner)

    def may_approve(self, link: AccountLink | None, now_ms: int) -> bool:
        """Tells whether the account's principal may answer questions about what is its own."""
        if link is None or not is_linked(link, now_ms):
            return False
        return self.may_answer(link.principal, link.role, link.principal)
