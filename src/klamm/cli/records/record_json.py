"""Records as JSON lines, with kcat's field names: what `klamm consume --json` prints, `klamm produce --json` reads.

Bytes that are not UTF-8 are `{"base64": "..."}` in place of a text. Source of the names: json.c of kcat.
"""

from typing import Final, NamedTuple

import msgspec

from klamm.model.errors import UsageError
from klamm.wire.records import NewRecord, Record


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: bytes


_Text = str | _Base64 | None


class _Printed(msgspec.Struct):
    """The fields of a consumed record, in order."""

    topic: str
    partition: int
    offset: int
    tstype: str
    ts: int
    headers: list[_Text]
    key: _Text
    payload: _Text


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a record to be produced; offset, tstype and broker are accepted and have no effect."""

    payload: _Text
    key: _Text = None
    topic: str | None = None
    partition: int | None = None
    ts: int | None = None
    headers: list[_Text] | dict[str, _Text] = msgspec.field(default_factory=list)
    offset: int | None = None
    tstype: str | None = None
    broker: int | None = None


class GivenRecord(NamedTuple):
    """A record from a JSON line; what the line does not say is None."""

    topic: str | None
    partition: int | None
    timestamp: int | None
    record: NewRecord


_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(_Given)


def encode_record(topic: str, partition: int, record: Record, timestamp_type: str) -> bytes:
    """The record as one JSON line, without its newline. Headers are a list: name, value, name, value."""
    headers: list[_Text] = []
    for name, value in record.headers:
        headers += (name, _as_text(value))
    key, payload = _as_text(record.key), _as_text(record.value)
    return _encode(_Printed(topic, partition, record.offset, timestamp_type, record.timestamp, headers, key, payload))


def decode_record(line: bytes) -> GivenRecord:
    """Parse a JSON line. Raises UsageError, which names the field."""
    try:
        given = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f'the line is not a record in JSON: {error}. Give for example {{"key": "k", "payload": "text"}}.'
        ) from None
    if given.ts is not None and not -1 <= given.ts < 2**63:
        raise UsageError(f"ts {given.ts} is not a timestamp: give milliseconds since 1970, or leave it out.")
    record = NewRecord(_as_bytes(given.payload), _as_bytes(given.key), headers=_headers(given.headers))
    return GivenRecord(given.topic, given.partition, None if given.ts == -1 else given.ts, record)


def _headers(given: list[_Text] | dict[str, _Text]) -> tuple[tuple[str, bytes | None], ...]:
    """Return a record's headers, given as a JSON list or as a JSON object. Raises UsageError."""
    if isinstance(given, dict):
        return tuple((name, _as_bytes(value)) for name, value in given.items())
    names = given[::2]
    if len(given) % 2 or not all(isinstance(name, str) for name in names):
        raise UsageError(
            'the field "headers" does not consist of pairs: give ["name", "value", ...] or {"name": "value"}.'
        )
    return tuple((str(name), _as_bytes(value)) for name, value in zip(names, given[1::2], strict=True))


def _as_text(content: bytes | None) -> _Text:
    """Return bytes for JSON: as text if they are UTF-8, else in base64."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _Base64(content)


def _as_bytes(text: _Text) -> bytes | None:
    """The bytes that a JSON value stands for. Raises UsageError for a text that UTF-8 cannot hold."""
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"a key, payload or header has half of a surrogate pair, which UTF-8 cannot encode ({error.reason}): "
                "give it as base64."
            ) from None
    return None if text is None else text.base64
