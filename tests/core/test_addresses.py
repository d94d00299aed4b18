"""An address is known only if a person gave it, or it came from outside before the model wrote it, word for word.

And only a few times: which one was chosen tells something too.
"""

from collections.abc import Iterable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core import addresses
from palyra.core.addresses import VISITS_MAX
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.context.window import ITEMS_MAX, Window, WindowItem, extend
from palyra.core.events import Data, Event
from palyra.core.events.model import Finish, ModelOutput, ToolCall
from palyra.core.events.run import MessageUser, RunStarted
from palyra.core.events.session import SessionReset
from palyra.core.events.tool import Outcome, ToolFinished
from palyra.core.ids import CallId, EffectId
from palyra.core.run.call import Call
from palyra.core.trust import Trust
from tests.support.runs import ALICE, RUN, SESSION
from tests.support.traits import reads_outside

PAGE = "https://news.example/today"
LOOT = f"{PAGE}?loot=hunter2"


def is_known_address(address: str | None, window: Window, call_id: str = "", turn: Iterable[Call] = ()) -> bool:
    return addresses.is_known_address(address, window, reads_outside, call_id, turn)


def heard(
    *messages: Message,
    trust: Trust = Trust.EXTERNAL,
    source: str | None = "http:news.example",
    tool: str | None = "http.fetch",
) -> Window:
    """The source and the tool are of the results in it."""
    return Window(
        items=tuple(
            WindowItem(message, trust, 1, *((source, tool) if isinstance(message, ToolMessage) else ()))
            for message in messages
        )
    )


def visit(*addresses: str) -> AssistantMessage:
    return AssistantMessage("", tuple(PastCall(url, "http.fetch", {"url": url}) for url in addresses))


def test_what_a_program_named_is_known_only_if_the_model_did_not_write_it_before() -> None:
    """A program may have read there what the model wrote: a person's words are known all the same."""
    by_program = WindowItem(UserMessage(f"See {LOOT}"), Trust.EXTERNAL, 1, "client:ci")
    by_person = WindowItem(UserMessage(f"See {LOOT}"), Trust.OPERATOR, 1)
    written = WindowItem(AssistantMessage(LOOT, ()), Trust.EXTERNAL, 1)
    assert is_known_address(LOOT, Window(items=(by_program,)))
    assert not is_known_address(LOOT, Window(items=(written, by_program)))
    assert is_known_address(LOOT, Window(items=(written, by_person)))


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


QUOTED = f"{LOOT}'s"  # Python would write a text that holds both kinds of quotes with a backslash.


@pytest.mark.parametrize(
    "written",
    [
        {"content": f'"\n{QUOTED}\n'},
        {"files": [{"path": "a", "lines": ["one", f'"{QUOTED}"']}]},
        {f'"{QUOTED}"': 1},
        {"content": quote(QUOTED, safe="")},
        {"content": quote(quote(QUOTED, safe=""), safe="")},
        {"content": QUOTED.upper()},
        {"content": QUOTED.replace("'", "&#39;")},
        {"content": QUOTED.replace("hunter", "\uff48unter")},
        f'{{"content": "{QUOTED}',
    ],
)
def test_no_spelling_hides_that_the_model_wrote_it_first(written: dict[str, object] | str) -> None:
    said = AssistantMessage("", (PastCall("c0", "mcp.board.post", written),))
    echo = ToolMessage("c0", f"There is:\n{QUOTED}\n")
    assert is_known_address(QUOTED, heard(echo))
    assert not is_known_address(QUOTED, heard(said, echo))


@given(st.text(min_size=1), st.text(), st.text())
def test_whatever_the_model_wrote_around_it_it_stays_its_own(loot: str, before: str, after: str) -> None:
    address = f"{PAGE}?d={quote(loot, safe='')}"
    said = AssistantMessage("", (PastCall("c0", "mcp.board.post", {"text": f"{before} {address} {after}"}),))
    assert not is_known_address(address, heard(said, ToolMessage("c0", address)))


@pytest.mark.parametrize(
    ("source", "tool", "is_given"),
    [
        ("http:news.example", "http.fetch", True),
        ("http:news.example", "browser.read", True),
        ("mcp:mail", "mcp.mail.read", True),
        ("file:notes.md", "fs.read", False),
        ("tool:fs.search", "fs.search", False),
        ("tool:shell.run", "shell.run", False),
        ("http:news.example", "artifact.read", False),
        ("artifact:0123456789abcdef", "artifact.read", False),
        ("session:01JZ", "session.search", False),
        ("skill:http", "skill.open", False),
        ("wasm:words", "wasm.words.count", False),
        ("external", "http.fetch", False),
        ("http:news.example", "gone.since", False),
        ("http:news.example", None, False),
        (None, None, False),
    ],
)
def test_only_what_came_straight_from_outside_gives_addresses(
    source: str | None, tool: str | None, is_given: bool
) -> None:
    assert is_known_address(PAGE, heard(ToolMessage("c1", f"See {PAGE} "), source=source, tool=tool)) is is_given


LISTED = tuple(f"{PAGE}/{number}" for number in range(VISITS_MAX + 2))
LIST = ToolMessage("c1", "\n".join(LISTED))


def turn_of(*addresses: str) -> tuple[Call, ...]:
    return tuple(
        Call(
            index=index,
            call_id=CallId(f"t{index}"),
            effect_id=EffectId("e"),
            tool="http.fetch",
            arguments={"url": url},
            digest="",
        )
        for index, url in enumerate(addresses, start=1)
    )


@pytest.mark.parametrize(("count", "is_known"), [(VISITS_MAX - 1, True), (VISITS_MAX, False)])
def test_known_addresses_are_visited_a_few_times_and_then_none_is_known(count: int, is_known: bool) -> None:
    wanted = LISTED[count]
    assert is_known_address(wanted, heard(LIST, *map(visit, LISTED[:count]))) is is_known
    assert is_known_address(wanted, heard(LIST, visit(*LISTED[:count]))) is is_known
    assert is_known_address(wanted, heard(LIST, *map(visit, LISTED[:count]), UserMessage(f"Read {wanted}"))) is is_known


@pytest.mark.parametrize("is_recorded", [False, True])
def test_visits_of_one_turn_count_in_their_order_whether_or_not_they_are_recorded(is_recorded: bool) -> None:
    turn = turn_of(*LISTED)
    said = AssistantMessage("", tuple(PastCall(call.call_id, call.tool, call.arguments) for call in turn))
    window = heard(LIST, visit(PAGE), said) if is_recorded else heard(LIST, visit(PAGE))
    known = [is_known_address(url, window, call.call_id, turn) for url, call in zip(LISTED, turn, strict=True)]
    assert known == [True] * (VISITS_MAX - 1) + [False] * (len(LISTED) - VISITS_MAX + 1)
    assert not is_known_address(LISTED[0], window, "another", turn)


def test_the_same_two_addresses_again_and_again_spell_nothing_long() -> None:
    first, second, *_ = LISTED
    spelled = [visit(first), visit(second)] * (VISITS_MAX // 2)
    assert is_known_address(second, heard(LIST, *spelled[:-1]))
    assert not is_known_address(first, heard(LIST, *spelled))
    turn = turn_of(*[first, second] * VISITS_MAX)
    known = [is_known_address(first, heard(LIST), call.call_id, turn) for call in turn]
    assert known == [True] * VISITS_MAX + [False] * VISITS_MAX


def test_visits_before_there_was_anything_from_outside_do_not_count() -> None:
    earlier = heard(*map(visit, LISTED[:VISITS_MAX]), trust=Trust.OPERATOR)
    assert is_known_address(LISTED[-1], Window(items=(*earlier.items, *heard(LIST).items)))


def test_visits_count_by_whatever_name_the_address_has() -> None:
    opened = [AssistantMessage("", (PastCall("c0", "browser.go", {"to": f" HTTPS{each[5:]}"}),)) for each in LISTED]
    assert not is_known_address(LISTED[-1], heard(LIST, *opened[:VISITS_MAX]))


def event(data: Data, trust: Trust) -> Event:
    return Event(
        seq=1, position=1, stream=SESSION, run_id=RUN, type=data.TYPE, at_ms=0, actor=ALICE, trust=trust, data=data,
        hash="", salt=None, digest="",
    )  # fmt: skip


def fetched(url: str, page: str) -> tuple[ModelOutput, ToolFinished]:
    call_id = CallId(url)
    call = ToolCall(call_id=call_id, tool="http.fetch", arguments={"url": url})
    wanted = ModelOutput(turn=1, text="", tool_calls=(call,), finish=Finish.TOOL_CALLS, usage=None)
    return wanted, ToolFinished(
        call_id=call_id, effect_id=EffectId("e" * 64), outcome=Outcome.OK, error=None, attestation=None, output=page,
        source="http:news.example", tool="http.fetch",
    )  # fmt: skip


def test_visits_count_though_the_window_no_longer_holds_them_until_a_reset() -> None:
    window = Window()
    story: list[Data] = [RunStarted()]
    for url in LISTED[:VISITS_MAX]:
        story += fetched(url, "page")
    story += [MessageUser(text="Go on.") for _ in range(ITEMS_MAX)]
    for each in story:
        window = extend(window, event(each, Trust.EXTERNAL))
    assert not any(item.visits for item in window.items)
    for is_known in (False, True):
        after = window
        for each in fetched(PAGE, "\n".join(LISTED)):
            after = extend(after, event(each, Trust.EXTERNAL))
        assert is_known_address(LISTED[-1], after) is is_known
        window = extend(window, event(SessionReset(), Trust.OPERATOR))


def test_an_address_in_a_paste_is_one_that_a_person_brought() -> None:
    message = UserMessage(f"Read this: {PAGE}")
    assert is_known_address(PAGE, Window(items=(WindowItem(message, Trust.LOCAL, 1, typed="Read this:"),)))
