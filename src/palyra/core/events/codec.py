"""The bytes of event data: canonical encoding, decoding with upgrades, and the size cap.

Does not own: the hash chain (core.chain).
Invariants: encoded bytes were decoded again before they are returned, so no tape holds bytes that cannot be read. Data
of a newer version than this release knows is refused, never guessed at.
"""

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from palyra.core.canonical import canonical_bytes, encode_plain_record
from palyra.core.errors import Corrupt, Invalid
from palyra.core.events import DATA_TYPES, Data
from palyra.core.events.base import VERSION_KEY, ErasedData, EventData, JsonObject
from palyra.core.events.plainness import plainness_of

DATA_BYTES_MAX = 256 * 1024  # Larger bodies go to artifacts, so that a page of the tape stays a small response.

Upgrade = Callable[[JsonObject], JsonObject]


class Codec:
    """Encodes and decodes a closed set of data types. `upgrades[(type, n)]` turns version n into n + 1."""

    def __init__(self, data_types: Mapping[str, type[EventData]], upgrades: Mapping[tuple[str, int], Upgrade]) -> None:
        self._data_types = data_types
        self._upgrades = upgrades
        self._plainness = {name: plainness_of(data_type) for name, data_type in data_types.items()}
        self._decoders = {name: msgspec.json.Decoder(data_type) for name, data_type in data_types.items()}

    def encode(self, data: EventData) -> bytes:
        encoded = self._canonical(data)
        if len(encoded) > DATA_BYTES_MAX:
            raise Invalid("event_too_large", f"{data.TYPE} takes {len(encoded)} bytes, the most is {DATA_BYTES_MAX}")
        try:
            self.decode(data.TYPE, encoded)
        except Corrupt as cause:
            raise Invalid("event_invalid", cause.message) from cause
        return encoded

    def decode(self, type_name: str, encoded: bytes) -> EventData:
        decoder = self._decoders.get(type_name)
        if decoder is None:
            raise Corrupt("event_type_unknown", f"event type {type_name!r} is not known to this release")
        try:
            return decoder.decode(encoded)
        except msgspec.DecodeError as cause:
            return self._decode_otherwise(type_name, encoded, cause)
        except (UnicodeDecodeError, RecursionError) as cause:
            raise Corrupt("event_data_invalid", f"data of a {type_name} event is not JSON text: {cause}") from cause

    def _canonical(self, data: EventData) -> bytes:
        if data.VERSION > 1:
            return canonical_bytes({**msgspec.to_builtins(data), VERSION_KEY: data.VERSION})
        is_plain = data.IS_PLAIN or self._plainness[data.TYPE](data)
        return encode_plain_record(data) if is_plain else canonical_bytes(data)

    def _decode_otherwise(self, type_name: str, encoded: bytes, cause: msgspec.DecodeError) -> EventData:
        """Tries erased data and other versions, which do not fit the type's own form."""
        try:
            members = msgspec.json.decode(encoded, type=dict[str, object])
            if set(members) == {"erased"}:
                return msgspec.convert(members, ErasedData)
            if VERSION_KEY in members or self._data_types[type_name].VERSION > 1:
                return self._decode_versioned(type_name, members)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as inner:
            raise Corrupt("event_data_invalid", f"data of a {type_name} event: {inner}") from inner
        raise Corrupt("event_data_invalid", f"data of a {type_name} event: {cause}") from cause

    def _decode_versioned(self, type_name: str, members: JsonObject) -> EventData:
        data_type = self._data_types[type_name]
        version = members.pop(VERSION_KEY, 1)
        if not isinstance(version, int) or not 1 <= version <= data_type.VERSION:
            raise Corrupt("event_version_unknown", f"a {type_name} event of version {version} needs a newer release")
        for older in range(version, data_type.VERSION):
            members = self._upgrades[type_name, older](members)
        return msgspec.convert(members, data_type)


_codec = Codec(DATA_TYPES, {})


def encode_data(data: Data) -> bytes:
    return _codec.encode(data)


def decode_data(type_name: str, encoded: bytes) -> Data | ErasedData:
    return cast(Data | ErasedData, _codec.decode(type_name, encoded))


def encode_erased(reason: str) -> bytes:
    return encode_plain_record(ErasedData(erased=reason))
