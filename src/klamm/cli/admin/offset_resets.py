"""Where a group's offsets are to be reset to. Source: ConsumerGroupCommand.java (3.9)."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from klamm.cli.admin.client import Admin
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.groups import read_ends, read_offsets
from klamm.client.offsets import EARLIEST, LATEST, NO_OFFSET
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition


class ResetKind(StrEnum):
    """By the names of the flags."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    OFFSET = "--to-offset"
    SHIFT = "--shift-by"
    TIME = "--to-datetime"


class Reset(NamedTuple):
    kind: ResetKind
    number: int = 0
    """The offset, the shift, or milliseconds since 1970."""


class PlannedReset(NamedTuple):
    partition: TopicPartition
    committed: int | None
    planned: int
    """Within the log."""


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Return topic and partition numbers of a text like `orders` or `orders:0,2`.

    The numbers are None for all partitions. Raises UsageError.
    """
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        return topic, tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise UsageError(f"--topic {text!r} is not TOPIC or TOPIC:PARTITION,..., for example orders:0,2.") from None


async def select_partitions(
    admin: Admin, group: str, topics: Collection[str], *, all_topics: bool
) -> list[TopicPartition]:
    """The partitions that `--topic` names, or all that the group has offsets of. Raises UsageError, CannotAsk."""
    if all_topics:
        return sorted(await read_offsets(admin, group))
    requested = [parse_topic(text) for text in topics]
    known = (await read_cluster(admin, [topic for topic, _ in requested])).topics
    selected: set[TopicPartition] = set()
    for topic, numbers in requested:
        if topic not in known:
            raise UsageError(f"--topic {topic}: there is no such topic. `klamm topics list` shows the topics.")
        there = known[topic].partitions
        if missing := [n for n in numbers or () if n not in there]:
            raise UsageError(f"--topic {topic}: it has no partition {missing[0]}, only 0-{len(there) - 1}.")
        selected |= {TopicPartition(topic, n) for n in (there if numbers is None else numbers)}
    return sorted(selected)


async def plan_reset(
    admin: Admin, group: str, partitions: Collection[TopicPartition], reset: Reset
) -> list[PlannedReset]:
    """Plan the new offset of each partition that exists; an offset outside the log is moved into it.

    Raises CannotAsk.
    """
    committed = await read_offsets(admin, group, partitions)
    starts = await read_ends(admin, partitions, EARLIEST)
    ends = await read_ends(admin, partitions, LATEST)
    at_time = await read_ends(admin, partitions, reset.number) if reset.kind is ResetKind.TIME else {}
    requested = {p: _asked_offset(reset, committed.get(p), starts[p], ends[p], at_time, p) for p in sorted(starts)}
    return [
        PlannedReset(p, committed.get(p), min(max(offset, starts[p]), ends[p]))
        for p, offset in requested.items()
        if offset is not None
    ]


async def plan_offsets(admin: Admin, group: str, offsets: Mapping[TopicPartition, int]) -> list[PlannedReset]:
    """These offsets for each partition that exists, moved into the log where one is outside. Raises CannotAsk."""
    committed = await read_offsets(admin, group, offsets)
    starts = await read_ends(admin, offsets.keys(), EARLIEST)
    ends = await read_ends(admin, offsets.keys(), LATEST)
    return [PlannedReset(p, committed.get(p), min(max(offsets[p], starts[p]), ends[p])) for p in sorted(starts)]


def _asked_offset(
    reset: Reset,
    committed: int | None,
    start: int,
    end: int,
    at_time: Mapping[TopicPartition, int],
    partition: TopicPartition,
) -> int | None:
    """The offset that the reset option means for one partition; None where it has no committed offset to shift."""
    match reset.kind:
        case ResetKind.EARLIEST:
            return start
        case ResetKind.LATEST:
            return end
        case ResetKind.CURRENT:
            return end if committed is None else committed
        case ResetKind.OFFSET:
            return reset.number
        case ResetKind.SHIFT:
            return None if committed is None else committed + reset.number
        case ResetKind.TIME:
            found = at_time[partition]
            return end if found == NO_OFFSET else found
