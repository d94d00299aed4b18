"""Declarations: every field of an event record that can hold a string says what it holds."""

from typing import Annotated, Any

import msgspec
import pytest

from palyra.core.events import DATA_TYPES, EventData
from palyra.core.events.base import Count, ErasedData, Holds, Identifier, JsonObject, ProviderState, Text, TextObject
from palyra.core.events.declarations import Undeclared, rewriter_of
from palyra.core.ids import RunId


@pytest.mark.parametrize("data_type", [*DATA_TYPES.values(), ErasedData], ids=lambda data_type: data_type.__name__)
def test_every_field_of_an_event_declares_what_it_holds(data_type: type[EventData]) -> None:
    rewriter_of(data_type)  # Raises Undeclared, with the name of the field.


@pytest.mark.parametrize(
    "bare",
    [
        str,
        str | None,
        tuple[str, ...],
        tuple[tuple[str, ...], ...],
        tuple[Text, Text],
        dict[str, int],
        JsonObject,
        JsonObject | None,
        Text | str,
        Text | ProviderState,
        bytes,
        object,
        Any,
        list[Text],
        Annotated[str, msgspec.Meta(max_length=3)],
        msgspec.defstruct("Inner", [("inner", str)]),
    ],
    ids=str,
)
def test_a_field_that_declares_nothing_is_refused_by_name(bare: Any) -> None:
    record_type = msgspec.defstruct("Sample", [("sample", bare)], namespace={"__module__": __name__})
    with pytest.raises(Undeclared, match=r"Sample\.sample|Inner\.inner"):
        rewriter_of(record_type)


class _Inner(msgspec.Struct, frozen=True):
    name: Text
    key: Identifier


class _Outer(msgspec.Struct, frozen=True, kw_only=True):
    text: Text
    either: TextObject | Text
    inner: tuple[_Inner, ...] = ()
    state: ProviderState | None = None
    words: tuple[tuple[Text, ...], ...] = ()
    run_id: RunId = RunId("run")
    key: Identifier = "key"
    count: Count = 1


class _Plain(msgspec.Struct, frozen=True):
    run_id: RunId
    keys: tuple[Identifier, ...]


def test_a_rewriter_visits_each_declared_value_and_no_identifier() -> None:
    rewrite = rewriter_of(_Outer)
    assert rewrite is not None
    record = _Outer(text="a", either={"b": 1}, inner=(_Inner("c", "k"),), state={"d": 2}, words=(("e", ""), ("f",)))
    seen: list[tuple[Holds, object]] = []

    def visit(holds: Holds, value: object) -> object:
        seen.append((holds, value))
        return value.upper() if isinstance(value, str) else value

    changed = rewrite(record, visit)
    told = [value for holds, value in seen if holds is Holds.TEXT]
    assert told == ["a", {"b": 1}, "c", "e", "", "f"]
    assert (Holds.PROVIDER_STATE, {"d": 2}) in seen
    assert changed == msgspec.structs.replace(record, text="A", inner=(_Inner("C", "k"),), words=(("E", ""), ("F",)))


def test_a_record_that_stays_as_it_is_is_the_same_object() -> None:
    rewrite = rewriter_of(_Outer)
    assert rewrite is not None
    record = _Outer(text="a", either="b", inner=(_Inner("c", "k"),))
    assert rewrite(record, lambda _, value: value) is record


def test_a_record_of_identifiers_and_numbers_needs_no_rewriter() -> None:
    assert rewriter_of(_Plain) is None
