"""Sample records of event data: a record of a given type with one text wherever a string can be."""

from typing import Any

from msgspec import inspect

from palyra.core.events import EventData


def sample_of(data_type: type[EventData], text: str) -> EventData:
    """Sets every field, gives every tuple two items, and makes every string `text`."""
    sample = _value(inspect.type_info(data_type), text)
    assert isinstance(sample, data_type)
    return sample


def _value(kind: inspect.Type, text: str) -> Any:
    match kind:
        case inspect.StructType(cls=record_type, fields=fields):
            return record_type(**{field.name: _value(field.type, text) for field in fields})
        case inspect.VarTupleType(item_type=item_type):
            return (_value(item_type, text),) * 2
        case inspect.UnionType(types=types):
            return _value(next(member for member in types if not isinstance(member, inspect.NoneType)), text)
        case inspect.EnumType(cls=enum_type):
            return next(iter(enum_type))
        case inspect.StrType():
            return text
        case inspect.DictType():
            return {"member": {"list": [text, 1, None]}}
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
        case _:
            raise AssertionError(f"no sample of {kind}")
