"""Makes the message classes from the tables."""

from typing import Any, Final

import msgspec

from klamm.model.topic_ids import ZERO_ID
from klamm.wire.codec import Codec, WireMessage, WireStruct
from klamm.wire.notation import parse
from klamm.wire.schema import Field, Kind, Message, Struct
from klamm.wire.tables import RECORD_TABLES, TABLES

MESSAGES: Final[dict[str, Message]] = {m.name: m for table in TABLES for m in parse(table)}
"""Facts by message name."""
RECORDS: Final[dict[str, Message]] = {m.name: m for table in RECORD_TABLES for m in parse(table)}
"""Facts by the name of a record's key or value."""

_ZERO: Final[dict[Kind, object]] = {
    Kind.STR: "",
    Kind.BYTES: b"",
    Kind.RECORDS: None,
    Kind.BOOL: False,
    Kind.F64: 0.0,
    Kind.UUID: ZERO_ID,
}


def make_classes() -> dict[str, type[WireStruct]]:
    """Every class by its name, structs before the messages that hold them."""
    made: dict[str, type[WireStruct]] = {}
    for message in (*MESSAGES.values(), *RECORDS.values()):
        own: dict[str, type[WireStruct]] = {}
        for struct in message.structs():
            if struct.name in made:
                raise ValueError(f"message table of {message.name}: the struct name {struct.name} is in use; rename it")
            own[struct.name] = made[struct.name] = _make_class(struct, message, own)
    return made


def _make_class(struct: Struct, message: Message, inner: dict[str, type[WireStruct]]) -> type[WireStruct]:
    """The class of one struct, with its fields and defaults."""
    is_body = struct is message.body
    namespace: dict[str, Any] = {
        "ARRAYS": tuple(f.name for f in struct.fields if f.is_array and isinstance(f.element, Struct))
    }
    if is_body:
        namespace |= {"API_KEY": message.api_key, "CODEC": Codec(message, inner)}
    made: Any = msgspec.defstruct(
        struct.name,
        [(f.name, Any, _default(f, inner)) for f in struct.fields],
        bases=(WireMessage if is_body else WireStruct,),
        namespace=namespace,
        module="klamm.wire.messages",
        gc=False,
    )
    of_ours: type[WireStruct] = made
    return of_ours


def _default(field: Field, inner: dict[str, type[WireStruct]]) -> Any:
    """The default of a field in its class."""
    if field.null_default:
        return None
    if field.is_array:
        return [] if isinstance(field.element, Struct) else ()
    if isinstance(field.element, Struct):
        return msgspec.field(default_factory=inner[field.element.name])
    if field.default is not None:
        return field.default
    return _ZERO.get(field.element, 0)
