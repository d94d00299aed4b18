"""The directory of channels by name, as configured.

Does not own: connections (connection), what becomes of a message (intake).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from palyra.core.channels.identity import AccountLink, is_linked
from palyra.core.channels.model import ChannelRules
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.run import ReplyAddress
from palyra.core.ids import Principal
from palyra.ports.channels import ChannelAdapter

# Whether a principal in a role may answer for what belongs to the last principal.
MayAnswer = Callable[[Principal, str, Principal], bool]


def nobody_may_answer(_principal: Principal, _role: str, _owner: Principal) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ConfiguredChannel:
    rules: ChannelRules
    adapter: ChannelAdapter


class ChannelDirectory:
    def __init__(self, channels: Iterable[ConfiguredChannel], may_answer: MayAnswer) -> None:
        self._channels = {channel.rules.name: channel for channel in channels}
        self.may_answer = may_answer

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

    def may_approve(self, link: AccountLink | None, now_ms: int) -> bool:
        """Tells whether the account's principal may answer questions about what is its own."""
        if link is None or not is_linked(link, now_ms):
            return False
        return self.may_answer(link.principal, link.role, link.principal)
