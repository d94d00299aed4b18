"""What to do on each platform to add a channel, step by step, and what it needs in palyra.toml."""

from collections.abc import Iterator
from typing import NamedTuple

from palyra.core.channels.model import ChannelKind


class NeededSecret(NamedTuple):
    """`key` is the setting, `suffix` follows the channel's name in the vault."""

    key: str
    suffix: str
    asked: str


class ChannelGuide(NamedTuple):
    """`clicks` is done on the platform. `settings` are further lines of the section; a person may change them."""

    clicks: str
    secrets: tuple[NeededSecret, ...]
    settings: tuple[str, ...]

    def section(self, name: str, api_url: str | None = None) -> str:
        """Returns the `[[channel]]` for palyra.toml."""
        return "\n".join(self._lines(name, api_url))

    def _lines(self, name: str, api_url: str | None) -> Iterator[str]:
        kind = next(kind for kind, guide in GUIDES.items() if guide is self)
        yield from ("[[channel]]", f'name = "{name}"', f'kind = "{kind.value}"')
        yield from (f'{secret.key} = "vault:{name}_{secret.suffix}"' for secret in self.secrets)
        yield from self.settings
        if api_url is not None:
            yield f'api_url = "{api_url}"'

    def steps(self, name: str, api_url: str | None = None) -> list[str]:
        """Returns all that a person does who does everything by hand."""
        stored = [f"    palyra secrets set {name}_{secret.suffix}" for secret in self.secrets]
        section = [f"    {line}" for line in self.section(name, api_url).splitlines()]
        tried = [f"    palyra channels test {name}", f"    palyra pair --channel {name}"]
        return [
            *self.clicks.replace("NAME", name).splitlines(),
            *("Store what you copied:", *stored),
            *("Write into palyra.toml:", *section),
            *("Then restart the daemon and try it:", *tried),
        ]


_PAIRING = ('dm_policy = "pairing"',)
_TOKEN = NeededSecret("token", "token", "The bot's token")

GUIDES: dict[ChannelKind, ChannelGuide] = {
    ChannelKind.TELEGRAM: ChannelGuide(
        "1. In Telegram, talk to @BotFather: /newbot, choose a name, and copy the token.", (_TOKEN,), _PAIRING
    ),
    ChannelKind.SLACK: ChannelGuide(
        """1. At api.slack.com/apps create an app and switch Socket Mode on.
   Create an app token with connections:write, and copy it.
2. Under OAuth & Permissions add chat:write, app_mentions:read, im:history, channels:history, groups:history,
   files:read, files:write and metadata.message:read; install the app, and copy the bot token.
3. Under Event Subscriptions subscribe to app_mention and message.im. Under Interactivity switch it on.
4. Under App Home allow people to send messages from the Messages tab. Under Slash Commands create /palyra.""",
        (
            NeededSecret("app_token", "app", "The app token (xapp-…)"),
            NeededSecret("token", "bot", "The bot token (xoxb-…)"),
        ),
        _PAIRING,
    ),
    ChannelKind.DISCORD: ChannelGuide(
        """1. At discord.com/developers create an application with a bot.
   Switch Message Content Intent on, and copy the token.
2. Under OAuth2 make an invitation with the scopes bot and applications.commands, and the permissions View Channels,
   Send Messages, Send Messages in Threads, Attach Files and Read Message History. Open it.""",
        (_TOKEN,),
        _PAIRING,
    ),
    ChannelKind.WEBHOOK: ChannelGuide(
        """1. Make a long random secret, such as: openssl rand -hex 32
2. Let the other side post JSON, signed with it, to /api/v1/channels/NAME/inbound; docs/channels.md has the form.""",
        (NeededSecret("secret", "secret", "The secret"),),
        ('dm_policy = "allow"', '# outbound_url = "https://example.com/answers"  # where answers are posted'),
    ),
    ChannelKind.EMAIL: ChannelGuide(
        """1. Make a mailbox of its own, and have its password at hand.
2. Find out which name the mailbox's server gives itself: palyra channels test NAME says which one the newest mails
   bring. Without authserv_id nobody can begin or pair by mail; docs/channels.md says what to look out for.""",
        (NeededSecret("token", "password", "The mailbox's password"),),
        (
            'imap = "imaps://palyra@mail.example.com"',
            'smtp = "smtps://palyra@mail.example.com"',
            '# authserv_id = "mx.example.com"  # the server that verifies senders',
            *_PAIRING,
        ),
    ),
}
