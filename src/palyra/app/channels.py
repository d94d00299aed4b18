"""Wires channels: which adapter is behind which `[[channel]]`, and who may answer questions from one.

Does not own: what becomes of a message (core.channels, engine.channels).
A new platform is one file in adapters/channels and one line here. Its library is imported at its first use.
"""

from typing import Protocol

from palyra.adapters.net.client import HttpClient
from palyra.app.secrets import AskSecret, SecretSources
from palyra.config import Config, SecretRef
from palyra.config.records import ChannelConfig
from palyra.core.channels.model import CHAT_COALESCE_MS, ChannelKind, ChannelRules
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal
from palyra.engine.channels.directory import ConfiguredChannel, MayAnswer
from palyra.ports.channels import ChannelAdapter
from palyra.ports.clock import Clock
from palyra.ports.policy import AccessPolicy, ApiQuestion

ANSWERS = "approvals.answer"


class SecretLookup(Protocol):
    def source(self, reference: SecretRef | None) -> AskSecret: ...


def make_channels(
    config: Config, secrets: SecretSources, client: HttpClient, clock: Clock, key: bytes
) -> tuple[ConfiguredChannel, ...]:
    return tuple(
        ConfiguredChannel(make_rules(section), make_adapter(section, secrets, client, clock, key))
        for section in config.channels
    )


def origins_max(config: Config) -> dict[str, int]:
    """Returns how many runs of each channel may be active at once."""
    return {make_rules(section).origin: section.concurrency for section in config.channels}


def make_rules(section: ChannelConfig) -> ChannelRules:
    # A webhook's caller waits for the answer to its request, and sends whole messages.
    usual_ms = 0 if section.kind is ChannelKind.WEBHOOK else CHAT_COALESCE_MS
    return ChannelRules(
        name=section.name,
        kind=section.kind,
        dm_policy=section.dm_policy,
        allow_from=section.allow_from,
        deny_from=section.deny_from,
        mention_patterns=section.mention_patterns,
        broadcast=section.broadcast,
        isolate_session_by_sender=section.isolate_session_by_sender,
        concurrency=section.concurrency,
        response_prefix=section.response_prefix,
        agent=section.agent,
        when_busy=section.when_busy,
        coalesce_ms=usual_ms if section.coalesce_ms is None else section.coalesce_ms,
        conversation=section.conversation,
    )


def make_adapter(
    section: ChannelConfig, secrets: SecretLookup, client: HttpClient, clock: Clock, key: bytes
) -> ChannelAdapter:
    """Makes what is behind a channel. `key` is the node's; it marks the ids of its mails."""
    match section.kind:
        case ChannelKind.WEBHOOK:
            from palyra.adapters.channels.webhook import WebhookChannel, WebhookSettings

            return WebhookChannel(
                WebhookSettings(
                    name=section.name,
                    secret=secrets.source(section.secret),
                    outbound_url=section.outbound_url,
                    mapping=section.mapping,
                ),
                client,
                clock,
            )
        case ChannelKind.TELEGRAM:
            from palyra.adapters.channels.telegram import TelegramChannel, TelegramSettings

            return TelegramChannel(
                TelegramSettings(
                    name=section.name,
                    token=secrets.source(section.token),
                    secret=secrets.source(section.secret),
                    has_webhook=section.secret is not None,
                    api_url=section.api_url,
                ),
                client,
            )
        case ChannelKind.SLACK:
            from palyra.adapters.channels.slack import SlackChannel, SlackSettings

            return SlackChannel(
                SlackSettings(
                    name=section.name,
                    token=secrets.source(section.token),
                    app_token=secrets.source(section.app_token),
                    signing_secret=secrets.source(section.signing_secret),
                    has_socket=section.app_token is not None,
                    api_url=section.api_url,
                )
            )
        case ChannelKind.DISCORD:
            return _make_discord(section, secrets)
        case ChannelKind.EMAIL:
            return _make_email(section, secrets, key)


def _make_email(section: ChannelConfig, secrets: SecretLookup, key: bytes) -> ChannelAdapter:
    from palyra.adapters.channels.email import EmailChannel, EmailSettings

    return EmailChannel(
        EmailSettings(
            name=section.name,
            imap=section.imap or "",
            smtp=section.smtp or "",
            password=secrets.source(section.token),
            key=key,
            authserv_id=section.authserv_id,
        )
    )


def _make_discord(section: ChannelConfig, secrets: SecretLookup) -> ChannelAdapter:
    from palyra.adapters.channels.discord import DiscordChannel, DiscordSettings

    return DiscordChannel(
        DiscordSettings(
            name=section.name,
            token=secrets.source(section.token),
            api_url=section.api_url,
            guilds=section.guilds,
        )
    )


def answers_by_policy(policy: AccessPolicy) -> MayAnswer:
    """Asks the access policy, as for a token of that role."""

    def may_answer(principal: Principal, role: str, owner: Principal) -> bool:
        question = ApiQuestion(principal=principal, role=role, action=ANSWERS, owner=owner)
        return policy.permit(question).verdict is Verdict.ALLOW

    return may_answer
