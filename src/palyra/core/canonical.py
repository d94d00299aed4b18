"""Canonical JSON (RFC 8785, JCS): the one byte form of a value that hashes are taken over.

Does not own: what is hashed.
Most values hold no float and only ASCII keys. For those msgspec's sorted encoding already is JCS (same escapes, same
order), and the walk below merely proves it. Other values go through the encoder written here. It follows the RFC's
number form (ECMAScript) and key order (UTF-16 code units).
Invariant: a value that cannot be read back as the same value is refused. NaN, infinities, integers beyond 2**53 - 1
and lone surrogates are such values.
"""

import math

import msgspec

from palyra.core.errors import Invalid

INTEGER_MAX = 2**53 - 1  # The largest integer that every JSON reader keeps exactly.
INTEGER_FORM_LIMIT = 1e21  # Below it ECMAScript writes an integral number without an exponent, so it reads back as one.
PLAIN_FRACTION_MIN = 1e-5  # Below it msgspec turns to an exponent earlier than ECMAScript does.
PLAIN_FRACTION_LIMIT = 1e15  # Above it a fraction has hardly a digit left; infinity lies there too.
DEPTH_MAX = 64  # A person could not judge deeper arguments, and they exhaust a reader's stack.

_encoder = msgspec.json.Encoder(order="sorted")


def canonical_bytes(value: object) -> bytes:
    """Returns the JCS form of plain JSON data, or of a record made of such data."""
    plain = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
    try:
        if is_plain(plain, DEPTH_MAX):
            return _encoder.encode(plain)
        return _encode(plain).encode("utf-8")
    except UnicodeEncodeError as cause:
        raise Invalid("json_surrogate", "text holds a lone surrogate, which UTF-8 cannot carry") from cause


def encode_plain_record(record: msgspec.Struct) -> bytes:
    """Returns the same bytes as `canonical_bytes`, for a record type without floats and free-form values."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError as cause:
        raise Invalid("json_surrogate", "text holds a lone surrogate, which UTF-8 cannot carry") from cause


def is_plain(value: object, depth_left: int) -> bool:
    """Tells whether msgspec's encoding is canonical already; raises if no encoding would be."""
    kind = type(value)
    if kind is str or kind is bool or value is None:  # Nearly all values are of these kinds, so they are tried first.
        return True
    match value:
        case int():
            return _checked_integer(value)
        case float():
            return _is_plain_number(value)
        case dict():
            _require_depth(depth_left)
            # There is no short cut: the range and depth of every member must be checked.
            plain = [is_plain(member, depth_left - 1) for member in value.values()]
            return all(plain) and all([_checked_key(key).isascii() for key in value])
        case list() | tuple():
            _require_depth(depth_left)
            return all([is_plain(member, depth_left - 1) for member in value])
        case str() | bool():
            return True
        case _:
            raise Invalid("json_type", f"a {type(value).__name__} is not JSON data")


def _is_plain_number(value: float) -> bool:
    """Tells whether this is a fraction of ordinary size, which msgspec and ECMAScript write alike."""
    return PLAIN_FRACTION_MIN <= abs(value) < PLAIN_FRACTION_LIMIT and not value.is_integer()


def _checked_integer(value: int) -> bool:
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise Invalid("json_integer", "an integer beyond 2^53 - 1 loses digits in JSON; send it as a string")
    return True


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise Invalid("json_key", f"a {type(key).__name__} is not a JSON key")
    return key


def _require_depth(depth_left: int) -> None:
    if depth_left <= 0:
        raise Invalid("json_depth", f"JSON nested deeper than {DEPTH_MAX} levels")


def _encode(value: object) -> str:
    match value:
        case float():
            return _number(value)
        case dict():
            members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
            return "{" + ",".join(f"{_scalar(key)}:{_encode(member)}" for key, member in members) + "}"
        case list() | tuple():
            return "[" + ",".join(_encode(member) for member in value) + "]"
        case _:
            return _scalar(value)


def _scalar(value: object) -> str:
    return _encoder.encode(value).decode("utf-8")


def _number(value: float) -> str:
    """Writes a number as ECMAScript's Number::toString: the shortest digits that read back equal, laid out by size."""
    if not math.isfinite(value):
        raise Invalid("json_number", "JSON has no NaN or infinity")
    if value == 0:
        return "0"
    if value.is_integer() and abs(value) < INTEGER_FORM_LIMIT:
        _checked_integer(int(value))
    sign = "-" if value < 0 else ""
    mantissa, _, exponent_text = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    point = len(whole) - leading_zeros + int(exponent_text or 0)
    return sign + _laid_out(digits.rstrip("0"), point)


def _laid_out(digits: str, point: int) -> str:
    """Places the decimal point after the first `point` digits, in ECMAScript's choice of form."""
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    exponent = point - 1
    fraction = f".{digits[1:]}" if count > 1 else ""
    return f"{digits[0]}{fraction}e{'+' if exponent > 0 else '-'}{abs(exponent)}"
