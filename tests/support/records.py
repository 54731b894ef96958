"""Random test records, and the check that each is read exactly once."""

import random
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS = int(time.time() * 1_000) - 60_000
"""The timestamp of the first record: recent, because retention deletes old records soon after the start of a node."""
_PRINTABLE = bytes(range(0x21, 0x7F)).translate(None, b":,")


class Sent(NamedTuple):
    """A record to send; its value begins with the record's number, unless it has no value."""

    number: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


class Found(NamedTuple):
    """What a client read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def make_records(count: int, seed: int = 0, *, printable: bool = False) -> list[Sent]:
    """`printable` keeps to what a console tool can carry: keys and values of visible ASCII, at least one byte each."""
    dice = random.Random(seed)
    return [_make_record(dice, number, printable) for number in range(count)]


def _make_record(dice: random.Random, number: int, printable: bool) -> Sent:
    def random_bytes(most: int) -> bytes:
        raw = dice.randbytes(dice.randrange(most))
        return bytes(_PRINTABLE[b % len(_PRINTABLE)] for b in raw) if printable else raw

    key = b"%d-" % number + random_bytes(12)
    value = None if number % 97 == 13 else b"%09d-" % number + random_bytes(40) + b"klamm" * dice.randrange(12)
    headers = tuple((f"h{i}", b"x" + random_bytes(8)) for i in range(dice.randrange(3) if number % 5 == 0 else 0))
    return Sent(number, key, value, headers, FIRST_MS + number)


def check_each_record_once(sent: Sequence[Sent], found: Iterable[Found], *, timestamps: bool = True) -> None:
    """Assert that every record is there once with the same bytes, and offsets and numbers rise without gaps."""
    by_partition: dict[int, list[Found]] = {}
    for record in found:
        by_partition.setdefault(record.partition, []).append(record)
    expected = {record.key: record for record in sent}
    assert len(expected) == len(sent), "keys must differ"
    seen: set[bytes | None] = set()
    for partition, records in by_partition.items():
        assert [r.offset for r in records] == list(range(len(records))), f"offsets of partition {partition}"
        numbers = []
        for record in records:
            assert record.key in expected, f"nobody sent the key {record.key!r}"
            assert record.key not in seen, f"found twice: {record.key!r}"
            seen.add(record.key)
            original = expected[record.key]
            numbers.append(original.number)
            assert (record.value, record.headers) == (original.value, original.headers)
            assert not timestamps or record.timestamp_ms == original.timestamp_ms
        assert numbers == sorted(numbers), f"order of partition {partition}"
    lost = expected.keys() - seen
    assert not lost, f"{len(lost)} of {len(sent)} records lost, for example {sorted(map(str, lost))[:3]}"
