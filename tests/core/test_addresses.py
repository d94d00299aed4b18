"""An address is known only if a person gave it, or it came from outside before the model wrote it, word for word."""

import pytest

from palyra.core.addresses import is_known_address
from palyra.core.conversation import AssistantMessage, Item, Message, PastCall, ToolMessage, UserMessage, Window
from palyra.core.trust import Trust

PAGE = "https://news.example/today"
LOOT = f"{PAGE}?loot=hunter2"


def heard(*messages: Message, trust: Trust = Trust.EXTERNAL) -> Window:
    return Window(items=tuple(Item(message, trust, 1) for message in messages))


@pytest.mark.parametrize("frame", ["{}", "Read {}, please.", "See {}.", "<a href='{}'>", '"{}"', "({})", "{}\nnext"])
@pytest.mark.parametrize("kind", [UserMessage, lambda text: ToolMessage("c1", text)])
def test_what_a_person_or_a_page_named_is_known(frame: str, kind: type[UserMessage]) -> None:
    assert is_known_address(PAGE, heard(UserMessage("Hi."), kind(frame.format(PAGE))))


@pytest.mark.parametrize("address", [LOOT, "https://news.example/tomorrow", "https://evil.example/", "a", "", None])
def test_whatever_was_put_together_is_not(address: str | None) -> None:
    assert not is_known_address(address, heard(UserMessage(f"Read {PAGE}, please."), ToolMessage("c1", "loot=hunter2")))


@pytest.mark.parametrize("longer", [LOOT, f"{PAGE}/more", f"{PAGE}.html", f"x{PAGE}"])
def test_a_part_of_another_address_is_not(longer: str) -> None:
    assert not is_known_address(PAGE, heard(UserMessage(f"Read {longer}")))


@pytest.mark.parametrize(
    "said",
    [
        AssistantMessage(f"I will read {LOOT} now."),
        AssistantMessage("", (PastCall("c0", "fs.write", {"content": LOOT}),)),
        AssistantMessage("", (PastCall("c0", LOOT, {}),)),
    ],
)
def test_what_the_model_wrote_first_stays_its_own_though_a_tool_says_it_again(said: Message) -> None:
    assert not is_known_address(LOOT, heard(said, ToolMessage("c1", f"There is: {LOOT}")))


def test_errors_local_results_and_notes_of_the_daemon_give_nothing() -> None:
    assert not is_known_address(LOOT, heard(ToolMessage("c1", f"no such tool: {LOOT} ", is_error=True)))
    assert not is_known_address(LOOT, heard(ToolMessage("c1", f"read: {LOOT} "), trust=Trust.LOCAL))
    assert not is_known_address(LOOT, heard(UserMessage(f"[palyra] You said {LOOT} ")))


def test_a_page_read_again_is_still_known() -> None:
    fetched = AssistantMessage("", (PastCall("c0", "http.fetch", {"url": PAGE}),))
    assert is_known_address(PAGE, heard(ToolMessage("c1", f"See {PAGE} "), fetched))
