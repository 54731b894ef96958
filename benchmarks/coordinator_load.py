"""A coordinator takes over a partition with many groups: how long it loads, and how long it holds the event loop.

    python -m benchmarks.coordinator_load [--groups 1000] [--commits 1000000] [--json FILE]

The partition is one file, read in a thread as a node does. `held` is the longest pass of the loop, in processor time of
its thread. Goals: loaded in 5 s, no pass over 10 ms. Then the partition is given up again.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.control_plane.holds import Holds
from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.records import offset_key, offset_value
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.topic_partitions import Appended, LogBounds
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.main_loop import freeze_startup_objects
from klamm.runtime.memory import LongWork, keep_large_buffers
from klamm.runtime.time_slices import TimeSlices
from klamm.runtime.world import real_world
from klamm.wire.records import NewRecord, build_batch, header_at
from klamm.wire.records.batch import assigned_prefix

BATCH_RECORDS: Final = 1_000
GOAL_S: Final = 5.0
GOAL_MS: Final = 10.0
LOOK_S: Final = 0.005


class Row(NamedTuple):
    what: str
    seconds: float
    processor_s: float
    held_ms: float


class FileLog:
    """One partition of `__consumer_offsets`, as batches in a file."""

    def __init__(self, file: BinaryIO, groups: int, commits: int) -> None:
        self._file = file
        self._bases: list[int] = []
        """The first offset of each batch."""
        self._positions = [0]
        """Where each batch begins, and where the last one ends."""
        self._end = 0
        value = offset_value(Offset(7, 3, "", 1_700_000_000_000), 3)
        each = commits // groups
        for group in range(groups):
            for first in range(0, each, BATCH_RECORDS):
                numbers = range(first, min(first + BATCH_RECORDS, each))
                keys = [offset_key(f"group-{group}", TopicPartition("orders", n)) for n in numbers]
                self._add(build_batch([NewRecord(value, key) for key in keys]))
        file.flush()

    def _add(self, batch: bytes) -> None:
        header = header_at(batch)
        self._bases.append(self._end)
        self._positions.append(self._positions[-1] + len(batch))
        self._file.write(assigned_prefix(header, self._end, 0) + batch[16:])
        self._end += header.last_offset_delta + 1

    async def append(self, partition: int, batch: bytes, acks: int, timeout_ms: int) -> Appended:
        return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def bounds(self, partition: int) -> LogBounds | None:
        return LogBounds(0, self._end)

    async def confirm_leadership(self, partition: int) -> bool:
        return True

    def max_batch_bytes(self, partition: int) -> int:
        return 1_048_588

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        first = max(0, bisect_right(self._bases, offset) - 1)
        start = self._positions[first]
        after = max(first + 1, bisect_right(self._positions, start + max_bytes) - 1)
        return await asyncio.to_thread(os.pread, self._file.fileno(), self._positions[after] - start, start)


async def load(holds: Holds, log: FileLog, groups: int) -> list[Row]:
    """Load the partition and give it up."""
    slices = TimeSlices(LongWork())
    coordinator = GroupCoordinator(real_world(), GroupSettings(), log, slices)
    coordinator.start(1)
    freeze_startup_objects()
    await asyncio.sleep(0)  # another pass: the collection is not part of the load

    async def measured(what: str, work: Callable[[], None], holds_when: Callable[[], bool]) -> Row:
        holds.begin(what)
        began, used = time.monotonic(), time.process_time()
        work()
        while not holds_when():  # noqa: ASYNC110 - the coordinator tells nobody
            await asyncio.sleep(LOOK_S)
        seconds, processor_s = time.monotonic() - began, time.process_time() - used
        await asyncio.sleep(0.2)  # what the end of the work leaves for later passes
        return Row(what, seconds, processor_s, holds.longest_s * 1000)

    name = f"group-{groups - 1}"
    loaded = await measured(
        "load", lambda: coordinator._ownership.elected(0, 1), lambda: not coordinator.availability(name)
    )
    unloaded = await measured(
        "unload", lambda: coordinator._ownership.resigned(0, 2), lambda: bool(coordinator.availability(name))
    )
    while coordinator._context.tasks._tasks:  # noqa: ASYNC110 - memory is being freed
        await asyncio.sleep(LOOK_S)
    unloaded = unloaded._replace(held_ms=holds.longest_s * 1000)
    holds.begin("close")
    await coordinator.close()
    return [loaded, unloaded]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--commits", type=int, default=1_000_000, help="of all groups together, each of a partition")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    console = Console(width=130)
    console.print(f"Making {options.commits:,} commits of {options.groups:,} groups ...")
    keep_large_buffers()
    holds = Holds()
    with tempfile.TemporaryFile(prefix="klamm-load-") as file:
        rows = holds.run(load(holds, FileLog(file, options.groups, options.commits), options.groups))
    table = Table(title=f"{options.groups:,} groups, {options.commits:,} commits (goals: {GOAL_S:g} s, {GOAL_MS:g} ms)")
    for heading in ("what", "s", "processor, s", "longest pass, ms"):
        table.add_column(heading, justify="right" if heading != "what" else "left")
    for row in rows:
        table.add_row(row.what, f"{row.seconds:.2f}", f"{row.processor_s:.2f}", f"{row.held_ms:.1f}")
    console.print(table)
    for row in rows:
        for line in holds.longest_of(row.what, 3):
            console.print(line, highlight=False)
    if options.json:
        Path(options.json).write_text(json.dumps([row._asdict() for row in rows], indent=1))


if __name__ == "__main__":
    main()
