"""The base class of all event data, and the words with which a field declares what it holds.

Does not own: any one type, nor what is done with a declaration (declarations, engine.session.event_redactor).
Invariant: a field of an event record that can hold a string says whether it is text. A test refuses one that does not.
"""

from enum import Enum
from typing import Annotated, ClassVar

import msgspec

from palyra.core.canonical import INTEGER_MAX


class Holds(Enum):
    """What a field's strings are, and so what redaction does with them before they are stored.

    TEXT is redacted. IDENTIFIER is looked up or compared as it is, and never changed: ids, hashes, names, paths, terms
    of a grant. SCHEMA is redacted string by string, because a property named `token` has no token as its value there.
    PROVIDER_STATE goes back to its provider as it came, or is dropped whole.
    """

    TEXT = "text"
    IDENTIFIER = "identifier"
    SCHEMA = "schema"
    PROVIDER_STATE = "provider_state"


JsonObject = dict[str, object]

# The ids of core.ids are identifiers by their own type.
Text = Annotated[str, Holds.TEXT]
TextObject = Annotated[JsonObject, Holds.TEXT]
Identifier = Annotated[str, Holds.IDENTIFIER]
JsonSchema = Annotated[JsonObject, Holds.SCHEMA]
ProviderState = Annotated[JsonObject, Holds.PROVIDER_STATE]
Count = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]

VERSION_KEY = "v"


class EventData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of an event beyond its header.

    A field without a default is always written. A field that equals its default is left out. So a later release may add
    a field with a default, and old bytes still decode to the value they meant. Any larger change raises VERSION, which
    is then written as `v`, and adds an upgrade to the codec.
    """

    TYPE: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    # Whether no field can hold a float or free-form JSON, so that plain encoding is canonical. A test proves each.
    IS_PLAIN: ClassVar[bool] = True


class ErasedData(EventData, frozen=True, kw_only=True):
    """Takes the place of any type's data once that data has been erased. Chain and seq stay."""

    TYPE: ClassVar[str] = ""
    erased: Text
