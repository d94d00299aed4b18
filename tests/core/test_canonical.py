"""Canonical bytes: RFC 8785's own examples, and equality with a plain reading of it."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.canonical import DEPTH_MAX, INTEGER_MAX, canonical_bytes
from palyra.core.errors import Invalid
from tests.support.strategies import floats, json_values


@pytest.mark.parametrize(
    ("bits", "written"),
    [
        # RFC 8785, appendix B.
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
    ],
)
def test_numbers_are_written_as_the_standard_says(bits: str, written: str) -> None:
    import struct

    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_bytes([number]) == f"[{written}]".encode()


def test_keys_are_ordered_by_utf16_code_units() -> None:
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    keys = list(json.loads(canonical_bytes(value)))
    assert keys == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_strings_are_escaped_no_more_than_needed() -> None:
    assert canonical_bytes('\u20ac$\x0f\nA\'B"\\\\"/\x7f') == '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/\x7f"'.encode()


@given(json_values)
def test_reading_back_and_writing_again_changes_nothing(value: object) -> None:
    written = canonical_bytes(value)
    assert json.loads(written) == value
    assert canonical_bytes(json.loads(written)) == written


@given(floats.filter(bool))
def test_shortest_digits_read_back_as_the_same_number(number: float) -> None:
    assert float(canonical_bytes([number])[1:-1]) == number


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)))
def test_the_order_keys_arrive_in_does_not_matter(members: dict[str, int]) -> None:
    assert canonical_bytes(dict(reversed(members.items()))) == canonical_bytes(members)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (math.nan, "json_number"),
        (math.inf, "json_number"),
        (INTEGER_MAX + 1, "json_integer"),
        (-INTEGER_MAX - 1, "json_integer"),
        (float(2**60), "json_integer"),
        ("\ud800", "json_surrogate"),
        ({"a": {1: 2}}, "json_key"),
        ({"a": b"bytes"}, "json_type"),
    ],
)
def test_what_could_not_be_read_back_is_refused(value: object, code: str) -> None:
    with pytest.raises(Invalid) as refusal:
        canonical_bytes([value])
    assert refusal.value.code == code


def test_depth_is_bounded() -> None:
    value: object = 1
    for _ in range(DEPTH_MAX):
        value = [value]
    canonical_bytes(value)
    with pytest.raises(Invalid, match="json_depth"):
        canonical_bytes([value])
