"""Whose a message is: speakers, owners, keys and trust."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.channels.bursts import joined
from palyra.core.channels.identity import AccountLink, account_principal, place_of, speaker_of
from palyra.core.channels.model import ChannelKind, ChannelRules, InboundMessage
from palyra.core.ids import Principal, parse_principal
from palyra.core.trust import Trust

RULES = ChannelRules(name="team", kind=ChannelKind.DISCORD)
LINK = AccountLink(
    id="l1",
    channel="team",
    sender_id="s1",
    principal=Principal("user:alice"),
    role="user",
    display="Alice",
    made_by=Principal("user:owner"),
    created_at_ms=0,
    expires_at_ms=1_000,
)


def message(**fields: object) -> InboundMessage:
    base = {"envelope_id": "e1", "channel": "team", "conversation_id": "c1", "sender_id": "s1", "is_direct": False}
    return InboundMessage(**{"text": "hi", **base, **fields})  # type: ignore[arg-type]


def speaker(
    said: InboundMessage, link: AccountLink | None = None, may_approve: bool = False, now_ms: int = 0
) -> object:
    return speaker_of(said, ChannelKind.DISCORD, link, may_approve, now_ms)


def test_an_unlinked_sender_is_external_and_itself() -> None:
    found = speaker_of(message(), ChannelKind.DISCORD, None, True, 0)
    assert (found.principal, found.trust, found.via, found.role) == ("channel:discord:s1", Trust.EXTERNAL, None, None)


def test_a_link_gives_its_principal_and_a_trust_by_role() -> None:
    found = speaker_of(message(), ChannelKind.DISCORD, LINK, False, 0)
    assert (found.principal, found.trust, found.via) == ("user:alice", Trust.LOCAL, "channel:discord:s1")
    assert speaker_of(message(), ChannelKind.DISCORD, LINK, True, 0).trust is Trust.OPERATOR


@pytest.mark.parametrize(("now_ms", "verified"), [(1_000, True), (0, False)])
def test_an_expired_link_and_an_unverified_sender_give_nothing(now_ms: int, verified: bool) -> None:
    found = speaker_of(message(sender_verified=verified), ChannelKind.DISCORD, LINK, True, now_ms)
    account = "channel:discord:s1" if verified else "channel:discord:unproven:s1"
    assert (found.principal, found.trust) == (account, Trust.EXTERNAL)


def test_a_shared_conversation_belongs_to_its_channel() -> None:
    found = place_of(message(), RULES, speaker_of(message(), ChannelKind.DISCORD, LINK, True, 0))
    assert (found.session_key, found.owner) == ("channel:team:conversation:c1", "channel:team")


def test_isolated_and_direct_conversations_belong_to_their_speaker() -> None:
    isolated = ChannelRules(name="team", kind=ChannelKind.DISCORD, isolate_session_by_sender=True)
    linked = speaker_of(message(), ChannelKind.DISCORD, LINK, True, 0)
    found = place_of(message(), isolated, linked)
    assert (found.session_key, found.owner) == ("channel:team:conversation:c1:sender:s1", "user:alice")
    direct = place_of(message(is_direct=True), RULES, speaker_of(message(), ChannelKind.DISCORD, None, False, 0))
    assert (direct.session_key, direct.owner) == ("channel:team:conversation:c1", "channel:discord:s1")


@given(st.text(min_size=1, max_size=300))
def test_every_sender_has_a_principal_that_can_be_read(sender_id: str) -> None:
    assert parse_principal(account_principal(ChannelKind.WEBHOOK, sender_id)).startswith("channel:webhook:")


@given(st.tuples(st.text(min_size=1, max_size=120), st.text(min_size=1, max_size=120)), st.data())
def test_two_conversations_never_share_a_key(pair: tuple[str, str], data: st.DataObject) -> None:
    other = data.draw(st.tuples(st.text(min_size=1, max_size=120), st.text(min_size=1, max_size=120)))
    isolated = ChannelRules(name="team", kind=ChannelKind.DISCORD, isolate_session_by_sender=True)
    keys = []
    for conversation_id, sender_id in (pair, other):
        said = message(conversation_id=conversation_id, sender_id=sender_id)
        keys.append(place_of(said, isolated, speaker_of(said, ChannelKind.DISCORD, None, False, 0)).session_key)
    assert (keys[0] == keys[1]) is (pair == other)
    assert all(len(key) <= 256 for key in keys)


def test_quick_words_of_one_sender_are_one_and_a_duplicate_is_none() -> None:
    words = [("e1", "s1", "a"), ("e2", "s1", "b"), ("e2", "s1", "b"), ("e3", "s2", "c"), ("e4", "s1", "d")]
    said = [message(envelope_id=envelope, sender_id=sender, text=text) for envelope, sender, text in words]
    assert [burst.text for burst in joined(said)] == ["a\nb", "c", "d"]


def test_a_burst_is_bounded() -> None:
    said = [message(envelope_id=str(number), text="x") for number in range(50)]
    assert [len(burst.messages) for burst in joined(said)] == [20, 20, 10]
