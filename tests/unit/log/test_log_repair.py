"""Damaged segments on a simulated disk: found by the scrubber, repaired with records from elsewhere, over kills."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.managed_logs import get_or_create
from tests.unit.log.simulated_node import DIRECTORY, Killed, SimulatedNode, kill_at
from tests.unit.log.support import ORDERS, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import StorageFailed
from klamm.log.file_slice import FileSlice
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.repair.checking import DamagedRange
from klamm.log.repair.scrubber import LogScrubber
from klamm.log.repair.segment_repair import CannotRepair, repair_segment
from klamm.log.settings import ScrubberSettings
from klamm.runtime.disk import Buffer
from klamm.runtime.workers import InlineWorkers, WorkerFailed
from klamm.wire.records import CorruptRecords

FILES = f"{DIRECTORY}/{ORDERS}"
OVERRIDES = {"orders": {"segment.bytes": "1000", "index.interval.bytes": "200", "file.delete.delay.ms": "1000"}}
VALUES = [f"value-{number:03}" for number in range(40)]


class DamagedNode(SimulatedNode):
    """A node with one log of several segments; `intact` is what another replica has."""

    def __init__(self) -> None:
        super().__init__()
        self.intact: dict[int, bytes] = {}

    def fill(self, logs: LogManager) -> Log:
        """Write the values, one batch each; all are replicated and flushed."""
        log = get_or_create(logs, ORDERS, TopicConfig.parse(OVERRIDES["orders"]), None, is_new=True)
        for value in VALUES:
            first = log.end_offset
            log.append_as_leader(batch(value), 3)
            self.intact[first] = bytes(log.read(first, 1).records)  # type: ignore[arg-type]
        log.update_high_watermark(log.end_offset)
        log.flush_now()
        return log

    def damage(self, log: Log, *offsets: int, at: int = 70) -> None:
        """Change a byte of each of these batches on the disk."""
        for offset in offsets:
            segment = log.segments.from_slot(log.segments.slot_of(offset))[0]
            found = segment.find(offset)
            assert found is not None
            inode = self.disk.inode(segment.log_path)
            assert inode is not None
            inode.flip_bit((found.position + at) * 8)

    async def fetch(self, damage: DamagedRange) -> AsyncIterator[Buffer]:
        """The other replica's batches of this range, one at a time."""
        for offset in range(damage.first_offset, damage.end_offset):
            yield self.intact[offset]

    async def repair(self, log: Log) -> None:
        for segment in [segment for segment in log.segments if segment.damaged]:
            await repair_segment(self.world, InlineWorkers(), log, segment, self.fetch)


async def scrub(node: DamagedNode, logs: LogManager, settings: ScrubberSettings | None = None) -> LogScrubber:
    """One pass over all segments."""
    scrubber = LogScrubber(node.world, logs, settings or ScrubberSettings())
    scrubber.start()
    while scrubber.last_pass_ms is None:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(0.1)
    await scrubber.close()
    return scrubber


def in_damaged_node(main: Any) -> None:
    node = DamagedNode()

    async def life(logs: LogManager) -> None:
        await main(node, logs, node.fill(logs))

    node.run(life, OVERRIDES)


def test_the_log_scrubber_reports_damaged_records_and_counts_them_once() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5, 6, 17)
        reported: list[Log] = []
        scrubber = LogScrubber(node.world, logs, ScrubberSettings(interval_ms=1_000))
        scrubber.on_damage = reported.append
        with capture_logs() as lines:
            scrubber.start()
            await asyncio.sleep(30)
            await scrubber.close()
        errors = [line for line in lines if line["log_level"] == "error"]
        assert [(line["partition"], line["offsets"]) for line in errors] == [
            ("orders-0", "5 to 6"),
            ("orders-0", "17 to 17"),
        ]
        assert all(line["file"].startswith(FILES) and "CRC" in line["reason"] for line in errors)
        assert (scrubber.damaged_ranges, scrubber.unrepaired_ranges()) == (2, 2)
        assert len(reported) > 2
        assert set(reported) == {log}

    in_damaged_node(main)


def test_the_log_scrubber_changes_nothing_in_an_intact_log() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        scrubber = await scrub(node, logs)
        assert scrubber.damaged_ranges == 0
        closed = list(log.segments)[:-1]
        assert scrubber.read_bytes == sum(segment.size for segment in closed) > 0

    in_damaged_node(main)


def test_the_log_scrubber_respects_its_rate_limit() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        began = asyncio.get_running_loop().time()
        scrubber = await scrub(node, logs, ScrubberSettings(bytes_per_second=100))
        took_s = asyncio.get_running_loop().time() - began
        assert scrubber.read_bytes / 100 <= took_s <= scrubber.read_bytes / 100 + 1

    in_damaged_node(main)


def test_the_log_scrubber_with_rate_0_checks_only_offsets_reported_by_readers() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5, 17)
        scrubber = LogScrubber(node.world, logs, ScrubberSettings(bytes_per_second=0))
        scrubber.start()
        await asyncio.sleep(100)
        assert scrubber.read_bytes == 0
        scrubber.check_soon(ORDERS, 17)
        await asyncio.sleep(1)
        assert [d.first_offset for s in log.segments for d in s.damaged] == [17]
        await scrubber.close()

    in_damaged_node(main)


def test_a_damage_report_for_the_active_segment_rolls_and_checks_that_segment() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        active = log.segments.active
        node.damage(log, log.end_offset - 1)
        scrubber = LogScrubber(node.world, logs, ScrubberSettings(bytes_per_second=0))
        scrubber.start()
        scrubber.check_soon(ORDERS, log.end_offset - 1)
        await asyncio.sleep(1)
        await scrubber.close()
        assert log.segments.active is not active
        assert [d.first_offset for d in active.damaged] == [len(VALUES) - 1]

    in_damaged_node(main)


def test_an_io_error_while_a_suspect_segment_is_rolled_does_not_end_the_log_scrubber(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5)
        scrubber = LogScrubber(node.world, logs, ScrubberSettings(bytes_per_second=0))
        scrubber.start()

        def fail(log: Log) -> None:
            raise StorageFailed("the disk is broken")

        monkeypatch.setattr(Log, "roll", fail)
        scrubber.check_soon(ORDERS, log.end_offset - 1)
        await asyncio.sleep(1)
        scrubber.check_soon(ORDERS, 5)
        await asyncio.sleep(1)
        await scrubber.close()

        assert [d.first_offset for s in log.segments for d in s.damaged] == [5]

    in_damaged_node(main)


def test_a_suspect_segment_is_checked_again_after_its_worker_process_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 17)
        scrubber = LogScrubber(node.world, logs, ScrubberSettings(bytes_per_second=0))
        scrubber.start()

        async def fail(*_: object) -> None:
            monkeypatch.undo()
            raise WorkerFailed("the process ended")

        monkeypatch.setattr(InlineWorkers, "run", fail)
        scrubber.check_soon(ORDERS, 17)
        await asyncio.sleep(100)
        await scrubber.close()

        assert [d.first_offset for s in log.segments for d in s.damaged] == [17]

    in_damaged_node(main)


def test_reading_a_damaged_range_of_a_log_fails_while_intact_batches_are_readable() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5)
        await scrub(node, logs)
        size = len(node.intact[0])
        assert len(log.read(3, 1 << 20).records) == 2 * size
        assert len(log.slice(3, 1 << 20, log.end_offset, True).records) == 2 * size
        with pytest.raises(CorruptRecords, match="offsets 5 to 5 are damaged"):
            log.read(5, 1 << 20)
        assert log.read(6, 1).records == node.intact[6]

    in_damaged_node(main)


def test_repairing_a_damaged_range_restores_its_records_from_another_replica() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        ends = log.start_offset, log.end_offset, [segment.base_offset for segment in log.segments]
        node.damage(log, 0, 5, 6, 17)
        node.damage(log, 20, at=8)  # the length
        await scrub(node, logs)
        await node.repair(log)
        assert values_of(log) == VALUES
        assert (log.start_offset, log.end_offset, [segment.base_offset for segment in log.segments]) == ends
        assert not any(segment.damaged for segment in log.segments)
        for offset in range(len(VALUES)):
            assert log.read(offset, 1).records == node.intact[offset]
        assert (await scrub(node, logs)).damaged_ranges == 0
        log.append_as_leader(batch("more"), 3)

    in_damaged_node(main)


def test_readers_of_a_segment_keep_their_bytes_while_the_segment_is_repaired() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        held = log.slice(0, 1 << 20, log.end_offset, True).records
        assert isinstance(held, FileSlice)
        node.damage(log, 5)
        await scrub(node, logs)
        await node.repair(log)
        assert (await held.read(0, len(node.intact[0]))) == node.intact[0]

    in_damaged_node(main)


def test_a_repair_with_batches_that_do_not_fit_leaves_the_segment_unchanged() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5)
        await scrub(node, logs)
        node.intact[5] = node.intact[9]
        with pytest.raises(CannotRepair, match="do not fit"):
            await node.repair(log)
        assert sum(len(segment.damaged) for segment in log.segments) == 1
        assert not log.cleaning.is_running
        assert [name for name in node.disk.list_directory(FILES) if "cleaned" in name or "swap" in name] == []

    in_damaged_node(main)


def test_a_log_truncation_during_a_repair_cancels_the_repair() -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5)
        await scrub(node, logs)
        fetched = node.fetch

        async def truncate_first(damage: DamagedRange) -> AsyncIterator[Buffer]:
            log.truncate_to(3)
            async for content in fetched(damage):
                yield content

        node.fetch = truncate_first  # type: ignore[method-assign]
        with pytest.raises((CannotRepair, CorruptRecords)):
            await node.repair(log)
        assert values_of(log) == VALUES[:3]
        assert not any(segment.damaged for segment in log.segments)

    in_damaged_node(main)


@pytest.mark.parametrize("end", [6, 0], ids=["the segment is the last one now", "the segment is gone"])
def test_a_log_truncation_before_a_repair_cancels_the_repair(end: int) -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5)
        await scrub(node, logs)
        [segment] = [segment for segment in log.segments if segment.damaged]
        if end:
            log.truncate_to(end)
        else:
            log.truncate_fully_and_start_at(0)
            for value in VALUES[:9]:
                log.append_as_leader(batch(value), 4)
            log.roll()

        with pytest.raises(CannotRepair, match="was truncated before the repair"):
            await repair_segment(node.world, InlineWorkers(), log, segment, node.fetch)

    in_damaged_node(main)


@pytest.mark.parametrize("blocked", ["running", "paused"])
def test_repairing_a_log_that_is_being_compacted_or_copied_is_refused(blocked: str) -> None:
    async def main(node: DamagedNode, logs: LogManager, log: Log) -> None:
        node.damage(log, 5)
        await scrub(node, logs)
        if blocked == "running":
            log.cleaning.begin(10)
        else:
            log.cleaning.pause()
        with pytest.raises(CannotRepair, match="compacted"):
            await node.repair(log)

    in_damaged_node(main)


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_file_operation_of_a_log_repair_loses_no_record(loses_power: bool) -> None:
    for operation in range(1, 300):
        node = DamagedNode()
        if not _mend_until_killed(node, operation):
            assert operation > 20, "the repair does too little for this test"
            return
        node.restart_after_crash(loses_power=loses_power)

        async def check(logs: LogManager) -> None:
            log = logs.logs[ORDERS]
            assert log.end_offset == len(VALUES), operation  # noqa: B023
            log.update_high_watermark(log.end_offset)
            await scrub(node, logs)  # noqa: B023
            damaged = [d.first_offset for segment in log.segments for d in segment.damaged]
            assert damaged in ([], [5, 8]), operation  # noqa: B023
            await node.repair(log)  # noqa: B023
            assert values_of(log) == VALUES, operation  # noqa: B023

        node.run(check, OVERRIDES)
    pytest.fail("a repair has more than 300 file operations")


def _mend_until_killed(node: DamagedNode, operation: int) -> bool:
    """Kill the process at this file operation of the repair; False where there are fewer."""

    async def main(logs: LogManager) -> None:
        log = node.fill(logs)
        await logs.write_small_files()
        await logs.write_recovery_points()
        node.disk.sync_filesystem("/")
        node.damage(log, 5, 8)
        await scrub(node, logs)
        node.disk.fault = kill_at(operation)
        await node.repair(log)
        node.disk.fault = lambda call, path: None

    try:
        node.run(main)
    except Killed:
        return True
    return False
