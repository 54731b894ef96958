"""Parsers of option values; each raises ValueError with what is wrong and what to give instead."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from klamm.spark.java_regex import to_python

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
"""The largest numbers of Kafka's configs of types INT and LONG, and of Spark's limits. Source: ConfigDef.java."""
_BYTE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class OnDataLoss(StrEnum):
    """What a read does where requested records are lost."""

    FAIL = "fail"
    SKIP = "skip"
    REPORT = "report"


class HiddenValue(ValueError):
    """A value that is wrong and may be a secret, so that errors must not repeat it."""


def parse_boolean(text: str) -> bool:
    """Return the boolean; raises ValueError unless the text is `true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is not a boolean; give true or false")
    return text.lower() == "true"


def parse_positive(text: str) -> int:
    """Return a whole number from 1 to `MAX_LONG`. Raises ValueError."""
    return _parse_up_to(MAX_LONG, text)


def parse_int(text: str) -> int:
    """Return a whole number from 1 to `MAX_INT`, as requests can have it. Raises ValueError."""
    return _parse_up_to(MAX_INT, text)


def parse_milliseconds(text: str) -> float:
    """Return the seconds for a text that gives milliseconds. Raises ValueError."""
    return parse_positive(text) / 1000


def parse_int_milliseconds(text: str) -> float:
    """Return the seconds for a text that gives milliseconds, as requests can have them. Raises ValueError."""
    return parse_int(text) / 1000


def _parse_up_to(most: int, text: str) -> int:
    """Return a whole number from 1 to `most`. Raises ValueError."""
    digits = text.lstrip("0") if re.fullmatch(r"[0-9]+", text) else ""
    if not digits:
        raise ValueError(f"{text!r} is not a whole number of at least 1; give for example 100")
    if len(digits) > len(str(most)) or int(digits) > most:
        raise ValueError(f"{text!r} is more than {most}; give a smaller number")
    return int(digits)


def parse_bytes(text: str) -> int:
    """Return the bytes of a size as `1000000`, `512k`, `64m` or `1g`, units of 1024. Raises ValueError."""
    found = re.fullmatch(r"([0-9]+)\s*([a-z]?)b?", text.strip().lower())
    if found is None or found[2] not in _BYTE_UNITS or not found[1].strip("0"):
        raise ValueError(f"{text!r} is not a size of at least one byte; give for example 1000000, 512k, 64m or 1g")
    return parse_positive(str(parse_positive(found[1]) * _BYTE_UNITS[found[2]]))


def parse_duration(text: str) -> float:
    """Return the seconds of a duration as `500ms`, `30s`, `15m`, `1h`, `1d`. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise ValueError(f"{text!r} is not a duration; give for example 500ms, 30s, 15m or 1h")
    return int(found[1]) * _SECONDS[found[2]]


def parse_topics(text: str) -> tuple[str, ...]:
    """Return the names between the commas, each once. Raises ValueError where there is none."""
    topics = tuple(dict.fromkeys(t.strip() for t in text.split(",") if t.strip()))
    if not topics:
        raise ValueError(f"{text!r} names no topic; give one or more names, separated by commas")
    return topics


def parse_directories(text: str) -> tuple[str, ...]:
    """Return the paths between the commas, each once. Raises ValueError for an empty list or a relative path."""
    given = (p.strip().removeprefix("file://") for p in text.split(",") if p.strip())
    paths = tuple(dict.fromkeys(path.rstrip("/") or "/" for path in given))
    if not paths:
        raise ValueError(f"{text!r} names no directory; give absolute paths of log directories, as /data1/kafka,/data2")
    if any(not path.startswith("/") for path in paths):
        raise ValueError(
            f"{text!r} has a relative path; give absolute paths of log directories, separated by commas, for example "
            "/data1/kafka,/data2"
        )
    return paths


def parse_pattern(text: str) -> str:
    """Return a Java regular expression in Python's syntax. Raises ValueError."""
    if not text.strip():
        raise ValueError("the regular expression for topic names is empty; give for example .* for all topics")
    translated = to_python(text)
    try:
        re.compile(translated)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression ({error}); correct it") from error
    return translated


def parse_one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser that accepts only these words."""

    def parse(text: str) -> str:
        """Return the word in lower case; raises ValueError where it is not allowed."""
        if text.lower() not in allowed:
            raise ValueError(f"{text!r} is not allowed; give {' or '.join(allowed)}")
        return text.lower()

    return parse


def parse_plaintext(text: str) -> str:
    """Return the only security protocol that klamm speaks, in lower case. Raises ValueError for others."""
    if text.lower() != "plaintext":
        raise ValueError(
            f"klamm connects only to PLAINTEXT listeners, not to {text!r}; remove it, and give the port of such a "
            "listener"
        )
    return "plaintext"


def parse_on_data_loss(text: str) -> OnDataLoss:
    """Return what to do on data loss. Raises ValueError."""
    return OnDataLoss(parse_one_of(*OnDataLoss)(text))


def parse_schema(text: str) -> str:
    """Return the fields of a schema. Raises ValueError where there is none; Spark parses the rest."""
    if not text.strip():
        raise ValueError("the schema is empty; give names and types as in SQL, for example id BIGINT, user STRING")
    return text.strip()


class OnDecodeError(NamedTuple):
    """What a read does with a value that is not of its format; with neither set it fails."""

    reports: bool = False
    dead_letters: str | None = None


def parse_on_decode_error(text: str) -> OnDecodeError:
    """Return what to do with values that cannot be decoded. Raises ValueError."""
    word, _, topic = text.strip().partition(":")
    if word.lower() == "deadletter" and re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
        return OnDecodeError(dead_letters=topic)
    if text.strip().lower() not in ("fail", "report"):
        raise ValueError(f"{text!r} is not allowed; give fail, report or deadletter:TOPIC")
    return OnDecodeError(reports=text.strip().lower() == "report")


def parse_text(text: str) -> str:
    """Return the text unchanged."""
    return text
