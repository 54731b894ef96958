"""The tables' notation.

    api NAME KEY VERSIONS [flexible N+]
      request
        FIELD TYPE [VERSIONS] [=DEFAULT] [tagN] [~], FIELD TYPE ...
        FIELD [STRUCT]
          FIELD TYPE
      response
        ...

    record NAME VERSIONS [flexible N+]
      FIELD ...

A record is what coordinators keep in a topic of their own, or members exchange. TYPE is `i8 i16 u16 i32 i64 f64 bool
uuid str bytes records`, a struct's name, or one of these in brackets: an array. `?` after the type: may be null;
`?7+`: from version 7. VERSIONS `3+`, `0-2` or `5`; without it the field is there whenever its struct is. A field
without `=` has 0, false, "", an empty array or the zero id as its default; records have null. `~`: a version without
the field drops the value silently. A struct's fields follow it, indented; a struct named again in the same message has
the same fields.
"""

import re
from collections.abc import Iterator
from typing import Final

from klamm.wire.schema import NEVER, NO_API, Field, Kind, Message, Struct, Versions

_KINDS: Final = {k.value: k for k in Kind}
_TYPE: Final = re.compile(r"(\[?)(\w+)\]?(?:(\?)(?:(\d+)\+)?)?")
_VERSIONS: Final = re.compile(r"(\d+)(\+|-(\d+))?")


def parse(table: str) -> Iterator[Message]:
    """Parse the messages and records of a table. Raises ValueError naming the malformed line."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in table.splitlines() if line.strip()]
    at = 0
    while at < len(lines):
        words = lines[at][1].split()
        if words[0] == "record":
            versions, first_flexible = _versions_of(words[2:])
            body = Struct(words[1])
            at = _Body(lines, versions, {}).read(at + 1, lines[at][0], body)
            yield Message(body.name, body.name, NO_API, False, versions, first_flexible, body)
            continue
        if words[0] != "api":
            text = f"{lines[at][1]!r} is not `api NAME KEY VERSIONS` or `record NAME VERSIONS`"
            raise ValueError(f"message table: {text}")
        name, key = words[1], int(words[2])
        versions, first_flexible = _versions_of(words[3:])
        at += 1
        for side in ("request", "response"):
            if at >= len(lines) or lines[at][1] != side:
                got = repr(lines[at][1]) if at < len(lines) else "the end of the table"
                raise ValueError(f"message table of {name}: {got} comes where `{side}` must follow")
            body = Struct(name + side.capitalize())
            at = _Body(lines, versions, {}).read(at + 1, lines[at][0], body)
            yield Message(body.name, name, key, side == "request", versions, first_flexible, body)


def _versions_of(words: list[str]) -> tuple[Versions, int]:
    """Parse `VERSIONS [flexible N+]`: the versions, and the first flexible one."""
    first_flexible = parse_versions(words[2], NEVER).first if len(words) > 1 else NEVER
    return parse_versions(words[0], NEVER - 1), first_flexible


def parse_versions(text: str, last: int) -> Versions:
    """Versions such as `3`, `3+` or `0-2`; `last` ends an open range."""
    match = _VERSIONS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a range of versions; write 3, 3+ or 0-2")
    first = int(match[1])
    if match[2] is None:
        return Versions(first, first)
    return Versions(first, int(match[3]) if match[3] else last)


class _Body:
    """Parses the field lines of one message."""

    def __init__(self, lines: list[tuple[int, str]], versions: Versions, structs: dict[str, Struct]) -> None:
        self._lines = lines
        self._versions = versions
        self._structs = structs

    def read(self, at: int, indent: int, into: Struct) -> int:
        """Parse all lines deeper than `indent` into the struct; returns the number of the next line."""
        while at < len(self._lines) and self._lines[at][0] > indent:
            depth, line = self._lines[at]
            at += 1
            for text in line.split(", "):
                into.fields.append(self._field(text))
            last = into.fields[-1].element
            if at < len(self._lines) and self._lines[at][0] > depth:
                if not isinstance(last, Struct) or last.fields:
                    raise ValueError(f"message table: {line!r} has fields below it, but its type is not a new struct")
                at = self.read(at, depth, last)
        return at

    def _field(self, text: str) -> Field:
        """Parse one field definition."""
        name, type_text, *rest = text.split()
        match = _TYPE.fullmatch(type_text)
        if match is None:
            raise ValueError(f"message table: the type in {text!r} is not valid; write for example `topics [Topic]`")
        kind = _KINDS.get(match[2])
        element = self._structs.setdefault(match[2], Struct(match[2])) if kind is None else kind
        nullable_from = NEVER if match[3] is None else int(match[4] or 0)
        versions, tag, ignorable = self._versions, None, False
        default: int | bool | str | None = None
        null_default = kind is Kind.RECORDS and not match[1]
        for word in rest:
            if word == "~":
                ignorable = True
            elif word.startswith("tag"):
                tag = int(word[3:])
            elif word == "=null":
                null_default = True
            elif word.startswith("="):
                default = word == "=true" if kind is Kind.BOOL else int(word[1:])
            else:
                versions = parse_versions(word, self._versions.last)
        return Field(name, element, bool(match[1]), versions, nullable_from, default, null_default, tag, ignorable)
