"""Times and durations of command lines."""

import re
from datetime import UTC, datetime
from typing import Final

from klamm.model.errors import UsageError

_ISO: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SHORT: Final = re.compile(
    r"(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+(?:\.\d+)?)s)?"
)
_TIMESTAMP_DIGITS: Final = 19
_SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def parse_time(option: str, text: str) -> int:
    """The ms since 1970 of `2026-01-31T08:00Z`, UTC unless it names another offset, or of such a number.

    An earlier time counts as 1970: no record is older, and negative numbers have other meanings to brokers. Raises
    UsageError.
    """
    if text.isdecimal() and len(text) < _TIMESTAMP_DIGITS:
        return int(text)
    try:
        time = datetime.fromisoformat(text if "-" in text else "")
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is not a time. Give YYYY-MM-DDTHH:MM[:SS.sss][Z], for example 2026-01-31T08:00Z, or "
            "milliseconds since 1970."
        ) from None
    return max(0, round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def parse_duration(option: str, text: str) -> int:
    """The ms of a duration like `10m`, `1h30m`, `7d`, or in ISO 8601 like `PT10M`. Raises UsageError."""
    match = _ISO.fullmatch(text) or _SHORT.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"{option} {text!r} is not a duration. Give for example 10m, 1h30m, 7d, P7D or PT1H30M.")
    return round(sum(float(match[unit] or 0) * factor for unit, factor in _SECONDS.items()) * 1000)


def parse_past(option: str, text: str, now_ms: int) -> int:
    """The ms since 1970 of a time, or of a duration before now such as `7d`. Raises UsageError."""
    if "-" in text or text.isdecimal():
        return parse_time(option, text)
    return max(0, now_ms - parse_duration(option, text))
