"""Where `klamm consume` begins and ends in each partition: an offset, a number of records before the end, a time."""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from klamm.cli.times import parse_duration, parse_time
from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition

_NUMBER: Final = re.compile(r"\d+")
_FROM_END: Final = re.compile(r"-\d+")


class StartKind(StrEnum):
    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    FROM_END = "records before the end"
    TIME = "time"


class Start(NamedTuple):
    kind: StartKind
    number: int = 0
    """The offset, how many records before the end, or milliseconds since 1970."""


def parse_start(offset: str | None, from_: str | None, since: str | None, now_ms: int) -> Start | None:
    """The start that the options name; None where none does. Raises UsageError."""
    given = {"--offset": offset, "--from": from_, "--since": since}
    if len(named := [option for option, text in given.items() if text is not None]) > 1:
        raise UsageError(f"{named[0]} cannot be used with {named[1]}: omit one of them.")
    if from_ is not None:
        return Start(StartKind.TIME, parse_time("--from", from_))
    if since is not None:
        return Start(StartKind.TIME, now_ms - parse_duration("--since", since))
    return None if offset is None else _parse_offset(offset)


def _parse_offset(text: str) -> Start:
    """`beginning`, `end`, `stored`, an offset, `-N`, or `s@` and a time. Raises UsageError."""
    if text in (StartKind.BEGINNING, StartKind.END, StartKind.STORED):
        return Start(StartKind(text))
    if text.startswith("s@"):
        return Start(StartKind.TIME, parse_time("--offset", text.removeprefix("s@")))
    if _NUMBER.fullmatch(text):
        return Start(StartKind.OFFSET, int(text))
    if _FROM_END.fullmatch(text):
        return Start(StartKind.FROM_END, -int(text))
    raise UsageError(
        f"--offset {text!r} is not a position to start from. Give beginning, end, stored, an offset, -N for the "
        "last N records of each partition, or s@TIME."
    )


class Bounds(NamedTuple):
    """The offsets of a partition that can be read."""

    start: int
    end: int


async def read_bounds(
    client: AsyncClient, partitions: Collection[TopicPartition], backoff: Backoff, *, read_committed: bool
) -> dict[TopicPartition, Bounds]:
    """The bounds of each partition. Raises Unreachable, RequestRefused, TopicGone."""
    starts = await client.run(list_offsets(client.cluster, dict.fromkeys(partitions, EARLIEST), backoff))
    latest = dict.fromkeys(partitions, LATEST)
    ends = await client.run(list_offsets(client.cluster, latest, backoff, read_committed))
    return {p: Bounds(starts[p], ends[p]) for p in starts}


async def positions_at(
    client: AsyncClient, start: Start, bounds: Mapping[TopicPartition, Bounds], backoff: Backoff
) -> dict[TopicPartition, int]:
    """Where each partition is to be read from. Raises UsageError, Unreachable, RequestRefused, TopicGone."""
    at_time: Mapping[TopicPartition, int] = {}
    if start.kind is StartKind.TIME:
        at_time = await offsets_at(client, start.number, bounds, backoff)
    return {p: _position(p, start, found, at_time) for p, found in bounds.items()}


async def offsets_at(
    client: AsyncClient, time_ms: int, bounds: Mapping[TopicPartition, Bounds], backoff: Backoff
) -> dict[TopicPartition, int]:
    """The first offset at or after a time, in each partition; the end where no record is so late."""
    found = await client.run(list_offsets(client.cluster, dict.fromkeys(bounds, max(time_ms, 0)), backoff))
    return {p: bounds[p].end if offset == NO_OFFSET else offset for p, offset in found.items()}


def _position(partition: TopicPartition, start: Start, bounds: Bounds, at_time: Mapping[TopicPartition, int]) -> int:
    """Where one partition is to be read from. Raises UsageError for an offset outside of the log."""
    match start.kind:
        case StartKind.BEGINNING:
            return bounds.start
        case StartKind.FROM_END:
            return max(bounds.start, bounds.end - start.number)
        case StartKind.TIME:
            return at_time[partition]
        case StartKind.OFFSET:
            if not bounds.start <= start.number <= bounds.end:
                raise UsageError(
                    f"--offset {start.number} is outside of {partition}, which has offsets {bounds.start} to "
                    f"{bounds.end}. Give one of these, beginning, end, or --partition for partitions that have it."
                )
            return start.number
    return bounds.end
