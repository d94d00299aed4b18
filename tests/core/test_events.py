"""Event data: encoding, decoding, versions, and the cap."""

from typing import ClassVar, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from palyra.core.canonical import canonical_bytes
from palyra.core.errors import Corrupt, Invalid
from palyra.core.events import DATA_TYPES, Data, EventData
from palyra.core.events.base import ErasedData, JsonObject
from palyra.core.events.codec import DATA_BYTES_MAX, Codec, decode_data, encode_data, encode_erased
from palyra.core.events.model import UsageRecorded
from palyra.core.events.run import MessageUser
from tests.support.strategies import event_data


@given(event_data())
def test_decoding_what_was_encoded_gives_it_back(data: EventData) -> None:
    encoded = encode_data(cast(Data, data))
    assert decode_data(data.TYPE, encoded) == data


@given(event_data())
def test_encoded_bytes_are_canonical(data: EventData) -> None:
    assert encode_data(cast(Data, data)) == canonical_bytes(msgspec.to_builtins(data))


@given(event_data(), st.binary(max_size=8), st.integers(0, 200))
def test_damaged_bytes_decode_to_corrupt_or_to_other_data_but_never_crash(
    data: EventData, patch: bytes, place: int
) -> None:
    encoded = bytearray(encode_data(cast(Data, data)))
    encoded[place : place + len(patch)] = patch
    try:
        decode_data(data.TYPE, bytes(encoded))
    except Corrupt as refusal:
        assert data.TYPE in refusal.message


@pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=lambda data_type: data_type.TYPE)
def test_plain_types_hold_no_float_and_no_free_form_value(data_type: type[EventData]) -> None:
    assert data_type.IS_PLAIN is _is_plain(inspect.type_info(data_type))


def test_every_type_of_the_union_has_its_own_name() -> None:
    assert len(DATA_TYPES) == 75
    assert all(name and name == data_type.TYPE for name, data_type in DATA_TYPES.items())


def test_data_over_the_cap_is_refused_with_its_size() -> None:
    room = DATA_BYTES_MAX - len(encode_data(MessageUser(text="")))
    encode_data(MessageUser(text="x" * room))
    with pytest.raises(Invalid, match="event_too_large"):
        encode_data(MessageUser(text="x" * (room + 1)))


def test_a_record_we_could_not_read_back_is_never_written() -> None:
    data = UsageRecorded(model="m", input_tokens=-1, output_tokens=0, cached_tokens=0, cost_usd=None)
    with pytest.raises(Invalid, match="event_invalid"):
        encode_data(data)


def test_erased_data_decodes_for_every_type() -> None:
    for type_name in DATA_TYPES:
        assert decode_data(type_name, encode_erased("forgotten")) == ErasedData(erased="forgotten")


def test_unknown_type_is_corrupt_not_a_crash() -> None:
    with pytest.raises(Corrupt, match="event_type_unknown"):
        decode_data("tool.dreamt", b"{}")


class _Greeting(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "test.greeting"
    VERSION: ClassVar[int] = 2
    words: tuple[str, ...]


def _split_words(members: JsonObject) -> JsonObject:
    return {"words": str(members["text"]).split()}


_versioned = Codec({_Greeting.TYPE: _Greeting}, {(_Greeting.TYPE, 1): _split_words})


def test_newer_version_is_written_with_its_number() -> None:
    assert _versioned.encode(_Greeting(words=("good", "day"))) == b'{"v":2,"words":["good","day"]}'


def test_older_version_is_upgraded_when_read() -> None:
    assert _versioned.decode(_Greeting.TYPE, b'{"text":"good day"}') == _Greeting(words=("good", "day"))


def test_version_beyond_this_release_is_refused() -> None:
    with pytest.raises(Corrupt, match="event_version_unknown"):
        _versioned.decode(_Greeting.TYPE, b'{"v":3,"words":[]}')


def _is_plain(shape: inspect.Type) -> bool:
    match shape:
        case inspect.FloatType() | inspect.AnyType() | inspect.DictType():
            return False
        case inspect.StructType(fields=fields):
            return all(_is_plain(field.type) for field in fields)
        case inspect.UnionType(types=types):
            return all(_is_plain(member) for member in types)
        case inspect.VarTupleType(item_type=item):
            return _is_plain(item)
        case _:
            return True
