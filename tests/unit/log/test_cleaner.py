"""The log cleaner on real logs of a simulated disk: what readers find, kills at every step, changes meanwhile."""

import asyncio
import errno
from itertools import count
from typing import NamedTuple, Self

import pytest
from structlog.testing import capture_logs
from tests.unit.log.compaction import COMPACTED, Content, Workload, cleaner, committed, compacted_log, last_values
from tests.unit.log.simulated_node import DIRECTORY, Killed, SimulatedNode, kill_at
from tests.unit.log.support import ORDERS, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.file_slice import FileSlice
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.settings import CleanerSettings
from klamm.log.transactions import AbortedTransaction
from klamm.runtime.workers import InlineWorkers
from klamm.wire.records import NewRecord, build_batch

OVERRIDES = {"orders": COMPACTED}


class CleanerNode(SimulatedNode):
    async def clean(self, logs: LogManager, settings: CleanerSettings | None = None) -> int:
        """Clean until nothing is due; how many cleanings it took."""
        one = cleaner(self.world, logs, settings)
        count = 0
        while await one.clean_next(InlineWorkers()):
            count += 1
            assert count < 100, "the cleaner makes no progress"
        return count


@pytest.mark.parametrize("seed", range(25))
def test_log_compaction_keeps_the_last_committed_value_of_every_key_over_several_runs(seed: int) -> None:
    node, workload = CleanerNode(seed), Workload(seed)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        for _ in range(4):
            workload.append(log, 25, node.clock.ms)
            before, end = committed(log), log.end_offset
            assert await node.clean(logs)

            after = committed(log)
            assert last_values(log) == workload.values
            assert log.end_offset == end
            assert after.items() <= before.items(), "a record changed"
            clean_keys = [key for offset, (key, _, _) in after.items() if offset < (log.cleaning.first_dirty or 0)]
            assert len(clean_keys) == len(set(clean_keys)), "a key has two records in the clean part"
            node.clock.ms += 700

    node.run(main)


@pytest.mark.parametrize("seed", range(25))
def test_recovery_of_a_compacted_log_restores_the_same_producers_and_aborted_transactions(seed: int) -> None:
    node, workload = CleanerNode(seed), Workload(seed)
    producers: dict[int, tuple[int, int]] = {}

    def state(log: Log) -> dict[int, tuple[int, int]]:
        return {producer_id: (p.epoch, p.last_sequence) for producer_id, p in log.producers.by_id.items()}

    async def compact(logs: LogManager) -> None:
        log = compacted_log(logs)
        for _ in range(3):
            workload.append(log, 20, node.clock.ms)
            await node.clean(logs)
            node.clock.ms += 2_000
        producers.update(state(log))
        await logs.write_small_files()

    async def recover(logs: LogManager) -> None:
        log = logs.logs[ORDERS]
        assert state(log) == producers
        assert last_values(log) == workload.values

    node.run(compact)
    for name in node.disk.list_directory(f"{DIRECTORY}/{ORDERS}"):
        if name.endswith((".snapshot", ".index", ".timeindex", ".txnindex")):
            node.disk.remove(f"{DIRECTORY}/{ORDERS}/{name}")
    node.run(recover, OVERRIDES)


class Found(NamedTuple):
    """What a log has: records that readers of committed records get, and aborted transactions."""

    records: Content
    aborted: frozenset[AbortedTransaction]
    segments: int

    @classmethod
    def of(cls, log: Log) -> Self:
        aborted = frozenset(log.aborted_transactions(log.start_offset, log.end_offset))
        return cls(committed(log), aborted, len(log.segments))

    def is_between(self, before: "Found", after: "Found") -> bool:
        """Whether it has no more than before a cleaning, and no less than after it."""
        are_records = after.records.items() <= self.records.items() <= before.records.items()
        return are_records and after.aborted <= self.aborted <= before.aborted


@pytest.mark.parametrize(
    ("seed", "loses_power", "first"),
    [(5, False, 1), (9, False, 2), (5, True, 3), (9, True, 4)],
    ids=["kill-5", "kill-9", "power loss-5", "power loss-9"],
)
def test_a_crash_at_any_file_operation_of_log_compaction_loses_no_value(
    seed: int, loses_power: bool, first: int, request: pytest.FixtureRequest
) -> None:
    """Each plays every fourth operation, together all; `make prove ONLY=properties` plays all four with each."""
    operations = count(1) if request.config.getoption("--every-crash") else count(first, 4)
    whole = Cleaned(seed)
    assert not whole.run_until_killed(at=10_000)
    before, after = whole.before, whole.after
    assert after.segments < before.segments - 1, "no segment replaces several"
    assert after.aborted, "no marker of an aborted transaction is left"
    for operation in operations:
        one = Cleaned(seed)
        if not one.run_until_killed(at=operation):
            assert operation > 60, "the cleaning does too little for this test"
            return
        one.node.restart_after_crash(loses_power=loses_power)
        one.check(before, after, f"operation {operation}")


class Cleaned:
    """A log that was compacted once, and got more records; its next cleaning makes one segment of several."""

    def __init__(self, seed: int) -> None:
        self.node, self.workload = CleanerNode(seed), Workload(seed)
        self.before = self.after = Found({}, frozenset(), 0)

    def run_until_killed(self, at: int) -> bool:
        """Kill the process at this file operation of the cleaning; False where there are fewer."""

        async def main(logs: LogManager) -> None:
            log, node = compacted_log(logs), self.node
            self.workload.append(log, 12, node.clock.ms)
            await node.clean(logs)
            for _ in range(4):
                self.workload.append(log, 3, node.clock.ms)
            await logs.write_small_files()
            await logs.write_high_watermarks()
            await logs.write_recovery_points()
            node.disk.sync_filesystem("/")
            self.before = Found.of(log)
            node.disk.fault = kill_at(at)
            await node.clean(logs)
            node.disk.fault = lambda call, path: None
            self.after = Found.of(log)

        try:
            self.node.run(main)
        except Killed:
            return True
        return False

    def check(self, before: Found, after: Found, when: str) -> None:
        """What the next start finds is the log before the cleaning, after it, or in between, and it can be cleaned."""

        async def main(logs: LogManager) -> None:
            log = logs.logs[ORDERS]
            log.update_high_watermark(log.end_offset)
            assert Found.of(log).is_between(before, after), when
            assert last_values(log) == self.workload.values, when
            await self.node.clean(logs)
            assert committed(log) == after.records, when
            clean_up_to = log.cleaning.first_dirty or 0
            keys = [key for offset, (key, _, _) in committed(log).items() if offset < clean_up_to]
            assert len(keys) == len(set(keys)), f"{when}: a key has two records in the clean part"

        self.node.run(main, OVERRIDES)


def test_tombstones_are_kept_for_delete_retention_ms_after_the_first_compaction() -> None:
    node = CleanerNode()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)

        def append(*pairs: tuple[str, str | None]) -> None:
            for key, value in pairs:
                log.append_as_leader(_keyed(key, value, node.clock.ms), 1)
            log.update_high_watermark(log.end_offset)
            log.roll()
            log.flush_now()

        append(("a", "1"), ("b", "2"), ("a", None))
        await node.clean(logs)
        assert list(committed(log)) == [1, 2]
        append(("c", "3"))
        node.clock.ms += 999
        await node.clean(logs)
        assert list(committed(log)) == [1, 2, 3]
        append(("d", "4"))
        node.clock.ms += 1
        await node.clean(logs)
        assert list(committed(log)) == [1, 3, 4]

    node.run(main)


def test_a_log_that_is_compacted_from_its_start_again_loses_tombstones_whose_delete_horizon_has_passed() -> None:
    """One alone in its batch, and one beside a value."""
    node = CleanerNode()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        log.append_as_leader(_keyed("a", None, node.clock.ms), 1)
        log.append_as_leader(build_batch([NewRecord(None, b"b"), NewRecord(b"1", b"c")]), 1)
        log.update_high_watermark(log.end_offset)
        log.roll()
        log.flush_now()
        await node.clean(logs)
        assert list(committed(log)) == [0, 1, 2]
        log.cleaning.first_dirty = 0
        node.clock.ms += 1000
        await node.clean(logs)
        assert list(committed(log)) == [2]

    node.run(main)


def _keyed(key: str, value: str | None, now_ms: int) -> bytes:
    return build_batch([NewRecord(None if value is None else value.encode(), key.encode(), now_ms)])


def test_the_log_cleaner_with_an_offset_map_too_small_for_all_keys_takes_several_passes() -> None:
    node, workload = CleanerNode(7), Workload(7, keys=200)
    settings = CleanerSettings(dedupe_buffer_size=48 * 40, io_buffer_load_factor=1.0)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        workload.append(log, 150, node.clock.ms)
        assert await node.clean(logs, settings) > 3
        assert last_values(log) == workload.values
        assert log.cleaning.first_dirty == log.segments.active.base_offset

    node.run(main)


def test_the_log_cleaner_skips_a_log_with_too_many_keys_in_a_batch() -> None:
    node = CleanerNode()
    settings = CleanerSettings(dedupe_buffer_size=48 * 2, io_buffer_load_factor=1.0)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        workload = Workload(1)
        workload.append(log, 20, node.clock.ms)
        before = committed(log)
        assert await node.clean(logs, settings) == 0
        assert committed(log) == before

    with capture_logs() as lines:
        node.run(main)
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert (line["partition"], "log.cleaner.dedupe.buffer.size" in line["reason"]) == ("orders-0", True)


def test_a_corrupt_batch_makes_a_log_uncleanable_until_its_config_changes() -> None:
    node, workload = CleanerNode(3), Workload(3)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        workload.append(log, 30, node.clock.ms)
        path = log.segments.first.log_path
        good = node.disk.read(path)
        node.overwrite(path, good[:-1] + bytes([good[-1] ^ 1]))
        assert await node.clean(logs) == 0
        assert log.cleaning.why_uncleanable is not None
        assert path in log.cleaning.why_uncleanable

        node.overwrite(path, good)
        assert await node.clean(logs) == 0
        log.update_config(TopicConfig.parse(COMPACTED | {"retention.ms": "7"}))
        assert await node.clean(logs) == 1
        assert last_values(log) == workload.values

    node.run(main)


def test_log_compaction_stopped_by_a_full_disk_succeeds_once_there_is_space() -> None:
    node, workload = CleanerNode(4), Workload(4)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        workload.append(log, 30, node.clock.ms)
        node.disk.fault = lambda call, path: errno.ENOSPC if call == "write" and path.endswith(".cleaned") else None
        assert await node.clean(logs) == 0
        assert not log.has_failed
        assert not [name for name in node.disk.list_directory(log.directory) if name.endswith(".cleaned")]

        node.disk.fault = lambda call, path: None
        assert await node.clean(logs) == 1
        assert last_values(log) == workload.values

    node.run(main)


def test_an_io_error_during_log_compaction_takes_the_log_directory_offline() -> None:
    node, workload = CleanerNode(4), Workload(4)

    async def main(logs: LogManager) -> None:
        workload.append(compacted_log(logs), 30, node.clock.ms)
        node.disk.fault = lambda call, path: errno.EIO if path.endswith(".cleaned") else None
        assert await node.clean(logs) == 0
        assert list(logs.offline_directories) == [DIRECTORY]

    node.run(main)


def test_a_truncation_during_log_compaction_discards_the_compaction() -> None:
    """What the cleaning removed may be all that the truncation left of a key."""
    node = CleanerNode()
    logs_of: list[Log] = []

    class TruncatingWorkers(InlineWorkers):
        calls = 0

        async def run(self, call, *args, **kwargs):  # type: ignore[no-untyped-def]
            result = await super().run(call, *args, **kwargs)
            self.calls += 1
            if self.calls == 2:
                logs_of[0].truncate_to(2)
            return result

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        logs_of.append(log)
        for value in ("first", "other", "last"):
            log.append_as_leader(batch(value, key=b"k" if value != "other" else b"o"), 1)
            log.roll()
        log.update_high_watermark(log.end_offset)
        log.flush_now()
        assert not await cleaner(node.world, logs).clean_next(TruncatingWorkers())
        assert values_of(log) == ["first", "other"]
        assert log.cleaning.first_dirty in (None, 0, 1, 2)

    node.run(main)


def test_a_truncation_during_the_swap_of_compacted_segments_removes_their_files() -> None:
    """A start after a crash would finish the swap and bring truncated records back."""
    node = CleanerNode()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        for value in ("first", "other", "last"):
            log.append_as_leader(batch(value, key=value.encode()), 1)
            log.roll()
        log.update_high_watermark(log.end_offset)
        log.flush_now()

        def truncate(call: str, path: str) -> int | None:
            if call == "sync" and path == log.directory and not log.cleaning.is_void:
                node.disk.fault = lambda call, path: None
                log.truncate_to(1)
                assert not [name for name in node.disk.list_directory(log.directory) if name.endswith(".swap")]
            return None

        node.disk.fault = truncate
        assert not await cleaner(node.world, logs).clean_next(InlineWorkers())
        assert values_of(log) == ["first"]

    node.run(main)


def test_readers_of_a_log_keep_their_old_segments_after_compaction_replaced_them() -> None:
    node, workload = CleanerNode(5), Workload(5)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        workload.append(log, 30, node.clock.ms)
        before = log.read(0, 1 << 20).records
        lent = log.slice(0, 1 << 20, log.end_offset, min_one_message=True).records
        await node.clean(logs)
        assert isinstance(lent, FileSlice)
        assert await lent.read(0, len(lent)) == before

    node.run(main)


def test_log_compaction_continues_at_the_cleaner_checkpoint_after_a_clean_restart() -> None:
    node, workload = CleanerNode(6), Workload(6)

    async def compact(logs: LogManager) -> int | None:
        log = compacted_log(logs)
        workload.append(log, 30, node.clock.ms)
        await node.clean(logs)
        await logs.close()
        return log.cleaning.first_dirty

    async def first_dirty(logs: LogManager) -> int | None:
        return logs.logs[ORDERS].cleaning.first_dirty

    assert node.run(compact) == node.run(first_dirty, OVERRIDES) is not None


def test_log_compaction_keeps_producer_snapshots_only_at_base_offsets_of_remaining_segments() -> None:
    node, workload = CleanerNode(6), Workload(6)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        for _ in range(3):
            log.roll()
            workload.append(log, 3, node.clock.ms)
        log.advance_start_offset(log.segments.from_slot(1)[0].base_offset)
        log.delete_old_segments()
        await node.clean(logs)
        names = node.disk.list_directory(log.directory)
        kept = [int(name.partition(".")[0]) for name in names if name.endswith(".snapshot")]
        assert kept == [segment.base_offset for segment in log.segments]

    node.run(main)


def test_the_cleaner_checkpoint_omits_a_deleted_log() -> None:
    """Otherwise a new topic of the name would count as cleaned up to there."""
    node, workload = CleanerNode(6), Workload(6)
    path = f"{DIRECTORY}/cleaner-offset-checkpoint"

    async def main(logs: LogManager) -> None:
        workload.append(compacted_log(logs), 30, node.clock.ms)
        await node.clean(logs)
        assert b"orders 0" in node.disk.read(path)
        logs.delete(ORDERS)
        await asyncio.sleep(1)
        assert b"orders 0" not in node.disk.read(path)

    node.run(main)


def test_the_threads_of_the_log_cleaner_share_its_io_rate_limit() -> None:
    node, workload = CleanerNode(6), Workload(6)
    settings = CleanerSettings(threads=2, io_max_bytes_per_second=1_000)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        workload.append(log, 30, node.clock.ms)
        size, began = log.size, asyncio.get_running_loop().time()
        await node.clean(logs, settings)
        took_s = asyncio.get_running_loop().time() - began
        assert 2 * size / 500 <= took_s <= 3 * size / 500, "the log is read twice and written once, at half of the rate"

    node.run(main)


def test_logs_with_cleanup_policy_delete_are_not_compacted() -> None:
    node, workload = CleanerNode(6), Workload(6)

    async def main(logs: LogManager) -> None:
        workload.append(compacted_log(logs, cleanup_policy="delete"), 30, node.clock.ms)
        assert await node.clean(logs) == 0

    node.run(main)
