"""The facts of one message as values: what a table row means."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

NEVER: Final = 1 << 15
"""A version no message reaches."""
NO_API: Final = -1
"""The api key of a record, which is no request and no response."""


class Kind(StrEnum):
    """Primitive types by the name the tables use."""

    I8 = "i8"
    I16 = "i16"
    U16 = "u16"
    I32 = "i32"
    I64 = "i64"
    F64 = "f64"
    BOOL = "bool"
    UUID = "uuid"
    STR = "str"
    BYTES = "bytes"
    RECORDS = "records"


FIXED: Final = {
    Kind.I8: ("b", 1),
    Kind.I16: ("h", 2),
    Kind.U16: ("H", 2),
    Kind.I32: ("i", 4),
    Kind.I64: ("q", 8),
    Kind.F64: ("d", 8),
    Kind.BOOL: ("?", 1),
    Kind.UUID: ("16s", 16),
}
"""Kinds of one size: their `struct` character and their bytes."""


class Versions(NamedTuple):
    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct; `element` is a primitive kind or a struct, held once or as an array."""

    name: str
    element: "Kind | Struct"
    is_array: bool
    versions: Versions
    nullable_from: int = NEVER
    default: int | bool | str | None = None
    null_default: bool = False
    tag: int | None = None
    ignorable: bool = False

    def is_nullable(self, version: int) -> bool:
        """Whether the field may be null in this version."""
        return version >= self.nullable_from

    @property
    def is_nullable_ever(self) -> bool:
        """Whether the field may be null in any version."""
        return self.nullable_from < NEVER


@dataclass(slots=True, eq=False)
class Struct:
    """A struct by Kafka's name; its fields in wire order."""

    name: str
    fields: list[Field] = field(default_factory=list, repr=False)

    def in_order(self, version: int) -> list[Field]:
        """The fields of this version in wire order, without tagged ones."""
        return [f for f in self.fields if f.tag is None and version in f.versions]

    def tagged(self, version: int) -> list[tuple[int, Field]]:
        """The tagged fields of this version with their tags, in ascending order."""
        return sorted((f.tag, f) for f in self.fields if f.tag is not None and version in f.versions)

    def is_flat(self, version: int) -> bool:
        """Whether all fields are numbers or arrays of numbers, as in partition states."""
        return not self.tagged(version) and all(
            f.element in FIXED and f.element is not Kind.UUID and not (f.is_array and f.is_nullable(version))
            for f in self.in_order(version)
        )

    def absent(self, version: int) -> list[Field]:
        """The fields that this version does not have."""
        return [f for f in self.fields if version not in f.versions]


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response body, or a record's. `first_flexible` is NEVER where no version is flexible."""

    name: str
    api_name: str
    api_key: int
    is_request: bool
    versions: Versions
    first_flexible: int
    body: Struct

    def is_flexible(self, version: int) -> bool:
        """Whether this version is flexible: compact lengths and tagged fields."""
        return version >= self.first_flexible

    def structs(self) -> Iterator[Struct]:
        """Every struct once, inner before outer, the body last."""
        seen: dict[str, Struct] = {}
        _collect(self.body, seen)
        yield from seen.values()


def _collect(struct: Struct, seen: dict[str, Struct]) -> None:
    """Add the struct and, before it, its inner structs to `seen`."""
    for f in struct.fields:
        if isinstance(f.element, Struct):
            _collect(f.element, seen)
    seen.setdefault(struct.name, struct)
