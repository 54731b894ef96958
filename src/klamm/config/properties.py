"""Java's properties syntax, as `java.util.Properties.load` reads it, with the line of each entry kept."""

from collections.abc import Iterator
from typing import Final, NamedTuple

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    line: int  # where it begins, from 1
    key: str
    value: str


class BadProperties(ValueError):
    """The text has a syntax error in `line`."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


def parse_properties(content: bytes) -> list[Property]:
    """All entries in file order, repeated keys included (the last one counts). Raises BadProperties."""
    return [_parse_entry(line, text) for line, text in _logical_lines(content.decode("latin-1"))]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without comments and blank lines; a line with a backslash at its end continues."""
    whole, start = "", 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_BLANK)
        if not start and (not line or line[0] in "#!"):
            continue
        start = start or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            whole += line[:-1]
            continue
        yield start, whole + line
        whole, start = "", 0
    if start and whole:
        yield start, whole


def _parse_entry(line: int, text: str) -> Property:
    """Return key and value of one logical line, unescaped; `line` is its number in the file."""
    end = _key_end(text)
    rest = text[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return Property(line, _unescape(line, text[:end]), _unescape(line, rest))


def _key_end(text: str) -> int:
    """The position of the first separator that is not escaped."""
    escaped = False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=:" or character in _BLANK:
            return at
    return len(text)


def _unescape(line: int, text: str) -> str:
    """The text with its escapes replaced. Raises BadProperties for an invalid unicode escape."""
    if "\\" not in text:
        return text
    out: list[str] = []
    rest = iter(text)
    for character in rest:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(rest, "")
        if escaped == "u":
            digits = "".join(next(rest, "") for _ in range(4))
            if len(digits) != 4 or not all(c in "0123456789abcdefABCDEF" for c in digits):
                raise BadProperties(
                    line, f"the escape \\u{digits} is not a character; write four hexadecimal digits after \\u"
                )
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
