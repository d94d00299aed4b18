"""An address is known only if a person or a tool gave it, word for word."""

import pytest

from palyra.core.addresses import is_known_address
from palyra.core.conversation import AssistantMessage, Item, Message, ToolMessage, UserMessage, Window
from palyra.core.trust import Trust

PAGE = "https://news.example/today"


def heard(*messages: Message) -> Window:
    return Window(items=tuple(Item(message, Trust.EXTERNAL, 1) for message in messages))


@pytest.mark.parametrize("message", [UserMessage(f"Read {PAGE}, please."), ToolMessage("c1", f"See {PAGE}.")])
def test_what_a_person_or_a_tool_named_is_known(message: Message) -> None:
    assert is_known_address(PAGE, heard(UserMessage("Hi."), message))


@pytest.mark.parametrize(
    "address", [f"{PAGE}?loot=hunter2", "https://news.example/tomorrow", "https://evil.example/", "a", "", None]
)
def test_whatever_was_put_together_is_not(address: str | None) -> None:
    assert not is_known_address(address, heard(UserMessage(f"Read {PAGE}, please."), ToolMessage("c1", "loot=hunter2")))


def test_the_models_own_words_do_not_count() -> None:
    assert not is_known_address(PAGE, heard(AssistantMessage(f"I will read {PAGE}.")))
