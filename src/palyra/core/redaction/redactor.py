"""The redactor turns text and JSON values into their redacted form, whole or streamed.

Does not own: the rules of what is secret (scan).
Law L5: everything stored or sent passes here.
Invariants: redacting redacted text changes nothing. The one exception is a name glued to a secret's end, which becomes
a name only once the marker stands there. Restoring gives the exact input back. The joined outputs of a stream equal the
redaction of the whole text, and never hold a part of a secret.
Numbers and booleans are never redacted, whatever their name: a marker in their place would change a value's type.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain

import msgspec

from palyra.core.redaction.assignments import judge_named, strip_scheme
from palyra.core.redaction.known import KnownSecrets, SeenSecrets
from palyra.core.redaction.markers import Json, Secret, marker_of, refuse_depth, seal
from palyra.core.redaction.names import Name, classify_name
from palyra.core.redaction.scan import (
    LOOK_BACK_CHARS,
    RUN_CHARS_MAX,
    Memory,
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
RUNS_MAX = 1024  # Runs whose values are remembered. An older run still has its texts redacted one by one.


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

    def __init__(self, key: bytes, known: KnownSecrets | None = None, seen: SeenSecrets | None = None) -> None:
        self._key = key
        self._known = known or KnownSecrets()
        self._seen = seen
        self._runs: OrderedDict[str, SeenSecrets] = OrderedDict()

    def for_run(self, run_id: str) -> "Redactor":
        """Returns the redactor of one run: what was found in it once is masked wherever it comes again."""
        seen = self._runs.pop(run_id, None) or SeenSecrets()
        self._runs[run_id] = seen
        if len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)
        return Redactor(self._key, self._known, seen)

    @property
    def _memory(self) -> Memory:
        return Memory(self._known.pattern, self._seen or SeenSecrets())

    def text(self, text: str) -> Redacted:
        found = scan_whole(text, self._memory)
        if not found.spans:
            return Redacted(text, ())
        secrets: dict[str, Secret] = {}
        return Redacted(_replace(self._key, text, found.spans, secrets), tuple(secrets.values()))

    def value(self, value: Json) -> RedactedValue:
        """Redacts every string of a JSON value, keys included.

        A string's key, or the name beside it, is its context.
        """
        walk = _Walk(self._key, self._memory)
        return RedactedValue(walk.redact(value, None, 0), tuple(walk.secrets.values()))

    def knows(self, text: str) -> bool:
        """Tells whether the text holds a secret known by its value."""
        pattern = self._known.pattern
        return pattern is not None and pattern.search(text) is not None

    def stream(self, *, is_eager: bool = False) -> "RedactionStream":
        """Redacts a text that arrives in pieces. `is_eager` is for live text that people wait for."""
        return RedactionStream(self._key, self._known, self._seen, is_eager=is_eager)


class RedactionStream:
    """Redacts a growing text. It holds back the last unfinished run, or the window in which a secret may lie.

    In clean prose only the last word is held back. The most ever held back is one window (4 KiB) and one run (4 KiB),
    or a private key block (16 KiB).

    An eager stream sends the first letters of a growing word early, where nothing before it suggests a secret.
    Otherwise the first word of an answer would wait for the second. Formats that need no name before them begin with
    letters that are public anyway (`ghp`, `xoxb`), and at most LEAD_CHARS are sent early. A marker then follows those
    letters.
    """

    def __init__(
        self, key: bytes, known: KnownSecrets | None = None, seen: SeenSecrets | None = None, *, is_eager: bool = False
    ) -> None:
        self._is_eager = is_eager
        self._ahead = 0  # How many characters behind `_sent` were already sent early.
        self._key = key
        self._source = known
        self._memory = Memory(None, seen or SeenSecrets())
        self._has_begun = False
        self._text = ""  # The text from a little before `_sent`, which rules may look back at, to its end.
        self._sent = 0
        self._clean_chars = 0  # This much of `_text` is known to hold nothing that any rule would stop at.
        self._secrets: dict[str, Secret] = {}

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Returns the secrets found so far, each once."""
        return tuple(self._secrets.values())

    def feed(self, text: str) -> str:
        """Takes more text and returns what can be sent now."""
        if not self._has_begun:
            # A stream uses one pattern throughout: the one that holds the key this very call was made with.
            self._has_begun = True
            self._memory = self._memory._replace(known=self._source.pattern if self._source is not None else None)
        self._text += text
        if len(self._text) - self._sent <= RUN_CHARS_MAX and not ends_run(text):
            return self._lead()
        if self._is_clean():
            return self._send_clean(last_run_start(self._text, self._sent)) + self._lead()
        return self._send(scan_growing(self._text, self._sent, self._memory)) + self._lead()

    def finish(self) -> str:
        """Returns the rest once no more text comes."""
        return self._send(scan_rest(self._text, self._sent, self._memory))

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
        """Searches each piece once; text that remains from earlier pieces is not searched again."""
        if self._clean_chars < len(self._text):
            is_clean = stays_clean(self._text, self._clean_chars, self._memory)
            self._clean_chars = len(self._text) if is_clean else 0
        return self._clean_chars > 0

    def _send_clean(self, settled: int) -> str:
        """Sends clean text.

        The text before it may grow a little: cutting it at each word would cost more than the rest.
        """
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

    def __init__(self, key: bytes, memory: Memory) -> None:
        self._key = key
        self._memory = memory
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
            return _replace(self._key, text, scan_whole(text, self._memory).spans, self.secrets)
        start = strip_scheme(text)
        if "‹" in text or not judge_named(name, text[start:]):
            return _replace(self._key, text, scan_whole(text, self._memory).spans, self.secrets)
        self._memory.seen.note(text[start:], name.kind)
        return _replace(self._key, text, [Span(start, len(text), name.kind)], self.secrets)


def _name_of(key: str, named: Name | None, inherited: Name | None) -> Name | None:
    """Returns what a key says of its value; `named` comes from a sibling such as `"name": "DB_PASSWORD"`."""
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
    """Names a value by the flag before it in a list of arguments, or by the first half of a pair."""
    if not isinstance(item, str) or len(item) > 96 or "=" in item:
        return None
    return classify_name(item) if item.startswith("-") or item_count == 2 else None


def _replace(key: bytes, text: str, spans: list[Span], secrets: dict[str, Secret], start: int = 0) -> str:
    """Returns the text from `start` with each span replaced by its marker, and adds the secrets to those known."""
    return "".join(_pieces(key, text, spans, secrets, start)) if spans else text[start:]


def _pieces(key: bytes, text: str, spans: list[Span], secrets: dict[str, Secret], start: int) -> Iterator[str]:
    for span in spans:
        yield text[start : span.start]
        secret = seal(key, span.kind, text[span.start : span.end])
        secrets.setdefault(secret.id, secret)
        yield marker_of(secret)
        start = span.end
    yield text[start:]
