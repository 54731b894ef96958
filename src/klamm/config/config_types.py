"""Types of config values: how text is parsed, and which values are allowed. Source: ConfigDef.java."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from klamm.model.errors import KlammError

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1


class ConfigType(IntEnum):
    """The types, by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


ConfigValue = bool | int | float | str | tuple[str, ...]


class InvalidConfig(KlammError):
    """An invalid key or value; the text names key, value and what is allowed: `KEY=VALUE is not valid: ALLOWED`."""

    def __init__(self, key: str, value: str | None, *, allowed: str) -> None:
        what = f"{key} is not a config" if value is None else f"{key}={value} is not valid"
        super().__init__(f"{what}: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed

    @classmethod
    def with_text(cls, text: str) -> Self:
        """Create an error with this text, for several keys that are invalid together."""
        error = cls("", None, allowed="")
        error.args = (text,)
        return error


@dataclass(frozen=True, slots=True)
class Allowed:
    """A condition on a value, and its description for messages."""

    text: str
    accepts: Callable[[ConfigValue], bool]


def at_least(least: int) -> Allowed:
    """A rule for numbers of at least `least`."""
    return Allowed(f"a number of at least {least}", lambda v: isinstance(v, int | float) and v >= least)


def between(least: float, most: float) -> Allowed:
    """A rule for numbers from `least` to `most`."""
    return Allowed(f"a number from {least} to {most}", lambda v: isinstance(v, int | float) and least <= v <= most)


def one_of(*choices: str) -> Allowed:
    """A rule for a text that is one of these."""
    return Allowed(f"one of {', '.join(choices)}", lambda v: v in choices)


def some_of(*choices: str) -> Allowed:
    """A rule for a list of some of these texts, or of none."""
    return Allowed(
        f"a comma-separated list out of {', '.join(choices)}",
        lambda v: isinstance(v, tuple) and all(item in choices for item in v),
    )


ANY_VALUE: Final = Allowed("any value", lambda _v: True)

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|Infinity)")
_RANGES: Final = {
    ConfigType.INT: (-(2**31), MAX_INT, "a whole number of 32 bits"),
    ConfigType.SHORT: (-(2**15), 2**15 - 1, "a whole number of 16 bits"),
    ConfigType.LONG: (-(2**63), MAX_LONG, "a whole number of 64 bits"),
}


def parse_value(key: str, kind: ConfigType, text: str, allowed: Allowed = ANY_VALUE) -> ConfigValue:
    """Parse a value of this type. Raises InvalidConfig."""
    value = _parse_typed(key, kind, text.strip())
    if not allowed.accepts(value):
        raise InvalidConfig(key, text, allowed=f"the value must be {allowed.text}")
    return value


def _parse_typed(key: str, kind: ConfigType, text: str) -> ConfigValue:
    """Convert the text to its type; the range is checked later."""
    match kind:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise InvalidConfig(key, text, allowed="the value must be true or false")
            return text.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _parse_integer(key, kind, text)
        case ConfigType.DOUBLE:
            number = read_number(text)
            if number is None:
                raise InvalidConfig(key, text, allowed="the value must be a number")
            return number
        case ConfigType.LIST:
            return tuple(item.strip() for item in text.split(",")) if text else ()
        case _:
            return text


def _parse_integer(key: str, kind: ConfigType, text: str) -> int:
    """Return the integer. Raises InvalidConfig where the text is none or outside the range of its type."""
    least, most, words = _RANGES[kind]
    number = read_integer(text)
    if number is None or not least <= number <= most:
        raise InvalidConfig(key, text, allowed=f"the value must be {words}")
    return number


def read_integer(text: str) -> int | None:
    """The integer in the text, or None.

    Python also reads `1_000`; an Apache Kafka broker does not start while a topic has such a value.
    """
    return int(text) if _INTEGER.fullmatch(text) else None


def read_number(text: str) -> float | None:
    """The number in the text, or None; see `read_integer`."""
    return float(text) if _NUMBER.fullmatch(text) else None
