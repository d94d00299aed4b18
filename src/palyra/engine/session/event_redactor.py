"""Redacts events before anything is decided or stored (L5).

Owns: the one place where secrets are removed from the text of a draft, and sealing those secrets for its run.
Does not own: which fields hold text (declared at the fields, core.events), what a secret is (core.redaction).
Invariant: digests, effect ids and attestations cover the redacted form, because every draft passes here before
`decide` sees it.
"""

import asyncio
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from palyra.core.events import DATA_TYPES, Data, Draft
from palyra.core.events.base import Holds, JsonObject
from palyra.core.events.declarations import Rewrite, rewriter_of
from palyra.core.events.run import MessageUser
from palyra.core.ids import RunId
from palyra.core.redaction import Json, Redactor, Secret
from palyra.core.redaction.markers import map_strings
from palyra.core.typed import pieces_within
from palyra.core.writes import SealSecret, Write
from palyra.ports.sealer import Sealer

# Only types with text are listed. The declarations are read once.
_REWRITERS = {
    data_type: rewrite for data_type in DATA_TYPES.values() if (rewrite := rewriter_of(data_type)) is not None
}
_OPAQUE_KEYS = frozenset({"signature", "encrypted_content", "data", "extra_content"})


SHORT_BYTES_MAX = 1_024  # At the measured worst of 30 µs a character (random words) this takes 30 ms.


class EventRedactor:
    def __init__(self, redactor: Redactor, sealer: Sealer) -> None:
        self._redactor = redactor
        self._sealer = sealer

    async def clean_off_loop(self, draft: Draft) -> tuple[Draft, tuple[Write, ...]]:
        """Does what `clean` does. A long draft is scanned in a thread, because scanning it takes up to a second."""
        if type(draft.data) not in _REWRITERS or _is_short(draft.data):
            return self.clean(draft)
        return await asyncio.to_thread(self.clean, draft)

    def clean(self, draft: Draft) -> tuple[Draft, tuple[Write, ...]]:
        """Returns the draft without secrets, and the sealed values, which only the executor of its run gets."""
        rewrite = _REWRITERS.get(type(draft.data))
        if rewrite is None:
            return draft, ()
        redactor = self._redactor.for_run(draft.run_id) if draft.run_id is not None else self._redactor
        data, secrets = _Cleaner(redactor).clean(rewrite, draft.data)
        if data is draft.data:
            return draft, ()
        if isinstance(data, MessageUser) and data.typed is not None:
            # A secret that only the whole message shows to be one must not stand in its typed words.
            data = replace(data, typed=pieces_within(data.text, data.typed))
        return replace(draft, data=data), self._seal(draft.run_id, secrets)

    def clean_value(self, value: Json) -> Json:
        """Returns a JSON value without secrets, for a body that is stored beside an event."""
        return self._redactor.value(value).value

    def _seal(self, run_id: RunId | None, secrets: list[Secret]) -> tuple[Write, ...]:
        if run_id is None:
            return ()
        by_id = {secret.id: secret for secret in secrets}
        context = run_id.encode()
        return tuple(
            SealSecret(run_id, secret.id, self._sealer.seal(secret.value.encode(), context))
            for secret in by_id.values()
        )


class _Cleaner:
    """Cleans one record, with the redactor of its run."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def clean(self, rewrite: Rewrite, data: Data) -> tuple[Data, list[Secret]]:
        found: list[Secret] = []
        return cast(Data, rewrite(data, lambda holds, value: self._visit(holds, value, found))), found

    def _visit(self, holds: Holds, value: Any, found: list[Secret]) -> Any:
        """Returns the value without secrets, or the same object if it has none."""
        if holds is Holds.PROVIDER_STATE:
            return None if self._is_telling(value) else value
        if isinstance(value, str):
            return self._text(value, found)
        if holds is Holds.SCHEMA:
            known = len(found)
            changed = map_strings(value, lambda text: self._text(text, found))
            return changed if len(found) > known else value
        whole = self._redactor.value(value)
        found += whole.secrets
        return whole.value if whole.secrets else value

    def _text(self, text: str, found: list[Secret]) -> str:
        redacted = self._redactor.text(text)
        found += redacted.secrets
        return redacted.text

    def _is_telling(self, state: JsonObject) -> bool:
        """A provider's own state is sent back unchanged or not at all: a marker in it would break its signature.

        Its opaque parts (signatures, encrypted reasoning) look like secrets and are none of ours.
        """
        whole = msgspec.json.encode(state).decode()
        return self._redactor.knows(whole) or bool(self._redactor.value(cast(Json, _without_opaque(state))).secrets)


def _is_short(data: Data) -> bool:
    """Measures a record by its JSON, which is never shorter than its text."""
    try:
        return len(msgspec.json.encode(data)) <= SHORT_BYTES_MAX
    except ValueError:  # Half a pair of surrogates, which is no text that could be stored either.
        return False


def _without_opaque(value: object) -> object:
    match value:
        case dict():
            return {key: _without_opaque(member) for key, member in value.items() if key not in _OPAQUE_KEYS}
        case list() | tuple():
            return [_without_opaque(member) for member in value]
        case _:
            return value
