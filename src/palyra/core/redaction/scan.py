"""Scans a text once, from left to right, and finds where its secrets lie.

Does not own: what a secret looks like (assignments, contexts, formats, private_keys).
The text is cut into runs, which are pieces without blanks. Cheap searches pass over it and stop only at runs that could
matter; all other runs are skipped. A window opens at such a run, widens run by run while a reading is open, and is then
settled for good.
A decision depends only on the text from LOOK_BACK_CHARS before the window to its end, and a window ends only where a
run does. A stream holds back the run that is still growing, so it decides exactly as the whole text does.
Limits: a run longer than RUN_CHARS_MAX is cut into pieces at a comma or the like. Each reading says how wide its window
may grow.
"""

import re
from typing import NamedTuple

from palyra.core.redaction.assignments import NAME_END, read_assignment
from palyra.core.redaction.contexts import find_vendor_keys, read_user_flag
from palyra.core.redaction.formats import find_formats
from palyra.core.redaction.known import KIND, SeenSecrets
from palyra.core.redaction.markers import MARKER
from palyra.core.redaction.private_keys import read_private_key
from palyra.core.redaction.random_words import find_random_words
from palyra.core.redaction.spans import Reading, Span, merge_spans

RUN_CHARS_MAX = 4096
LOOK_BACK_CHARS = 160
_GAP_CHARS_MAX = 120
_NEEDS_MORE = -1
_WORD_CHARS_MAX = 512  # How far before a forced cut a better place is searched for; secrets are shorter.
_NAME_CHARS_MAX = 64
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9_\-]")

# In scripts written without blanks every character ends a run. Otherwise a whole paragraph would be held back.
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_RUN = re.compile(rf"[^\s{_SPACELESS}]{{1,{RUN_CHARS_MAX + 1}}}")
_RUN_BACK = re.compile(rf"[^\s{_SPACELESS}]*")
_GAP = re.compile(rf"[\s{_SPACELESS}]*")
_BETWEEN = re.compile(rf"[\s{_SPACELESS}]")

# The places where a reading may begin.
_HEAD = re.compile(
    rf"(?P<name>{NAME_END})|(?P<block>-----begin)|(?P<user>(?<!\S)(?:-u|--user|--proxy-user)(?![a-z0-9_\-]))"
)

# A run is worth reading if it holds the stem of a name, a digit next to letters, or a rare sign. Each branch starts
# with a fixed character or set, which lets the search skip most of a text. Stems are searched for in lowered text.
_STEMS = re.compile(
    r"pass(?![aei])|pwd|psw|s(?:ecret|ignature|enha|ess(?:ion)?_?id)|t(?:oken(?!i|s(?!t))|kn)|jwt|ke(?:y(?!w|s(?!t))|nnwort)"
    r"|c(?:red(?!it)|ookie|ontrase)|a(?:uth(?!e|or(?!i))|ccess_?id)"
    r"|b(?:earer|undle_)|login|[?](?:sig|code|s(?:ession|id)|ticket|hmac)|&(?:sig|code|s(?:ession|id)|ticket|hmac)"
)
_DIGITS = re.compile(r"[0-9][\-_]?[A-Za-z][A-Za-z0-9_\-]{2}")
# Each rare sign has its own search, which runs only where the sign occurs at all.
_RARE = (
    ("://", re.compile(r"://[^\s/]{0,400}@")),
    (":\\/\\/", re.compile(r":\\/\\/[^\s/]{0,400}@")),
    ("-----begin", re.compile("-----begin")),
    ("-u", re.compile(r"-u(?:ser)?(?![a-z0-9_\-])")),
    ("hf_", re.compile(r"hf_[a-z]{30}")),
    ("api_org_", re.compile(r"api_org_[a-z]{20}")),
    ("akc", re.compile(r"akc[a-z0-9]{10}")),
    ("mnemonic", re.compile("mnemonic")),
    ("пароль", re.compile("пароль")),
)

_RARE_SIGNS = tuple(sign for sign, _ in _RARE)
# One search for all stems and signs in lowered text: a little slower over a long text, much faster over a few words.
_SIGNS = re.compile("|".join((_STEMS.pattern, *map(re.escape, _RARE_SIGNS))))
_SIGN_CHARS_MAX = 16  # No stem or sign, with the text it looks ahead at, is longer.


Known = re.Pattern[str] | None


class Scan(NamedTuple):
    """The secrets found, in order and without overlap, and the place up to which the text is settled for good."""

    spans: list[Span]
    settled: int


class Memory(NamedTuple):
    """What is known by its value: `known` before any text, `seen` from texts before and from this one."""

    known: Known
    seen: SeenSecrets

    def finds(self, text: str) -> bool:
        known, seen = self.known, self.seen.pattern
        return bool((known is not None and known.search(text)) or (seen is not None and seen.search(text)))


def scan_whole(text: str, memory: Memory) -> Scan:
    lowered = _lower(text)
    if _is_clean(text, lowered, memory):
        return Scan([], len(text))
    return _Scanner(text, lowered, _Ends(len(text), len(text)), memory).scan(0)


def scan_rest(text: str, start: int, memory: Memory) -> Scan:
    """Scans the rest of a complete text from `start`. Earlier text only serves for looking back."""
    return _Scanner(text, _lower(text), _Ends(len(text), len(text)), memory).scan(start)


def scan_growing(text: str, start: int, memory: Memory) -> Scan:
    """Scans a text that may go on, from `start`. Earlier text only serves for looking back."""
    ends = _Ends(last_run_start(text, start), len(text) + 1)
    return _Scanner(text, _lower(text), ends, memory).scan(start)


def stays_clean(text: str, clean_chars: int, memory: Memory) -> bool:
    """Tells whether no search would stop anywhere in a text that has grown. `clean_chars` of it are known to be clean.

    No search looks back, so only a match that reaches into the new text can change the result.
    """
    fresh = text[clean_chars - _SIGN_CHARS_MAX :] if clean_chars > _SIGN_CHARS_MAX else text
    return not (_SIGNS.search(_lower(fresh)) or _DIGITS.search(fresh) or memory.finds(text))


def is_leading(text: str, start: int) -> bool:
    """Tells whether the growing run from `start` so far consists of letters alone."""
    return text[start:].isalpha() and not _BETWEEN.search(text, start)


def last_run_start(text: str, start: int) -> int:
    """Returns where the last run or piece starts that the text's end leaves unfinished."""
    if text[-1:].isspace():
        return len(text)
    at = _run_start(text, start, len(text))
    while len(text) - at > RUN_CHARS_MAX:
        at = _piece_end(text, at)
    return at


def ends_run(text: str) -> bool:
    """Tells whether more text of this kind can settle anything: decisions are made only where a run ends."""
    return _BETWEEN.search(text) is not None


def _lower(text: str) -> str:
    lowered = text.lower()
    # One letter, the Turkish dotted capital I, grows when lowered and would shift every later place.
    return lowered if len(lowered) == len(text) else text.replace("\u0130", "i").lower()


def _is_clean(text: str, lowered: str, memory: Memory) -> bool:
    """Tells whether no search would stop anywhere. This is the common case of a short text, and builds nothing."""
    if _STEMS.search(lowered) or _DIGITS.search(text) or memory.finds(text):
        return False
    return all(sign not in lowered for sign in _RARE_SIGNS)


class _Ends(NamedTuple):
    """Runs that end after `horizon` are not complete; the text as a whole ends at `last`."""

    horizon: int
    last: int


class _Scanner:
    """One pass over one text."""

    def __init__(self, text: str, lowered: str, ends: _Ends, memory: Memory) -> None:
        self._text = text
        self._known = known = memory.known
        self._seen = memory.seen
        self._searched = memory.seen.pattern
        self._lowered = lowered
        self._horizon, self._last = ends
        searches = [(pattern, lowered) for sign, pattern in _RARE if sign in lowered]
        searches += ((_STEMS, lowered), (_DIGITS, text))
        if known is not None:
            searches.append((known, text))
        if self._searched is not None:
            searches.append((self._searched, text))
        self._searches = searches
        self._hits = [-1] * len(searches)

    def scan(self, start: int) -> Scan:
        spans: list[Span] = []
        at = start
        while True:
            hit = self._next_hit(at)
            if hit >= self._horizon:
                return Scan(spans, self._horizon)
            run_start, run_end = self._run_around(at, hit)
            floor = max(0, run_start - LOOK_BACK_CHARS)
            found: list[Span] = []
            end = self._settle(run_start, run_end, floor, found)
            if end == _NEEDS_MORE:
                return Scan(spans, run_start)
            found.extend(find_formats(self._text, run_start, end))
            found.extend(find_vendor_keys(self._text, run_start, end, floor))
            found.extend(find_random_words(self._text, run_start, end, floor))
            if self._known is not None:
                found.extend(Span(*hit.span(), KIND) for hit in self._known.finditer(self._text, run_start, end))
            if self._seen.pattern is not None:
                hits = self._seen.pattern.finditer(self._text, run_start, end)
                found.extend(Span(*hit.span(), self._seen.kind_of(hit.group())) for hit in hits)
            if found:
                merged = tuple(merge_spans(self._text, found))
                spans.extend(merged)
                self._remember(merged)
            at = end

    def _remember(self, spans: tuple[Span, ...]) -> None:
        """Searches the rest of the text for what was found, whatever stands around it there."""
        for span in spans:
            self._seen.note(self._text[span.start : span.end], span.kind)
        if self._seen.pattern is self._searched or self._seen.pattern is None:
            return
        if self._searched is not None:
            self._searches.pop()
            self._hits.pop()
        self._searched = self._seen.pattern
        self._searches.append((self._searched, self._text))
        self._hits.append(-1)

    def _next_hit(self, at: int) -> int:
        """Returns the next place at or after `at` where a search stops; the text's length if there is none."""
        for index, (pattern, text) in enumerate(self._searches):
            if self._hits[index] < at:
                match = pattern.search(text, at)
                self._hits[index] = match.start() if match else len(text)
        return min(self._hits)

    def _run_around(self, floor: int, hit: int) -> tuple[int, int]:
        start = _run_start(self._text, floor, hit)
        end = _piece_end(self._text, start)
        while end <= hit:
            start, end = end, _piece_end(self._text, end)
        return start, end

    def _settle(self, start: int, end: int, floor: int, found: list[Span]) -> int:
        """Reads the window that opens here until nothing in it is open, and adds the secrets found.

        Returns the window's end, or _NEEDS_MORE.
        """
        at = start
        while (head := self._next_head(at, end, floor)) is not None:
            # A name in a later run opens its own window, so that windows, and the text held back, stay short.
            run_start = _run_start(self._text, at, head.start())
            if run_start > at or (at > start and _BETWEEN.match(self._text, at - 1)):
                return run_start
            reading = self._read(head, floor, end)
            wider = self._widen(start, end, reading) if reading.is_open else end
            if wider == _NEEDS_MORE:
                return _NEEDS_MORE
            if wider > end:
                end = wider
                continue
            if reading.span is not None:
                found.append(reading.span)
            at = reading.resume_at
        return end

    def _next_head(self, at: int, end: int, floor: int) -> re.Match[str] | None:
        head = _HEAD.search(self._lowered, at, end)
        while head is not None and (marker := self._marker_around(head.start(), floor)) is not None:
            head = _HEAD.search(self._lowered, marker.end(), end)
        return head

    def _read(self, head: re.Match[str], floor: int, end: int) -> Reading:
        if head["name"]:
            return read_assignment(self._text, head.span(), floor, end)
        if head["block"]:
            return read_private_key(self._text, head.start(), end)
        return read_user_flag(self._text, head.start(), floor, end)

    def _marker_around(self, at: int, floor: int) -> re.Match[str] | None:
        """Returns the marker around the place: its own words, such as `secret`, name nothing."""
        opening = self._text.rfind("‹", floor, at)
        marker = MARKER.match(self._text, opening) if opening >= 0 else None
        return marker if marker is not None and marker.end() > at else None

    def _widen(self, start: int, end: int, reading: Reading) -> int:
        """Returns the end of the next run, or `end` if this reading may not reach it, or _NEEDS_MORE."""
        gap = _GAP.match(self._text, end)
        gap_end = gap.end() if gap else end
        breaks = self._text.count("\n", end, gap_end)
        if (
            gap_end - end > _GAP_CHARS_MAX
            or breaks > reading.line_breaks_max
            or end - start >= reading.window_chars_max
        ):
            return end
        if gap_end >= self._last:
            return end
        if gap_end >= self._horizon:
            return _NEEDS_MORE
        return _piece_end(self._text, gap_end)


def _run_start(text: str, floor: int, hit: int) -> int:
    """Returns where the run around `hit` starts, not before `floor`.

    Looks back in growing steps, since runs are short.
    """
    width = 64
    while True:
        low = max(floor, hit - width)
        back = _RUN_BACK.match(text[low:hit][::-1])
        length = back.end() if back else 0
        if length < hit - low or low == floor:
            return hit - length
        width *= 8


def _piece_end(text: str, start: int) -> int:
    """Returns where the run from `start` ends.

    A run that is too long is cut behind its last comma, semicolon or ampersand, or at the limit.
    """
    run = _RUN.match(text, start)
    if run is None:
        return start + 1
    if run.end() - start <= RUN_CHARS_MAX:
        return run.end()
    cut = max(text.rfind(sign, start + RUN_CHARS_MAX // 2, start + RUN_CHARS_MAX) for sign in ",;&")
    return cut + 1 if cut > 0 else _cut_between(text, start + RUN_CHARS_MAX)


def _cut_between(text: str, cut: int) -> int:
    """Moves a cut before the word it would divide, and before a name right before that word.

    Both may belong to a secret.
    """
    low = cut - _WORD_CHARS_MAX
    ends = [sign.end() for sign in _BETWEEN_WORDS.finditer(text, low, cut)]
    if not ends:
        return cut
    before = _lower(text[low : ends[-1]])
    names = [name.start() for name in _STEMS.finditer(before, max(0, len(before) - _NAME_CHARS_MAX))]
    return low + names[-1] if names else ends[-1]
