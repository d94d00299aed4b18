"""The ChannelRouter: who is let in, and what a message is taken for."""

import pytest

from palyra.core.channels.commands import ChannelCommand, CommandName, help_text, parse_command
from palyra.core.channels.model import (
    SELF,
    BroadcastStrategy,
    ChannelKind,
    ChannelRules,
    DirectMessages,
    InboundMessage,
)
from palyra.core.channels.router import (
    CodeGiven,
    CommandGiven,
    Ignored,
    PairingNeeded,
    UnknownCommandGiven,
    WordsGiven,
    route,
)


def rules(**fields: object) -> ChannelRules:
    return ChannelRules(**{"name": "team", "kind": ChannelKind.DISCORD, **fields})  # type: ignore[arg-type]


def message(text: str = "hello", **fields: object) -> InboundMessage:
    base = {"envelope_id": "e1", "channel": "team", "conversation_id": "c1", "sender_id": "s1", "is_direct": True}
    return InboundMessage(text=text, **{**base, **fields})  # type: ignore[arg-type]


def group(text: str = "hello", **fields: object) -> InboundMessage:
    return message(text, is_direct=False, **{"mentions": (SELF,), **fields})


def test_a_stranger_is_ignored_by_default() -> None:
    assert route(message(), rules(), is_linked=False) == Ignored("direct_denied")
    assert route(group(), rules(), is_linked=False) == Ignored("sender_not_allowed")


@pytest.mark.parametrize("text", ["Palyra /status", "palyra: /status", "  palyra, /status"])
def test_a_command_may_follow_the_name_that_a_pattern_matches(text: str) -> None:
    given = rules(allow_from=("s1",), mention_patterns=("(?i)palyra",))
    routed = route(group(text, mentions=()), given, is_linked=False)
    assert routed == CommandGiven(ChannelCommand(CommandName.STATUS))


@pytest.mark.parametrize("text", ["ABCD-EFGH", " abcd-efgh", "/pair abcd-efgh"])
def test_who_may_speak_unlinked_may_pair_too(text: str) -> None:
    for given in (rules(allow_from=("s1",)), rules(dm_policy=DirectMessages.ALLOW)):
        assert route(message(text), given, is_linked=False) == CodeGiven("ABCDEFGH")
        assert route(message("together"), given, is_linked=False) == WordsGiven("together")
        assert not isinstance(route(message(text), given, is_linked=True), CodeGiven)
        assert not isinstance(route(message(text, sender_verified=False), given, is_linked=False), CodeGiven)


def test_who_is_denied_is_ignored_even_if_linked_and_allowed() -> None:
    given = rules(deny_from=("s1",), allow_from=("s1",), dm_policy=DirectMessages.ALLOW)
    assert route(message(), given, is_linked=True) == Ignored("sender_denied")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (DirectMessages.DENY, Ignored("direct_denied")),
        (DirectMessages.PAIRING, PairingNeeded()),
        (DirectMessages.ALLOW, WordsGiven("hello")),
    ],
)
def test_the_policy_for_direct_messages_decides_about_strangers(policy: DirectMessages, expected: object) -> None:
    assert route(message(), rules(dm_policy=policy), is_linked=False) == expected
    assert route(message(), rules(dm_policy=policy), is_linked=True) == WordsGiven("hello")
    assert route(message(), rules(dm_policy=policy, allow_from=("s1",)), is_linked=False) == WordsGiven("hello")


@pytest.mark.parametrize("text", ["ABCD-EFGH", "abcdefgh", "code: ABCD-EFGH", "/pair abcd-efgh", "ABCDEFG0"])
def test_a_stranger_may_give_a_code_where_pairing_is_allowed(text: str) -> None:
    routed = route(message(text), rules(dm_policy=DirectMessages.PAIRING), is_linked=False)
    assert isinstance(routed, CodeGiven)
    assert len(routed.code) == 8


def test_a_code_is_no_code_from_a_sender_nobody_vouches_for() -> None:
    given = message("ABCD-EFGH", sender_verified=False)
    assert route(given, rules(dm_policy=DirectMessages.PAIRING), is_linked=False) == Ignored("sender_unverified")


def test_lists_and_links_count_only_for_verified_senders() -> None:
    given = rules(allow_from=("s1",))
    assert route(message(sender_verified=False), given, is_linked=True) == Ignored("direct_denied")


def test_a_group_needs_a_mention() -> None:
    given = rules(allow_from=("*",))
    assert route(group(mentions=()), given, is_linked=False) == Ignored("not_mentioned")
    assert route(group(mentions=("other",)), given, is_linked=False) == Ignored("not_mentioned")
    assert route(group(), given, is_linked=False) == WordsGiven("hello")


def test_a_mention_in_the_text_is_none_unless_a_pattern_says_so() -> None:
    spoofed = group("<@self> @palyra hello", mentions=())
    assert route(spoofed, rules(allow_from=("*",)), is_linked=False) == Ignored("not_mentioned")
    given = rules(allow_from=("*",), mention_patterns=(r"(?i)\bpalyra\b",))
    assert route(spoofed, given, is_linked=False) == WordsGiven(spoofed.text)


@pytest.mark.parametrize(
    ("strategy", "mentioned", "unmentioned"),
    [
        (BroadcastStrategy.DENY, Ignored("broadcast_denied"), Ignored("broadcast_denied")),
        (BroadcastStrategy.MENTION_ONLY, WordsGiven("hello"), Ignored("broadcast_without_mention")),
        (BroadcastStrategy.ALLOW, WordsGiven("hello"), WordsGiven("hello")),
    ],
)
def test_the_broadcast_strategy_decides_about_messages_to_everyone(
    strategy: BroadcastStrategy, mentioned: object, unmentioned: object
) -> None:
    given = rules(allow_from=("s1",), broadcast=strategy)
    assert route(group(requested_broadcast=True), given, is_linked=False) == mentioned
    assert route(group(requested_broadcast=True, mentions=()), given, is_linked=False) == unmentioned


@pytest.mark.parametrize("name", list(CommandName))
def test_every_command_is_understood_in_any_case_and_with_a_name(name: CommandName) -> None:
    for text in (name.value, name.value.upper(), f"{name.value}@palyra_bot", f"  {name.value} "):
        assert parse_command(text) == ChannelCommand(name)
    assert parse_command(f"{name.value} 01AB") == ChannelCommand(name, "01AB")
    assert name.value in help_text()


def test_stop_is_cancel_and_other_words_are_words() -> None:
    assert parse_command("/stop") == ChannelCommand(CommandName.CANCEL)
    for text in ("/unknown", "please /cancel", "/cancel\nand more", "cancel", ""):
        assert parse_command(text) is None


def test_a_command_is_one_only_for_who_is_let_in() -> None:
    assert route(message("/status"), rules(), is_linked=False) == Ignored("direct_denied")
    routed = route(message("/status"), rules(), is_linked=True)
    assert routed == CommandGiven(ChannelCommand(CommandName.STATUS))


def test_a_button_is_the_command_it_stands_for_and_nothing_else() -> None:
    given = rules(allow_from=("*",))
    pressed = group("", mentions=(), pressed="/approve 01AB")
    assert route(pressed, given, is_linked=False) == CommandGiven(ChannelCommand(CommandName.APPROVE, "01AB"))
    assert route(group("", pressed="rm -rf"), given, is_linked=False) == Ignored("button_unknown")


def test_nothing_said_is_nothing() -> None:
    assert route(message("  \n"), rules(), is_linked=True) == Ignored("empty")


@pytest.mark.parametrize("text", ["/foo", "/Foo bar", "/foo@palyra_bot bar", " /foo_2"])
def test_a_command_that_does_not_exist_is_no_words_for_the_agent(text: str) -> None:
    routed = route(message(text), rules(), is_linked=True)
    assert isinstance(routed, UnknownCommandGiven)
    assert routed.word.lower().startswith("/foo")
    named = rules(mention_patterns=("(?i)palyra",))
    assert isinstance(route(group(f"palyra: {text}", mentions=()), named, is_linked=True), UnknownCommandGiven)


@pytest.mark.parametrize("text", ["/etc/hosts is odd", "/", "/ hm", "//", "/foo\nmore", "/foo, or not", "a /foo", "/é"])
def test_words_that_only_look_like_a_command_are_words(text: str) -> None:
    assert route(message(text), rules(), is_linked=True) == WordsGiven(text)


def test_a_stranger_hears_nothing_of_commands() -> None:
    assert route(message("/foo"), rules(), is_linked=False) == Ignored("direct_denied")
