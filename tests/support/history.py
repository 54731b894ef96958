"""Compares acknowledged records with the records that a reader found."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Acknowledged(NamedTuple):
    """A broker acknowledged record `number` of this partition at `offset`."""

    partition: int
    number: int
    offset: int


class Found(NamedTuple):
    """A reader saw record `number` at `offset`."""

    offset: int
    number: int


class Verdict(NamedTuple):
    """Each anomaly as text, empty where there is none."""

    acknowledged: int
    found: int
    lost: list[str]
    duplicated: list[str]
    reordered: list[str]
    misplaced: list[str]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered or self.misplaced)

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} acknowledged, {self.found} found, {len(self.lost)} lost, "
            f"{len(self.duplicated)} duplicated, {len(self.reordered)} out of order, {len(self.misplaced)} misplaced"
        )


def compare(acknowledged: Iterable[Acknowledged], found: Mapping[int, Sequence[Found]]) -> Verdict:
    """`found` maps each partition to its records in the order read."""
    promised = list(acknowledged)
    lost: list[str] = []
    misplaced: list[str] = []
    at = {partition: {record.number: record.offset for record in records} for partition, records in found.items()}
    for partition, number, offset in promised:
        where = at.get(partition, {}).get(number)
        if where is None:
            lost.append(f"partition {partition}: record {number}, acknowledged at offset {offset}")
        elif offset not in (where, -1):  # -1: a duplicate's acknowledgement need not know its offset
            misplaced.append(f"partition {partition}: record {number} at {where}, acknowledged at {offset}")
    return Verdict(
        acknowledged=len(promised),
        found=sum(len(records) for records in found.values()),
        lost=lost,
        duplicated=[text for partition, records in sorted(found.items()) for text in _duplicates(partition, records)],
        reordered=[text for partition, records in sorted(found.items()) for text in _out_of_order(partition, records)],
        misplaced=misplaced,
    )


def last_of_each_key(acknowledged: Iterable[Acknowledged], keys: int) -> list[Acknowledged]:
    """The record with the highest number of each key and partition, where the key is the number modulo `keys`."""
    last: dict[tuple[int, int], Acknowledged] = {}
    for record in acknowledged:
        key = (record.partition, record.number % keys)
        if key not in last or last[key].number < record.number:
            last[key] = record
    return list(last.values())


def _duplicates(partition: int, records: Sequence[Found]) -> list[str]:
    """Records that were found more than once, as text."""
    times = Counter(record.number for record in records)
    return [f"partition {partition}: record {number} {count} times" for number, count in times.items() if count > 1]


def _out_of_order(partition: int, records: Sequence[Found]) -> list[str]:
    """Records whose numbers do not rise, as text."""
    return [
        f"partition {partition}: record {later.number} at {later.offset} after {earlier.number} at {earlier.offset}"
        for earlier, later in pairwise(records)
        if later.number < earlier.number or later.offset <= earlier.offset
    ]
