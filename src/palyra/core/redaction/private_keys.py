"""Finds the extent of an armoured private key block, whole or cut short.

Does not own: certificates and public keys.
The block is held back from its first line to its END line. Text that merely mentions the first line must not swallow
what follows. So the block goes on only while runs look like its body; a few other runs (its headers) may pass.
"""

import re

from palyra.core.redaction.spans import Reading, Span

KEY_CHARS_MAX = 16384  # An RSA key of 8192 bits takes 6400 characters; a longer block is redacted up to here.
_STRANGE_RUNS_MAX = (
    14  # Headers such as "Proc-Type: 4,ENCRYPTED" and "Comment: made by x" hold this many words at most.
)
_LINE_BREAKS_MAX = 2

_TAIL_CHARS = 2048  # How far back the last few runs are searched for; the block as a whole is never read twice.

_BEGIN = re.compile(r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BEGIN_OPEN = re.compile(r"-----BEGIN[ A-Z0-9]{0,60}\Z")
_END = re.compile(r"-----END[ A-Z0-9]{0,40}KEY(?: BLOCK)?-----")
_RUN = re.compile(r"\S+")
_BODY = re.compile(r"[A-Za-z0-9+/=\\\"',]{16,}\Z")


def read_private_key(text: str, start: int, end: int) -> Reading:
    """Reads the block whose five dashes stand at `start`."""
    begin = _BEGIN.match(text, start, end)
    if begin is None:
        is_open = _BEGIN_OPEN.match(text, start, end) is not None
        return Reading(start + 5, is_open=is_open)
    dashes = text.find("-----END", begin.end(), end)
    close = _END.match(text, dashes, end) if dashes >= 0 else None
    if close is not None:
        return Reading(close.end(), Span(start, close.end(), "private_key"))
    body_end, strange_count = _follow_body(text, begin.end(), end)
    is_open = strange_count <= _STRANGE_RUNS_MAX
    if body_end == begin.end():
        return Reading(begin.end(), None, is_open, _LINE_BREAKS_MAX, KEY_CHARS_MAX)
    return Reading(body_end, Span(start, body_end, "private_key"), is_open, _LINE_BREAKS_MAX, KEY_CHARS_MAX)


def _follow_body(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns where the last run that looks like key material ends, and how many other runs follow it."""
    runs = list(_RUN.finditer(text, max(start, end - _TAIL_CHARS), end))
    for strange_count, run in enumerate(reversed(runs)):
        if _BODY.match(run.group()):
            return run.end(), strange_count
    return start, len(runs)
