"""Reads what the fields of event records declare to hold.

Owns: finding every declared string of a record, nested records included, and a function that rewrites them.
Does not own: the words of a declaration (base), redaction (engine.session.event_redactor).
Invariants: a field that can hold a string and declares nothing raises Undeclared. A record whose strings all stay
is the same object afterwards.
"""

from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from palyra.core.events.base import Holds

Visit = Callable[[Holds, Any], Any]
Rewrite = Callable[[Any, Visit], Any]

_NUMBERS = (int, float, bool, NoneType)


class Undeclared(TypeError):
    """A field holds strings, or what may hold them, and does not say whether they are text."""


def rewriter_of(record_type: type[msgspec.Struct]) -> Rewrite | None:
    """Returns a function that passes each value that is no identifier to a visitor; None if the record has none."""
    hints = get_type_hints(record_type, include_extras=True)
    parts = [
        (name, rewrite)
        for name in record_type.__struct_fields__
        if (rewrite := _rewriter(hints[name], f"{record_type.__name__}.{name}"))
    ]
    return _of_fields(parts) if parts else None


def _rewriter(hint: Any, place: str) -> Rewrite | None:
    origin = get_origin(hint)
    if origin is Annotated:
        return _of_annotated(hint, place)
    if origin is tuple:
        return _of_items(hint, place)
    if origin is Union or origin is UnionType:
        return _of_union(hint, place)
    if isinstance(hint, NewType):
        # Every NewType of core.ids is an id.
        return None
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return rewriter_of(hint)
    if hint in _NUMBERS or (isinstance(hint, type) and issubclass(hint, Enum)):
        return None
    raise Undeclared(f"{place} is {hint}: declare it as Text, Identifier or another word of core.events.base")


def _of_annotated(hint: Any, place: str) -> Rewrite | None:
    declared = [word for word in hint.__metadata__ if isinstance(word, Holds)]
    if not declared:
        return _rewriter(hint.__origin__, place)
    holds = declared[0]
    return None if holds is Holds.IDENTIFIER else lambda value, visit: visit(holds, value)


def _of_items(hint: Any, place: str) -> Rewrite | None:
    item_hint, *rest = get_args(hint)
    if rest != [...]:
        raise Undeclared(f"{place} is {hint}: only tuples of one kind of item can be read")
    rewrite = _rewriter(item_hint, place)
    if rewrite is None:
        return None

    def rewrite_items(items: tuple[Any, ...], visit: Visit) -> tuple[Any, ...]:
        after = tuple([rewrite(item, visit) for item in items])
        return items if all(new is old for new, old in zip(after, items, strict=True)) else after

    return rewrite_items


def _of_union(hint: Any, place: str) -> Rewrite | None:
    """Reads `X | None`, or several members with the same declaration: the visitor tells a string from an object."""
    rewriters = [rewrite for member in get_args(hint) if (rewrite := _rewriter(member, place))]
    declared = {word for member in get_args(hint) for word in getattr(member, "__metadata__", ())}
    if len(rewriters) > 1 and declared != {Holds.TEXT}:
        raise Undeclared(f"{place} is {hint}: its members declare different things")
    return rewriters[0] if rewriters else None


def _of_fields(parts: list[tuple[str, Rewrite]]) -> Rewrite:
    def rewrite_fields(record: msgspec.Struct, visit: Visit) -> msgspec.Struct:
        changes = {}
        for name, rewrite in parts:
            before = getattr(record, name)
            if before:
                after = rewrite(before, visit)
                if after is not before:
                    changes[name] = after
        return replace(record, **changes) if changes else record

    return rewrite_fields
