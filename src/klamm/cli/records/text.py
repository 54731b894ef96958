r"""Delimiters and format strings, with kcat's escapes: `\n`, `\t`, `\x01`. Source: format.c, parse_delim of kcat."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from klamm.model.errors import UsageError
from klamm.wire.records import Record

_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.|$)", re.DOTALL)
_PLAIN: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", "%": "%"}
_NULL: Final = b"NULL"


def argument_bytes(text: str) -> bytes:
    """The bytes of an argument as they were given: in arguments Python keeps bytes that are not UTF-8 as surrogates."""
    return text.encode(errors="surrogateescape")


def unescape(option: str, text: str) -> bytes:
    """The bytes that a text with escapes stands for. Raises UsageError."""

    def replace(match: re.Match[str]) -> str:
        """Return the character that one escape sequence stands for."""
        code = match[1]
        if code.startswith("x") and len(code) > 1:
            return chr(int(code[1:], 16))
        if code not in _PLAIN:
            raise UsageError(
                rf"{option} {text!r}: unknown escape \{code}. Use \n, \r, \t, \0, \\ or \xNN with two hex digits."
            )
        return _PLAIN[code]

    pieces: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(text):
        pieces.append(argument_bytes(text[position : match.start()]))
        pieces.append(replace(match).encode("latin-1"))
        position = match.end()
    return b"".join(pieces) + argument_bytes(text[position:])


def parse_delimiter(option: str, text: str) -> bytes:
    """A delimiter of at least one byte. Raises UsageError."""
    delimiter = unescape(option, text)
    if not delimiter:
        raise UsageError(rf"{option} is empty: give at least one character, for example {option} '\t'.")
    return delimiter


class Printed(NamedTuple):
    """A record and where it is."""

    topic: str
    partition: int
    record: Record


Part = Callable[[Printed], bytes]


def _size(content: bytes | None) -> int:
    """The number of bytes of a key or payload; -1 for null."""
    return -1 if content is None else len(content)


def _shown(content: bytes | None, null: bytes) -> bytes:
    """The bytes to print for a key, payload or header value: its content, or the text `null` for one that is null."""
    return null if content is None else content


def _headers_text(record: Record, null: bytes) -> bytes:
    """The headers as `name=value`, separated by commas."""
    return b",".join(name.encode() + b"=" + _shown(value, null) for name, value in record.headers)


def _constant(content: bytes) -> Part:
    """Return a part of a format that prints the same bytes for every record."""
    return lambda _printed: content


def parse_format(text: str, null: bytes = b"") -> Callable[[Printed], bytes]:
    """A function from a record to what is printed of it. Raises UsageError for a field that does not exist.

    `null` is printed for keys, payloads and header values that are null.
    """
    fields: dict[str, Part] = {
        "s": lambda p: _shown(p.record.value, null),
        "S": lambda p: b"%d" % _size(p.record.value),
        "R": lambda p: _size(p.record.value).to_bytes(4, signed=True),
        "k": lambda p: _shown(p.record.key, null),
        "K": lambda p: b"%d" % _size(p.record.key),
        "T": lambda p: b"%d" % p.record.timestamp,
        "h": lambda p: _headers_text(p.record, null),
        "t": lambda p: p.topic.encode(),
        "p": lambda p: b"%d" % p.partition,
        "o": lambda p: b"%d" % p.record.offset,
    }
    parts: list[Part] = []
    pieces = re.split(r"%(.|$)", text, flags=re.DOTALL)
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            literal = unescape("--format", piece)
            if literal:
                parts.append(_constant(literal))
        elif piece == "%":
            parts.append(_constant(b"%"))
        elif piece in fields:
            parts.append(fields[piece])
        else:
            raise UsageError(
                f"--format {text!r}: the field %{piece} is unknown. Use %s payload, %S its size, %R its size as "
                "4 bytes, %k key, %K its size, %T timestamp, %h headers, %t topic, %p partition, %o offset, %% "
                "percent sign."
            )
    return lambda printed: b"".join([part(printed) for part in parts])


def default_format(key_delimiter: bytes | None, delimiter: bytes, null: bytes) -> Callable[[Printed], bytes]:
    """Return the function that prints a record as `klamm produce` reads it: key, key delimiter, payload, delimiter."""
    if key_delimiter is None:
        return lambda p: _shown(p.record.value, null) + delimiter
    return lambda p: _shown(p.record.key, null) + key_delimiter + _shown(p.record.value, null) + delimiter


def null_text(is_shown: bool) -> bytes:
    """The text to print for null: `NULL`, or nothing."""
    return _NULL if is_shown else b""
