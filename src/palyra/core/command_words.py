"""The words of a shell text, where the text is so plain that its words say all that it does.

Owns: splitting plain commands for cards and grants, and which further words a grant for a kind of command covers.
Does not own: any verdict on a text. A command in a draft is judged by what it changed.
Invariant: a text with anything beyond plain words (a variable, a pattern, a redirection to a file, a block) has no words
here, so no grant for a kind of command covers it.
"""

import re

Words = tuple[tuple[str, ...], ...]

TEXT_LENGTH_MAX = 4096  # Nobody reads a longer text as one plain command.
_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
_SILENT = re.compile(r"(?:[12]?>>?\s*/dev/null|&>>?\s*/dev/null|2>&1|1>&2|>&2)(?=[\s;|&]|$)")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+,^-]+")
_SINGLE = re.compile(r"'([^'\n]*)'")
_DOUBLE = re.compile(r'"([^"$`\\!\n]*)"')
_SPACE = re.compile(r"[ \t]+")
_KEYWORDS = frozenset(
    """
    if then else elif fi for while until do done case esac in function select time coproc eval exec source . command builtin
    trap alias set export declare typeset local readonly env xargs nohup sudo
    """.split()
)
# A name, such as `origin` or `left-pad@1.3.0`. It is no option, path, address or assignment, whatever the program is.
_HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")


def command_words(text: str) -> Words:
    """Returns the words of every command of a plain text; nothing if something of it is not plain."""
    if len(text) > TEXT_LENGTH_MAX:
        return ()
    commands: list[tuple[str, ...]] = []
    words: list[str] = []
    place = 0
    while place < len(text):
        if (found := _SPACE.match(text, place)) or (
            _starts_word(text, place) and (found := _SILENT.match(text, place))
        ):
            place = found.end()
        elif found := _SEPARATOR.match(text, place):
            commands += [tuple(words)] if words else []
            words, place = [], found.end()
        else:
            word, end = _word(text, place)
            if word is None:
                return ()
            words.append(word)
            place = end
    commands += [tuple(words)] if words else []
    return tuple(commands) if all(_is_plain_command(each) for each in commands) else ()


def goes_on_harmlessly(words: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
    """Tells whether the command begins with these words and nothing but names follows.

    No option follows, since its value could be a program, as for `--upload-pack`, or a path, as for `--output`.
    """
    return words[: len(prefix)] == prefix and all(map(_HARMLESS.fullmatch, words[len(prefix) :]))


def _starts_word(text: str, place: int) -> bool:
    return place == 0 or text[place - 1] in " \t;|&\n"


def _word(text: str, place: int) -> tuple[str | None, int]:
    parts: list[str] = []
    while place < len(text):
        if found := _PLAIN.match(text, place):
            parts.append(found[0])
        elif (found := _SINGLE.match(text, place)) or (found := _DOUBLE.match(text, place)):
            parts.append(found[1])
        else:
            break
        place = found.end()
    is_ended = place == len(text) or text[place] in " \t\n;|&"
    return ("".join(parts), place) if parts and is_ended else (None, place)


def _is_plain_command(words: tuple[str, ...]) -> bool:
    """A first word that sets a variable, or that makes other words into a command, is more than a plain command."""
    return "=" not in words[0] and words[0] not in _KEYWORDS and bool(words[0])
