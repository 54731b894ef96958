"""Prints `messages.pyi`, which shows every message's fields to mypy and editors.

python -m klamm.wire.stubs > src/klamm/wire/messages.pyi
"""

from klamm.wire.classes import MESSAGES, RECORDS
from klamm.wire.schema import Field, Kind, Struct

_TYPES = {
    Kind.F64: "float",
    Kind.BOOL: "bool",
    Kind.UUID: "UUID",
    Kind.STR: "str",
    Kind.BYTES: "bytes",
    Kind.RECORDS: "bytes | memoryview | None",
}
_HEAD = '''"""Generated from the tables by `python -m klamm.wire.stubs`; do not edit."""

from typing import ClassVar, Self
from uuid import UUID

from klamm.wire.codec import Buffer, WireMessage, WireStruct
'''


def stub_text() -> str:
    """The text of the generated stub file for all message classes."""
    shown = [_class(s, s is m.body) for m in (*MESSAGES.values(), *RECORDS.values()) for s in m.structs()]
    return "\n".join([_HEAD, *shown])


def _class(struct: Struct, is_body: bool) -> str:
    """The stub text of one class."""
    lines = [f"class {struct.name}({'WireMessage' if is_body else 'WireStruct'}):"]
    if is_body:
        lines.append("    API_KEY: ClassVar[int]")
    lines += [f"    {f.name}: {_type(f)} = ..." for f in struct.fields]
    if is_body:
        lines += ["    @classmethod", "    def decode(cls, buffer: Buffer, version: int, offset: int = 0) -> Self: ..."]
    return "\n".join(lines) + "\n"


def _type(field: Field) -> str:
    """The type annotation of a field, as text."""
    one = field.element.name if isinstance(field.element, Struct) else _TYPES.get(field.element, "int")
    if field.is_array:
        one = f"list[{one}]" if isinstance(field.element, Struct) else f"tuple[{one}, ...]"
    return f"{one} | None" if field.is_nullable_ever and field.element is not Kind.RECORDS else one


if __name__ == "__main__":
    print(stub_text(), end="")
