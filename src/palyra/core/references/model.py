"""The records of references, and their limits.

Does not own: finding references in a text (parser), nor cutting their content (caps).
"""

from enum import Enum

import msgspec

from palyra.core.redaction.markers import Secret
from palyra.core.trust import Trust

REFERENCES_MAX = 8
LISTED_MAX = 32  # Further references are not even listed as too many. A person would not read such a list.
TARGET_LENGTH_MAX = 4096  # As long as a path may be.
RAW_SHOWN_MAX = 1_000
FOLDER_FILES_MAX = 6
TOTAL_CHARS_MAX = 24_000

TOO_MANY = "too_many"
TOO_LONG = "too_long"
QUOTE_OPEN = "quote_open"


class ReferenceKind(Enum):
    FILE = "file"
    FOLDER = "folder"
    DIFF = "diff"
    STAGED = "staged"
    URL = "url"
    MEMORY = "memory"
    RUN = "run"
    SESSION = "session"


# A target may be left out for these alone: they then mean the whole workspace.
WITHOUT_TARGET = frozenset({ReferenceKind.DIFF, ReferenceKind.STAGED})

CHARS_MAX = {
    ReferenceKind.FILE: 8_000,
    ReferenceKind.FOLDER: 12_000,
    ReferenceKind.DIFF: 10_000,
    ReferenceKind.STAGED: 10_000,
    ReferenceKind.URL: 8_000,
    ReferenceKind.MEMORY: 8_000,
    ReferenceKind.RUN: 8_000,
    ReferenceKind.SESSION: 8_000,
}


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A reference as it stands in a text: `text[start:end]` is `raw`.

    `target` is what follows the colon, without quotes. It is None where nothing follows. `problem` is a code that says
    why the reference cannot be resolved, whatever it means.
    """

    raw: str
    kind: ReferenceKind
    target: str | None
    start: int
    end: int
    problem: str | None = None

    @property
    def shown(self) -> str:
        """Returns the reference in a length that fits a list."""
        return self.raw if len(self.raw) <= RAW_SHOWN_MAX else f"{self.raw[: RAW_SHOWN_MAX - 1]}…"


class ResolvedReference(msgspec.Struct, frozen=True, kw_only=True):
    """What a reference brought, or why it brought nothing.

    `text` is redacted. `secrets` holds the values behind its markers, for the one who records the text. `source` names
    where the text came from, in the words of taint. A reference that failed has the daemon's own words only.
    """

    reference: Reference
    ok: bool
    code: str | None = None
    warning: str | None = None
    text: str = ""
    trust: Trust = Trust.SYSTEM
    source: str | None = None
    fence_id: str | None = None
    is_cut: bool = False
    secrets: tuple[Secret, ...] = ()
    sources: tuple[str, ...] = ()
    memory_ids: tuple[str, ...] = ()

    @property
    def chars(self) -> int:
        return len(self.text)


def refused(reference: Reference, code: str, warning: str) -> ResolvedReference:
    return ResolvedReference(reference=reference, ok=False, code=code, warning=warning)
