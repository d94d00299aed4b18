"""The base of all event data. Owns: how the record of one event type behaves. Not: any one type."""

from typing import Annotated, ClassVar

import msgspec

from palyra.core.canonical import INTEGER_MAX

Count = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
JsonObject = dict[str, object]

VERSION_KEY = "v"


class EventData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an event says beyond its header.

    A field without a default is always written; one with a default is left out while it has it. So a later release
    may add a field with a default and old bytes still decode, to the value they meant. A change that is more than
    that raises VERSION, which is then written as `v`, and adds an upgrade to the codec.
    """

    TYPE: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    # Whether no field can hold a float or free-form JSON, so that plain encoding is canonical. A test proves each.
    IS_PLAIN: ClassVar[bool] = True


class ErasedData(EventData, frozen=True, kw_only=True):
    """Stands where the data of any type was, once it has been erased. Chain and seq stay."""

    TYPE: ClassVar[str] = ""
    erased: str
