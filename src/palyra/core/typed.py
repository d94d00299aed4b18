"""The words of a message that the person typed, where others of its words were pasted or came from elsewhere.

Owns: what may be called typed, and the one reading of a message by which something is obeyed or learned.
Does not own: finding out what was pasted (cli.terminal.pasted, clients of the API).
Invariants: typed words are pieces of the message in their order, one a line, so that nothing can be composed of what
stands apart in it. What is no piece of the message is no typed word, whoever says so.
"""

from palyra.core.errors import Invalid
from palyra.core.events.run import MessageUser


def typed_words(message: MessageUser) -> str:
    """Returns what a person's own words are taken from: references, what is learned, rules of the conversation."""
    return message.text if message.typed is None else pieces_within(message.text, message.typed)


def pieces_within(text: str, typed: str) -> str:
    """Returns the lines of `typed` that stand in the text one after the other. Others are left out."""
    found: list[str] = []
    at = 0
    for line in typed.splitlines():
        begun = text.find(line, at)
        if line.strip() and begun >= 0:
            found.append(line)
            at = begun + len(line)
    return "\n".join(found)


def require_typed(text: str, typed: str | None) -> None:
    """Refuses typed words that are not all in the text: then somebody meant something else by them."""
    if typed is None:
        return
    wanted = "\n".join(line for line in typed.splitlines() if line.strip())
    if pieces_within(text, typed) != wanted:
        raise Invalid("typed_not_in_text", "`typed` is made of pieces of `text` in their order, one a line")
