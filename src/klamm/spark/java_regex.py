r"""Java's regular expressions in Python's syntax, for `subscribePattern`: Spark's own source takes Java's.

What differs is rewritten: character classes with intersection, nesting and `\p{..}`, quoting by `\Q..\E`, the spelling
of named groups. A topic's name has only 65 different characters, so a class is the set of those that it matches.
Source: java.util.regex.Pattern.
"""

import re
import string
from collections.abc import Callable
from typing import Final

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of topic names. Source: Topic.java (`LEGAL_CHARS`)."""
_LOWER: Final = frozenset(string.ascii_lowercase)
_UPPER: Final = frozenset(string.ascii_uppercase)
_DIGITS: Final = frozenset(string.digits)
_LETTERS: Final = _LOWER | _UPPER
_PUNCTUATION: Final = frozenset("._-")
_NONE: Final[frozenset[str]] = frozenset()

_PROPERTIES: Final = {
    **dict.fromkeys(("lower", "ll", "javalowercase", "islowercase"), _LOWER),
    **dict.fromkeys(("upper", "lu", "javauppercase", "isuppercase"), _UPPER),
    **dict.fromkeys(("alpha", "l", "lc", "isalphabetic", "isl", "islatin", "javaletter", "isletter"), _LETTERS),
    **dict.fromkeys(("digit", "n", "nd", "isdigit", "javadigit"), _DIGITS),
    **dict.fromkeys(("alnum", "javaletterordigit"), _LETTERS | _DIGITS),
    **dict.fromkeys(("xdigit", "ishex_digit"), frozenset(string.hexdigits)),
    **dict.fromkeys(("punct", "p", "ispunctuation"), _PUNCTUATION),
    **dict.fromkeys(("graph", "print", "ascii"), ALPHABET),
    **dict.fromkeys(("blank", "cntrl", "space", "s", "z", "c", "m", "iswhite_space", "javawhitespace"), _NONE),
    "pd": frozenset("-"),
    "pc": frozenset("_"),
    "po": frozenset("."),
}
_ESCAPES: Final = {
    "d": _DIGITS,
    "D": ALPHABET - _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "W": frozenset(".-"),
    **dict.fromkeys("shvR", _NONE),
    **dict.fromkeys("SHVN", ALPHABET),
}


def to_python(pattern: str) -> str:
    """Translate a Java regular expression to Python's `re`. Raises ValueError for a construct that is not supported."""
    return _Translation(pattern).result()


class _Translation:
    """One pass over a pattern; `_at` is the position of the next character."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    def result(self) -> str:
        """The translated pattern."""
        parts: list[str] = []
        while self._at < len(self._text):
            if self._skip("\\"):
                parts.append(self._escape())
            elif self._skip("["):
                parts.append(_as_class(self._class()))
            elif self._begins_named_group():
                self._skip("(?<")
                parts.append("(?P<")
            else:
                parts.append(self._next())
        return "".join(parts)

    # ---- outside of a class

    def _escape(self) -> str:
        """Translate the escape after a backslash outside of a class."""
        if self._skip("Q"):
            return re.escape(self._quoted())
        if self._skip("k<"):
            return f"(?P={self._until('>')})"
        if self._peek() in tuple("bBAG123456789"):
            return "\\" + self._next()
        if self._skip("z"):
            return r"\Z"
        if self._skip("Z"):
            return r"\Z"
        return _as_class(self._escaped_set())

    def _begins_named_group(self) -> bool:
        """Whether a named group comes next, and not a lookbehind."""
        return self._text.startswith("(?<", self._at) and self._text[self._at + 3 : self._at + 4].isalpha()

    def _quoted(self) -> str:
        r"""Read quoted text up to `\E`, or to the end."""
        end = self._text.find("\\E", self._at)
        end = len(self._text) if end < 0 else end
        found = self._text[self._at : end]
        self._at = min(end + 2, len(self._text))
        return found

    # ---- sets of characters

    def _class(self) -> frozenset[str]:
        """Read the characters of a class up to its `]`."""
        negated = self._skip("^")
        first = True
        found = self._union(first)
        while self._skip("&&"):
            found &= self._union(False)
        self._expect("]")
        return ALPHABET - found if negated else found

    def _union(self, first: bool) -> frozenset[str]:
        """The characters up to the class's end or the next `&&`."""
        found: set[str] = set()
        while first or not (self._peek() == "]" or self._text.startswith("&&", self._at)):
            first = False
            if self._at >= len(self._text):
                raise ValueError(f"the regular expression {self._text!r} has a [ without ]; close the character class")
            if self._skip("["):
                found |= self._class()
            elif self._skip("\\"):
                found |= set(self._quoted()) if self._skip("Q") else self._escaped_range()
            else:
                found |= self._range(self._next())
        return frozenset(found)

    def _escaped_range(self) -> frozenset[str]:
        """The characters that an escape in a class stands for; a single character may be the first of a range."""
        chars = self._escaped_set()
        return self._range(next(iter(chars))) if len(chars) == 1 and self._peek() == "-" else chars

    def _range(self, first: str) -> frozenset[str]:
        """The characters from `first` to the end of its range, or `first` alone."""
        is_range = self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]", "[", "&")
        if not is_range:
            return frozenset(first)
        self._at += 1
        last = self._next()
        if last == "\\":
            chars = self._escaped_set()
            if len(chars) != 1:
                raise ValueError(
                    f"the regular expression {self._text!r} has a range from {first} to an escape that is no single "
                    "character; correct it"
                )
            [last] = chars
        if last < first:
            raise ValueError(
                f"the regular expression {self._text!r} has the range {first}-{last}, which ends before it begins; "
                "correct it"
            )
        return frozenset(map(chr, range(ord(first), ord(last) + 1)))

    def _escaped_set(self) -> frozenset[str]:
        """The characters that an escape stands for, its backslash already read."""
        if self._at >= len(self._text):
            raise ValueError(f"the regular expression {self._text!r} ends with a backslash; remove it, or write two")
        name = self._next()
        if name in "pP":
            chars = self._property()
            return ALPHABET - chars if name == "P" else chars
        if name in _ESCAPES:
            return _ESCAPES[name]
        if name in "xu":
            return frozenset(self._code_point(2 if name == "x" else 4))
        if name in "tnrfae":
            return _NONE
        if name.isalnum():
            raise ValueError(
                f"the regular expression {self._text!r} has \\{name}, which klamm does not translate; write its "
                "characters"
            )
        return frozenset(name)

    def _property(self) -> frozenset[str]:
        r"""The characters of a property, as in `\p{Alpha}` or `\pL`."""
        name = self._until("}") if self._skip("{") else self._next()
        key = name.rpartition("=")[2].lower()
        if key not in _PROPERTIES:
            raise ValueError(
                f"the regular expression {self._text!r} has the property {name}, which klamm does not know; write its "
                "characters"
            )
        return _PROPERTIES[key]

    def _code_point(self, digits: int) -> str:
        """The character of a hexadecimal number with this many digits, or in braces."""
        number = self._until("}") if self._skip("{") else self._text[self._at : self._at + digits]
        if self._text[self._at - 1] != "}":
            self._at += digits
        return chr(int(number, 16))

    # ---- the text

    def _peek(self) -> str:
        """The next character; empty at the end."""
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        """Read one character."""
        self._at += 1
        return self._text[self._at - 1 : self._at]

    def _skip(self, prefix: str) -> bool:
        """Read the prefix if it comes next; returns whether it did."""
        found = self._text.startswith(prefix, self._at)
        self._at += len(prefix) * found
        return found

    def _until(self, end: str) -> str:
        """Read up to and including `end`; returns the text before it."""
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise ValueError(f"the regular expression {self._text!r} lacks {end} after position {self._at}; correct it")
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    def _expect(self, wanted: str) -> None:
        """Read `wanted`. Raises ValueError where something else comes."""
        if not self._skip(wanted):
            raise ValueError(f"the regular expression {self._text!r} has a [ without ]; close the character class")


def _as_class(chars: frozenset[str]) -> str:
    """A character class for `re` of these characters; for none of them, a pattern that never matches."""
    escape: Callable[[str], str] = re.escape
    return "[" + "".join(escape(c) for c in sorted(chars)) + "]" if chars else "(?!)"
