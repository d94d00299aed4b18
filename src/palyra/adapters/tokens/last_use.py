"""When tokens were last used: times to the minute, in memory and in a private file.

Does not own: tokens (files).
Invariant: a request never writes. The noted times are written when the daemon says so, at most once a minute, by
replacing the file. A crash may lose the times since. The file is a hint for people: a damaged one counts as empty.
"""

import msgspec

from palyra.adapters.files.private import PrivateFile
from palyra.core.errors import PalyraError

STEP_MS = 60_000

_decoder = msgspec.json.Decoder(dict[str, int])


class LastUses:
    def __init__(self, file: PrivateFile) -> None:
        self._file = file
        self._noted: dict[str, int] = {}
        self._is_changed = False

    def note(self, token_id: str, at_ms: int) -> None:
        coarse_ms = at_ms - at_ms % STEP_MS
        if self._noted.get(token_id) != coarse_ms:
            self._noted[token_id] = coarse_ms
            self._is_changed = True

    def times(self) -> dict[str, int]:
        return self._read() | self._noted

    def flush(self) -> None:
        if not self._is_changed:
            return
        self._is_changed = False  # This comes before the copy: a time that is noted meanwhile is written the next time.
        with self._file.locked() as replace:
            replace(msgspec.json.encode(self.times(), order="sorted"))

    def _read(self) -> dict[str, int]:
        try:
            found = self._file.read()
            return {} if found is None else _decoder.decode(found.data)
        except (PalyraError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
