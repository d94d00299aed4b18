"""Decides whether an address that a call would reach was given to the model, word for word.

Fetching an address can carry a secret out, if the model writes the secret into the address. An address that a person
wrote carries nothing but the choice of it. The same holds for one that came straight from outside before the model
ever wrote it.
Storage that keeps words for later gives no address: files, a shell, artifacts, other sessions, skills. A model may have
put the address there, in any session.
The choice between addresses tells something too. So only a few visits count as known ones.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from urllib.parse import unquote_plus

from palyra.core.context.messages import AssistantMessage, ToolMessage, UserMessage, is_visit
from palyra.core.context.window import Window, WindowItem
from palyra.core.run.call import Call
from palyra.core.trust import Trust, is_tainting

LENGTH_MIN = 4  # A shorter address would be found by chance.
VISITS_MAX = 4  # Visits wanted under taint. Each one lets the model tell which of the given addresses it chose.
NOTE = "[palyra]"  # Begins the daemon's own words, which may quote the model's.
_STRAIGHT = frozenset({"http", "mcp"})  # Kinds of sources whose content comes straight from outside.
_DECODINGS_MAX = 3
_BEFORE = r"(?<![\w/.:@%-])"
_AFTER = r"(?=$|[\s\"'<>()\[\]{},;|`*]|[.!?:]+(?:$|[\s\"'<>)\]]))"


def is_known_address(
    address: str | None,
    window: Window,
    reads_outside: Callable[[str], bool],
    call_id: str = "",
    turn: Iterable[Call] = (),
) -> bool:
    """Tells whether the window gave the model this address.

    An address that the model wrote first does not count, even where a tool repeats it. The beginning of another address
    does not count either. No address counts once the model wanted VISITS_MAX visits under taint.
    `turn` holds the calls that are judged together with this one, in order; the window may hold them already.
    `reads_outside` tells, by a tool's name, whether the tool's result came from outside in that very call.
    """
    if address is None or len(address) < LENGTH_MIN or re.search(r"\s", address):
        return False
    return _visits_before(call_id, tuple(turn), window) < VISITS_MAX and _was_given(address, window, reads_outside)


def _visits_before(call_id: str, turn: tuple[Call, ...], window: Window) -> int:
    """Counts visits wanted under taint.

    Repeats count: the order of two addresses spells as much as a choice of many.
    """
    together = {call.call_id for call in turn}
    ahead = takewhile(lambda call: call.call_id != call_id, turn)
    tainted = (item for item in window.items if is_tainting(item.trust))
    earlier = sum(visit not in together for item in tainted for visit in item.visits)
    return window.tainted_visits_count + earlier + sum(is_visit(call.arguments) for call in ahead)


def _was_given(address: str, window: Window, reads_outside: Callable[[str], bool]) -> bool:
    whole = re.compile(f"{_BEFORE}{re.escape(address)}{_AFTER}")
    plain = _plain(address)
    is_own = False
    for item in window.items:
        if not is_own and any(plain in _plain(text) for text in _written(item)):
            is_own = True
        elif _gives(item, reads_outside, is_own=is_own) and whole.search(_heard(item)):
            return True
    return False


def _gives(item: WindowItem, reads_outside: Callable[[str], bool], *, is_own: bool) -> bool:
    match item.message:
        case UserMessage(text=text):
            # What a reference brought is no person's words, whoever named it.
            is_said = not text.startswith(NOTE) and not item.is_delegated and not item.is_reference
            # A program may have read there what the model wrote, so its words count as those of the web.
            return is_said and not (is_own and item.source is not None)
        case ToolMessage(is_error=is_error):
            kind = (item.source or "").partition(":")[0]
            is_straight = kind in _STRAIGHT and item.tool is not None and reads_outside(item.tool)
            return item.trust is Trust.EXTERNAL and is_straight and not is_error and not is_own
        case _:
            return False


def _heard(item: WindowItem) -> str:
    return item.message.text if isinstance(item.message, UserMessage | ToolMessage) else ""


def _written(item: WindowItem) -> Iterator[str]:
    """Yields what the model wrote: its words, and the calls it wanted."""
    message = item.message
    if item.is_delegated and isinstance(message, UserMessage):
        yield message.text  # The model of another run wrote it.
    if isinstance(message, AssistantMessage):
        yield message.text
        for call in message.tool_calls:
            yield call.tool
            yield from _texts(call.arguments)


def _texts(value: object) -> Iterator[str]:
    """Yields every string as it is, never as some notation would quote it."""
    match value:
        case str():
            yield value
        case dict():
            for name, member in value.items():
                yield name
                yield from _texts(member)
        case list():
            for member in value:
                yield from _texts(member)


def _plain(text: str) -> str:
    """Makes different spellings of the same text equal, so that another spelling hides nothing."""
    for _ in range(_DECODINGS_MAX):
        decoded = html.unescape(unquote_plus(text))
        if decoded == text:
            break
        text = decoded
    return unicodedata.normalize("NFKC", text).casefold()
