"""The redactor. Owns: turning text and JSON values into their redacted form, whole or streamed. Not: the rules (scan).

Law L5: everything stored or sent passes here. Invariants: redacting what is redacted changes nothing, unless a name was glued
to a secret's end, where it is none before the marker stands there; restoring gives the exact input back; a stream's outputs,
joined, equal the redaction of the whole text, and hold no part of a secret at any moment.
Numbers and booleans are never redacted, whatever they are called: a marker in their place would change a value's type.
"""

import re
from collections.abc import Iterator
from itertools import chain

import msgspec

from palyra.core.redaction.assignments import judge_named, strip_scheme
from palyra.core.redaction.known import KnownSecrets
from palyra.core.redaction.markers import Json, Secret, marker_of, refuse_depth, seal
from palyra.core.redaction.names import Name, classify_name
from palyra.core.redaction.scan import (
    LOOK_BACK_CHARS,
    RUN_CHARS_MAX,
    Scan,
    ends_run,
    is_leading,
    last_run_start,
    scan_growing,
    scan_rest,
    scan_whole,
    stays_clean,
)
from palyra.core.redaction.spans import Span

LEAD_CHARS = 3
SLACK_CHARS = 512


class Redacted(msgspec.Struct, frozen=True):
    """A text with markers in it, and the secrets they stand for, each once, in order of appearance."""

    text: str
    secrets: tuple[Secret, ...]


class RedactedValue(msgspec.Struct, frozen=True):
    """A JSON value with markers in its strings, and the secrets they stand for, each once."""

    value: Json
    secrets: tuple[Secret, ...]


class Redactor:
    """Redacts under one key. The same secret always gives the same marker under the same key."""

    def __init__(self, key: bytes, known: KnownSecrets | None = None) -> None:
        self._key = key
        self._known = known or KnownSecrets()

    def text(self, text: str) -> Redacted:
        """Redact a whole text."""
        found = scan_whole(text, self._known.pattern)
        if not found.spans:
            return Redacted(text, ())
        secrets: dict[str, Secret] = {}
        return Redacted(_replace(self._key, text, found.spans, secrets), tuple(secrets.values()))

    def value(self, value: Json) -> RedactedValue:
        """Redact every string of a JSON value, keys included. A string's key, or the name beside it, is its context."""
        walk = _Walk(self._key, self._known)
        return RedactedValue(walk.redact(value, None, 0), tuple(walk.secrets.values()))

    def knows(self, text: str) -> bool:
        """Whether a secret known by its value is in it."""
        pattern = self._known.pattern
        return pattern is not None and pattern.search(text) is not None

    def stream(self, *, is_eager: bool = False) -> "RedactionStream":
        """Redact a text that arrives in pieces. `is_eager` is for live words that people wait for."""
        return RedactionStream(self._key, self._known, is_eager=is_eager)


class RedactionStream:
    """Redacts a growing text. Holds back the run of characters still growing, or the window in which a secret may lie.

    Clean prose is held back by its last word alone. The most ever held back is one window (4 KiB) and one run (4 KiB), or a
    private key block (16 KiB).

    An eager stream gives the first letters of a growing word ahead, where nothing before it speaks of secrets: without
    them the first word of an answer would wait for the second. Formats that need no name before them begin with letters that
    are public anyway (`ghp`, `xoxb`), and never more than LEAD_CHARS go ahead. A marker then follows those letters.
    """

    def __init__(self, key: bytes, known: KnownSecrets | None = None, *, is_eager: bool = False) -> None:
        self._is_eager = is_eager
        self._ahead = 0  # How many characters behind `_sent` were given already.
        self._key = key
        self._source = known
        self._known: re.Pattern[str] | None = None
        self._has_begun = False
        self._text = ""  # The text from a little before `_sent`, which rules may look back at, to its end.
        self._sent = 0
        self._clean_chars = 0  # So much of `_text` is known to hold nothing that any rule would stop at.
        self._secrets: dict[str, Secret] = {}

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets found so far, each once."""
        return tuple(self._secrets.values())

    def feed(self, text: str) -> str:
        """Take more text and give what can be sent now."""
        if not self._has_begun:
            # One pattern for the whole of a stream: the one that holds the key this very call was made with.
            self._has_begun, self._known = True, self._source.pattern if self._source is not None else None
        self._text += text
        if len(self._text) - self._sent <= RUN_CHARS_MAX and not ends_run(text):
            return self._lead()
        if self._is_clean():
            return self._send_clean(last_run_start(self._text, self._sent)) + self._lead()
        return self._send(scan_growing(self._text, self._sent, self._known)) + self._lead()

    def finish(self) -> str:
        """Give what is left once no more text comes."""
        return self._send(scan_rest(self._text, self._sent, self._known))

    def _lead(self) -> str:
        given, most = self._ahead, min(LEAD_CHARS, len(self._text) - self._sent)
        if not self._is_eager or given >= most or not is_leading(self._text, self._sent) or not self._is_clean():
            return ""
        lead = self._text[self._sent : self._sent + most]
        if self._source is not None and self._source.could_begin(lead):
            return ""
        self._ahead = most
        return lead[given:]

    def _is_clean(self) -> bool:
        """Looked at once for each piece; what is still there from the pieces before it is not looked at again."""
        if self._clean_chars < len(self._text):
            is_clean = stays_clean(self._text, self._clean_chars, self._known)
            self._clean_chars = len(self._text) if is_clean else 0
        return self._clean_chars > 0

    def _send_clean(self, settled: int) -> str:
        """The text before it is let grow a little: cutting it for each word would cost more than all the rest."""
        if settled == self._sent:
            return ""
        ready = self._text[min(self._sent + self._ahead, settled) : settled]
        self._ahead = 0
        self._sent = settled
        if settled > LOOK_BACK_CHARS + SLACK_CHARS:
            self._drop(settled - LOOK_BACK_CHARS)
        return ready

    def _drop(self, chars: int) -> None:
        self._text = self._text[chars:]
        self._clean_chars = max(0, self._clean_chars - chars)
        self._sent -= chars

    def _send(self, found: Scan) -> str:
        if found.settled == self._sent:
            return ""
        first = found.spans[0].start if found.spans else found.settled
        begin = min(self._sent + self._ahead, first)
        self._ahead = 0
        ready = _replace(self._key, self._text[: found.settled], found.spans, self._secrets, begin)
        self._sent = found.settled
        self._drop(max(0, found.settled - LOOK_BACK_CHARS))
        return ready


_NAMING_KEYS = frozenset("name key variable var field label header parameter option env property setting id".split())
_NAMED_KEYS = frozenset("value val secret_value secretvalue content default data text string".split())


class _Walk:
    """One walk over a JSON value, gathering secrets."""

    def __init__(self, key: bytes, known: KnownSecrets) -> None:
        self._key = key
        self._known = known.pattern
        self.secrets: dict[str, Secret] = {}

    def redact(self, value: Json, name: Name | None, depth: int) -> Json:
        refuse_depth(depth)
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, dict):
            named = _name_beside(value)
            return {
                self._text(key, None): self.redact(item, _name_of(key, named, name), depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            names = (_name_of_flag(item, len(value)) for item in value)
            pairs = zip(value, chain((None,), names), strict=False)
            return [self.redact(item, before or name, depth + 1) for item, before in pairs]
        return value

    def _text(self, text: str, name: Name | None) -> str:
        if name is None:
            return _replace(self._key, text, scan_whole(text, self._known).spans, self.secrets)
        start = strip_scheme(text)
        if "‹" in text or not judge_named(name, text[start:]):
            return _replace(self._key, text, scan_whole(text, self._known).spans, self.secrets)
        return _replace(self._key, text, [Span(start, len(text), name.kind)], self.secrets)


def _name_of(key: str, named: Name | None, inherited: Name | None) -> Name | None:
    """What a key says of its value; `named` comes from a sibling such as `"name": "DB_PASSWORD"`."""
    if named is not None and key.lower() in _NAMED_KEYS:
        return named
    return (
        classify_name(key.removesuffix("s") if key.lower().endswith(("tokens", "keys", "passwords")) else key)
        or inherited
    )


def _name_beside(fields: dict[str, Json]) -> Name | None:
    for key, item in fields.items():
        if isinstance(item, str) and key.lower() in _NAMING_KEYS and len(item) <= 96:
            name = classify_name(item)
            if name is not None:
                return name
    return None


def _name_of_flag(item: Json, item_count: int) -> Name | None:
    """A list of arguments names a value by the flag before it, and a pair by its first half."""
    if not isinstance(item, str) or len(item) > 96 or "=" in item:
        return None
    return classify_name(item) if item.startswith("-") or item_count == 2 else None


def _replace(key: bytes, text: str, spans: list[Span], secrets: dict[str, Secret], start: int = 0) -> str:
    """The text from `start` with each span replaced by its marker; the secrets are added to those known."""
    return "".join(_pieces(key, text, spans, secrets, start)) if spans else text[start:]


def _pieces(key: bytes, text: str, spans: list[Span], secrets: dict[str, Secret], start: int) -> Iterator[str]:
    for span in spans:
        yield text[start : span.start]
        secret = seal(key, span.kind, text[span.start : span.end])
        secrets.setdefault(secret.id, secret)
        yield marker_of(secret)
        start = span.end
    yield text[start:]
