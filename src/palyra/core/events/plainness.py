"""Finds the fields that decide whether plain encoding writes a record canonically.

Does not own: what is canonical (core.canonical).
A record of a plain type always qualifies. In other types only fields that may hold a float or free-form JSON need a
check. They are few, and mostly short or null. Walking the whole record was the larger half of encoding it.
"""

from collections.abc import Callable
from typing import Any

from msgspec import inspect

from palyra.core.canonical import DEPTH_MAX, is_plain
from palyra.core.events.base import EventData

Check = Callable[[Any, int], bool]


def plainness_of(data_type: type[EventData]) -> Callable[[EventData], bool]:
    """Returns a function that tells whether plain encoding gives the canonical bytes of a record of this type."""
    check = _check_of(inspect.type_info(data_type))
    return lambda data: check is None or check(data, DEPTH_MAX)


def _check_of(kind: inspect.Type) -> Check | None:
    """Returns None if values of this type are always plain."""
    match kind:
        case inspect.FloatType() | inspect.AnyType() | inspect.DictType():
            return is_plain
        case inspect.StructType(fields=fields):
            return _check_of_struct([(field.name, check) for field in fields if (check := _check_of(field.type))])
        case inspect.VarTupleType(item_type=item_type) | inspect.ListType(item_type=item_type):
            return _check_of_items(_check_of(item_type))
        case inspect.UnionType(types=types):
            return _check_of_union([check for member in types if (check := _check_of(member))])
        case _:
            return None


def _check_of_struct(checks: list[tuple[str, Check]]) -> Check | None:
    if not checks:
        return None
    return lambda record, depth_left: all(check(getattr(record, name), depth_left - 1) for name, check in checks)


def _check_of_items(check: Check | None) -> Check | None:
    if check is None:
        return None
    return lambda items, depth_left: all(check(item, depth_left - 1) for item in items)


def _check_of_union(checks: list[Check]) -> Check | None:
    """Returns the one check that is needed (`float | None`, `Usage | None`); a null never needs one."""
    if not checks:
        return None
    check = checks[0] if len(set(checks)) == 1 else _never
    return lambda value, depth_left: value is None or check(value, depth_left)


def _never(value: object, depth_left: int) -> bool:
    """Stands for a union whose members need different checks: the whole record is walked then."""
    return False
