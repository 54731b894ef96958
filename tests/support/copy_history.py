"""Compares a committed copy of a topic with the topic: what is lost, doubled, aborted and yet read, or torn."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Copied(NamedTuple):
    """A record of the copy, as a reader of committed records sees it."""

    partition: int
    offset: int
    number: int
    transaction: str
    records: int
    """How many records the transaction has."""


class CoordinatorVerdict(NamedTuple):
    """Each anomaly as text, empty where there is none."""

    copied: int
    transactions: int
    aborted: int
    committed_offsets: int
    unconfirmed_offsets: int
    """Records that the group has read, and of whose commit no member was told: it was refused, or the member ended."""
    lost: list[str]
    duplicated: list[str]
    aborted_reads: list[str]
    torn: list[str]
    lost_commits: list[str]
    skipped: list[str]
    old_offsets: list[str]

    @property
    def is_clean(self) -> bool:
        return not any(self.anomalies.values())

    @property
    def anomalies(self) -> dict[str, list[str]]:
        return {
            "lost": self.lost,
            "duplicated or out of order": self.duplicated,
            "aborted reads": self.aborted_reads,
            "torn transactions": self.torn,
            "lost commits": self.lost_commits,
            "skipped by the group": self.skipped,
            "old committed offsets": self.old_offsets,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{len(found)} {what}" for what, found in self.anomalies.items())
        return (
            f"{self.copied} records copied in {self.transactions} transactions, {self.aborted} aborted, "
            f"{self.committed_offsets} records committed by the group and {self.unconfirmed_offsets} whose commit was "
            f"refused or whose member ended, all before the offsets that it has now: {counts}"
        )


class CommittedCopy(NamedTuple):
    """What a copier was told to be committed: a part of one partition."""

    copier: str
    transaction: str
    partition: int
    first: int
    next: int
    ended_s: float


class OffsetRead(NamedTuple):
    """The committed offset of one partition, as a copier was told; negative where it was told that there is none."""

    copier: str
    why: str
    partition: int
    offset: int
    asked_s: float


def old_offsets(copies: Iterable[CommittedCopy], reads: Iterable[OffsetRead]) -> list[str]:
    """Committed offsets that were older than one committed before they were asked for, and what was copied again."""
    found, ordered = [], sorted(copies, key=lambda copy: copy.ended_s)
    for read in reads:
        before = [c for c in ordered if c.partition == read.partition and c.ended_s < read.asked_s]
        newest = max(before, key=lambda c: c.next, default=None)
        if newest is not None and newest.next > read.offset:
            found.append(
                f"partition {read.partition}: after {read.why}, {read.copier} was told {read.offset} at "
                f"{read.asked_s:.3f} s; {newest.copier} committed {newest.next} at {newest.ended_s:.3f} s"
            )
    ends: dict[int, CommittedCopy] = {}
    for copy in ordered:
        earlier = ends.get(copy.partition)
        if earlier is not None and copy.first < earlier.next:
            found.append(
                f"partition {copy.partition}: {copy.copier} copied {copy.first} to {copy.next} in {copy.transaction}, "
                f"ended at {copy.ended_s:.3f} s; {earlier.copier} had copied up to {earlier.next} in "
                f"{earlier.transaction}, ended at {earlier.ended_s:.3f} s"
            )
        if earlier is None or copy.next > earlier.next:
            ends[copy.partition] = copy
    return found


def repeated(found: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
    """What is there more than once, and how often."""
    return [(item, count) for item, count in Counter(found).items() if count > 1]


def unconfirmed(read: Iterable[tuple[int, int]], committed: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Records, by partition and offset, that members have read, and of whose commit none was told.

    The commit was refused, or the member ended before it was answered. The record may be committed nevertheless, or
    by the commit of a later one.
    """
    return set(read) - set(committed)


def lost_commits(
    committed: Iterable[tuple[int, int]], stored: Mapping[str, Mapping[int, int]], ends: Mapping[int, int]
) -> list[str]:
    """Records that were committed and given to another member again, and groups that are not at the end of the topic.

    `committed`: each record that a member was told to be committed, by partition and offset. `stored`: the offsets of
    each group, which had none left to read. `ends`: where each partition ends.
    """
    again = [f"partition {p}: offset {o} was committed {n} times" for (p, o), n in repeated(committed)]
    return again + [
        f"partition {p}: it ends at {end} and was read to its end, {offsets.get(p)} is stored for the group {group}"
        for group, offsets in stored.items()
        for p, end in ends.items()
        if offsets.get(p) != end
    ]


def by_partition(copied: Iterable[Copied]) -> dict[int, list[int]]:
    """The numbers of each partition, in the order of their offsets."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for record in sorted(copied, key=lambda r: (r.partition, r.offset)):
        numbers[record.partition].append(record.number)
    return numbers


def lost(expected: Mapping[int, list[int]], copied: Iterable[Copied]) -> list[str]:
    """Records of the source, given as the numbers of each partition, that are not in the copy."""
    found = by_partition(copied)
    return [
        f"partition {p}: record {n} is not in the copy"
        for p, numbers in expected.items()
        for n in sorted(set(numbers) - set(found.get(p, [])))
    ]


def doubled(expected: Mapping[int, list[int]], copied: Iterable[Copied]) -> list[str]:
    """Records that are in the copy more often than in the source, and partitions whose records are in another order."""
    anomalies = []
    for p, numbers in by_partition(copied).items():
        source = expected.get(p, [])
        surplus = Counter(numbers) - Counter(source)
        anomalies += [f"partition {p}: record {n} is copied {count} times too often" for n, count in surplus.items()]
        kept = Counter(numbers)
        in_order = [n for n in source if kept[n]]
        if not surplus and (moved := next((n for n, m in zip(numbers, in_order, strict=False) if n != m), None)):
            anomalies.append(f"partition {p}: record {moved} is out of order")
    return anomalies


def aborted_reads(aborted: set[str], copied: Iterable[Copied]) -> list[str]:
    """Records of these transactions that a reader of committed records sees."""
    return [f"{r.partition} at {r.offset}: of aborted {r.transaction}" for r in copied if r.transaction in aborted]


def withdrawn(seen: Iterable[Copied], copied: Iterable[Copied]) -> list[str]:
    """Records that a reader of committed records saw and that are not committed."""
    final = set(copied)
    return [f"{r.partition} at {r.offset}: seen once, of {r.transaction}" for r in seen if r not in final]


def torn(copied: Iterable[Copied]) -> list[str]:
    """Transactions of which some records are visible and others are not."""
    sizes = Counter((record.transaction, record.records) for record in copied)
    return [f"{name}: {count} of {size} records" for (name, size), count in sizes.items() if count != size]
