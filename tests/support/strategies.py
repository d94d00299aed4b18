"""Hypothesis strategies for our records, made from their own types, so that a new field is covered when it is added."""

from typing import cast

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from palyra.core.canonical import INTEGER_MAX
from palyra.core.events import DATA_TYPES, EventData

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
integers = st.integers(-INTEGER_MAX, INTEGER_MAX)
# Integral floats beyond 2**53 read back as integers that no reader keeps exactly, so our JSON has none.
floats = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda f: not (f.is_integer() and INTEGER_MAX < abs(f) < 1e21)
)
json_values = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)


def records_of(record_type: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    shape = cast(inspect.StructType, inspect.type_info(record_type))
    return st.builds(record_type, **{field.name: _values_of(field.type) for field in shape.fields})


def event_data() -> st.SearchStrategy[EventData]:
    return st.one_of(*(cast(st.SearchStrategy[EventData], records_of(data_type)) for data_type in DATA_TYPES.values()))


def _values_of(shape: inspect.Type) -> st.SearchStrategy[object]:
    match shape:
        case inspect.UnionType(types=types):
            return st.one_of(*(_values_of(member) for member in types))
        case inspect.StructType(cls=cls):
            return records_of(cls)
        case inspect.EnumType(cls=cls):
            return st.sampled_from(cls)
        case inspect.VarTupleType(item_type=item):
            return st.lists(_values_of(item), max_size=3).map(tuple)
        case inspect.IntType():
            return st.integers(0, INTEGER_MAX)
        case inspect.DictType():
            return json_objects
        case _:
            return _SCALARS[type(shape)]


_SCALARS: dict[type[inspect.Type], st.SearchStrategy[object]] = {
    inspect.StrType: texts,
    inspect.BoolType: st.booleans(),
    inspect.NoneType: st.none(),
    inspect.FloatType: floats,
}
