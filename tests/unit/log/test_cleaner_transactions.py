"""End markers, emptied batches and timestamps: what a cleaning keeps besides the last value of each key."""

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.log.compaction import cleaner, compacted_log
from tests.unit.log.simulated_node import SimulatedNode

from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.producers import Origin
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.workers import InlineWorkers
from klamm.runtime.world import World
from klamm.wire.records import (
    BatchHeader,
    ControlType,
    EndMarker,
    NewRecord,
    TimestampType,
    build_batch,
    build_end_marker,
)
from klamm.wire.records.batch import DELETE_HORIZON_BIT

RETENTION_MS = 1_000


class Compaction:
    """One log, appended to and cleaned in turns."""

    def __init__(self, node: SimulatedNode, logs: LogManager) -> None:
        self.node = node
        self.log: Log = compacted_log(logs)
        self._cleaner = cleaner(World(node.clock, RealNetwork(), node.disk, RealRandomness()), logs)

    def data(self, *keys: str, producer: int = -1, sequence: int = -1) -> None:
        records = [NewRecord(b"v", key.encode(), self.node.clock.ms + i) for i, key in enumerate(keys)]
        content = build_batch(
            records,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=producer >= 0,
        )
        self.log.append_as_leader(content, 1, Origin.COORDINATOR)

    def marker(self, kind: ControlType, producer: int) -> None:
        end = build_end_marker(EndMarker(kind, 1), producer, 0, self.node.clock.ms, leader_epoch=1)
        self.log.append_as_leader(end, 1, Origin.COORDINATOR)

    @property
    def headers(self) -> list[BatchHeader]:
        return [found.header for segment in self.log.segments for found in segment.headers(0)]

    async def clean(self) -> list[tuple[int, int, int]]:
        """Close the segment and clean; base offset, last offset and record count of each batch that is left."""
        self.log.update_high_watermark(self.log.end_offset)
        self.log.roll()
        self.log.flush_now()
        while await self._cleaner.clean_next(InlineWorkers()):
            pass
        return [(h.base_offset, h.last_offset, h.record_count) for h in self.headers]


def run(main: Callable[[Compaction], Awaitable[None]]) -> None:
    node = SimulatedNode()

    async def with_log(logs: LogManager) -> None:
        await main(Compaction(node, logs))

    node.run(with_log)


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_transaction_marker_is_removed_delete_retention_ms_after_its_transactions_data(kind: ControlType) -> None:
    async def main(log: Compaction) -> None:
        log.data("a", producer=7, sequence=0)
        log.marker(kind, 7)
        log.data("b", producer=7, sequence=1)
        log.marker(ControlType.COMMIT, 7)
        log.data("a")
        first = await log.clean()
        assert (1, 1, 1) in first, "the cleaning saw data of the transaction"
        log.data("c")
        second = await log.clean()
        assert (0, 0, 1) not in second
        assert (1, 1, 1) in second
        assert [h.base_timestamp for h in log.headers if h.attributes & DELETE_HORIZON_BIT] == [
            log.node.clock.ms + RETENTION_MS
        ]
        log.node.clock.ms += RETENTION_MS - 1
        log.data("d")
        assert (1, 1, 1) in await log.clean()
        log.node.clock.ms += 1
        log.data("e")
        third = await log.clean()
        assert (1, 1, 1) not in third
        assert (3, 3, 1) in third, "data of the second transaction is left"

    run(main)


def test_the_index_entry_of_an_aborted_transaction_stays_while_its_marker_stays() -> None:
    async def main(log: Compaction) -> None:
        log.data("a", producer=7, sequence=0)
        log.marker(ControlType.ABORT, 7)
        log.data("z", producer=7, sequence=1)
        log.marker(ControlType.COMMIT, 7)
        await log.clean()
        assert [(a.producer_id, a.last_offset) for a in log.log.aborted_transactions(0, 9)] == [(7, 1)]
        log.data("b")
        await log.clean()
        log.data("c")
        await log.clean()
        assert log.log.aborted_transactions(0, 9) == []

    run(main)


def test_a_record_is_not_replaced_by_one_of_an_aborted_transaction_that_began_in_the_clean_part() -> None:
    async def main(log: Compaction) -> None:
        log.data("a")
        log.data("b", producer=7, sequence=0)
        log.data("a", producer=7, sequence=1)
        log.marker(ControlType.ABORT, 7)
        log.log.cleaning.first_dirty = 2  # the offset map of an earlier cleaning was full there

        assert (0, 0, 1) in await log.clean()

    run(main)


def test_log_compaction_keeps_the_header_of_an_active_producers_last_batch() -> None:
    async def main(log: Compaction) -> None:
        log.data("a", "b", producer=7, sequence=0)
        log.marker(ControlType.COMMIT, 7)
        log.data("a", "b")
        left = await log.clean()
        assert (0, 1, 0) in left
        (header,) = [h for h in log.headers if h.base_offset == 0]
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)

    run(main)


def test_log_compaction_keeps_a_marker_that_is_its_producers_last_batch() -> None:
    async def main(log: Compaction) -> None:
        log.marker(ControlType.COMMIT, 7)
        log.data("a")
        await log.clean()
        log.node.clock.ms += RETENTION_MS
        log.data("b")
        assert (0, 0, 0) in await log.clean()
        log.data("c")
        assert (0, 0, 0) in await log.clean()

    run(main)


def test_log_compaction_stops_before_the_first_open_transaction() -> None:
    async def main(log: Compaction) -> None:
        log.data("a")
        log.data("a")
        log.log.roll()
        log.data("k", producer=7, sequence=0)
        log.data("a")
        assert await log.clean() == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]

    run(main)


def test_a_compacted_batch_has_the_largest_timestamp_of_its_remaining_records() -> None:
    async def main(log: Compaction) -> None:
        log.data("a", "b")
        log.data("b")
        await log.clean()
        assert [h.max_timestamp for h in log.headers if h.base_offset == 0] == [log.node.clock.ms]

    run(main)


def test_log_compaction_keeps_the_log_append_time_of_a_batch() -> None:
    async def main(log: Compaction) -> None:
        records = [NewRecord(b"v", key, log.node.clock.ms) for key in (b"a", b"b")]
        append_time = log.node.clock.ms + 5
        content = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=append_time)
        log.log.append_as_follower(content)
        log.data("b")
        await log.clean()
        assert [h.max_timestamp for h in log.headers if h.base_offset == 0] == [append_time]

    run(main)


def test_log_retention_waits_for_the_end_of_a_running_compaction() -> None:
    async def main(log: Compaction) -> None:
        log.data("a")
        await log.clean()
        log.log.advance_start_offset(1)
        log.log.cleaning.begin(1)
        assert log.log.delete_old_segments() == 0
        log.log.cleaning.end()
        assert log.log.delete_old_segments() == 1

    run(main)


def test_compacted_segments_are_synced_to_disk_before_the_old_segments_are_renamed() -> None:
    """Otherwise a power loss may leave neither."""

    async def main(log: Compaction) -> None:
        log.data("a")
        log.data("a")
        calls: list[tuple[str, str]] = []

        def note(call: str, path: str) -> int | None:
            calls.append((call, path.removeprefix(log.log.directory)))
            return None

        log.node.disk.fault = note
        await log.clean()
        names = [f"{call} {path}" for call, path in calls if call == "rename" or (call, path) == ("sync", "")]
        old = names.index("rename /00000000000000000000.log")
        swap = names.index("rename /00000000000000000000.log.cleaned")
        assert "sync " in names[swap:old]

    run(main)
