"""Gaps that compaction leaves in a log are never taken for records that a power loss took."""

import random
from itertools import accumulate

import pytest
from tests.unit.log.compaction import COMPACTED, cleaner, committed, compacted_log
from tests.unit.log.simulated_node import DIRECTORY, SimulatedNode
from tests.unit.log.support import NOW_MS, ORDERS, batch, headers_of

from klamm.log.checkpoints import CLEANED_OFFSETS, RECOVERY_POINTS, offsets_text, parse_offsets
from klamm.log.manager import LogManager
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import InlineWorkers
from klamm.sim.power_loss import PowerLoss
from klamm.wire.records import NewRecord, build_batch


def append(logs: LogManager, key: str, value: str | None, now_ms: int) -> None:
    """Append one record in a segment of its own; it is replicated and flushed, and the active segment is empty."""
    log = compacted_log(logs)
    log.append_as_leader(build_batch([NewRecord(None if value is None else value.encode(), key.encode(), now_ms)]), 1)
    log.update_high_watermark(log.end_offset)
    log.roll()
    log.flush_now()


def test_a_compacted_tombstone_at_the_log_end_leaves_the_log_end_where_it_was_after_power_loss() -> None:
    """Else its offset is given again, and consumers and followers that had seen the log end are ahead of the leader."""
    node = SimulatedNode()

    async def compact_all(logs: LogManager) -> None:
        append(logs, "a", "1", node.clock.ms)
        append(logs, "a", None, node.clock.ms)
        one = cleaner(node.world, logs)
        assert await one.clean_next(InlineWorkers())
        node.clock.ms += 1_000  # delete.retention.ms
        log = logs.logs[ORDERS]
        log.cleaning.first_dirty = 0
        assert await one.clean_next(InlineWorkers())
        assert (log.end_offset, committed(log)) == (2, {})

    node.run(compact_all)
    node.disk.lose_power()

    async def log_end(logs: LogManager) -> int:
        return logs.logs[ORDERS].end_offset

    assert node.run(log_end, {"orders": COMPACTED}) == 2


def test_the_recovery_point_of_a_log_is_on_the_device_before_compaction_replaces_a_segment() -> None:
    """A start then knows that no gap of compaction lies above the recovery point."""
    node = SimulatedNode()
    points: list[int] = []

    def record_point(call: str, path: str) -> int | None:
        if path.startswith(f"{DIRECTORY}/{ORDERS}/") and path.endswith(".swap"):
            content = node.disk.read(f"{DIRECTORY}/{RECOVERY_POINTS}")
            points.append(parse_offsets(content, RECOVERY_POINTS)[ORDERS])
        return None

    async def compact(logs: LogManager) -> None:
        for number in range(3):
            append(logs, "a", str(number), node.clock.ms)
        node.disk.fault = record_point
        assert await cleaner(node.world, logs).clean_next(InlineWorkers())

    node.run(compact)

    assert points
    assert set(points) == {3}


def test_compaction_writes_the_recovery_points_only_where_the_file_is_behind() -> None:
    node = SimulatedNode()
    writes: list[str] = []

    def record_write(call: str, path: str) -> int | None:
        if call == "rename" and path.startswith(f"{DIRECTORY}/{RECOVERY_POINTS}"):
            writes.append(path)
        return None

    async def compact(logs: LogManager) -> None:
        for number in range(3):
            append(logs, "a", str(number), node.clock.ms)
        await logs.write_recovery_points()
        node.disk.fault = record_write
        assert await cleaner(node.world, logs).clean_next(InlineWorkers())

    node.run(compact)

    assert writes == []


def test_a_log_is_not_compacted_where_its_recovery_point_cannot_be_written() -> None:
    node = SimulatedNode()

    def fail(call: str, path: str) -> int | None:
        return 5 if path.startswith(f"{DIRECTORY}/{RECOVERY_POINTS}") else None

    async def compact(logs: LogManager) -> None:
        for number in range(3):
            append(logs, "a", str(number), node.clock.ms)
        names = node.disk.list_directory(f"{DIRECTORY}/{ORDERS}")
        node.disk.fault = fail
        assert not await cleaner(node.world, logs).clean_next(InlineWorkers())
        assert ORDERS not in logs.logs, "the log directory is offline"
        assert node.disk.list_directory(f"{DIRECTORY}/{ORDERS}") == names

    node.run(compact)


def test_a_log_that_is_truncated_while_its_recovery_point_is_written_is_not_compacted() -> None:
    node = SimulatedNode()

    async def compact(logs: LogManager) -> None:
        for number in range(3):
            append(logs, "a", str(number), node.clock.ms)
        log = logs.logs[ORDERS]

        def truncate(call: str, path: str) -> int | None:
            if path.startswith(f"{DIRECTORY}/{RECOVERY_POINTS}") and log.end_offset > 1:
                log.truncate_to(1)
            return None

        node.disk.fault = truncate
        assert not await cleaner(node.world, logs).clean_next(InlineWorkers())
        assert list(committed(log)) == [0]
        assert f"{DIRECTORY}/{CLEANED_OFFSETS}" not in node.disk.list_directory(DIRECTORY)

    node.run(compact)


def lose_end_of_second_segment(node: SimulatedNode) -> None:
    """Leave three segments of which the second lost its batch, as a power loss may."""
    node.overwrite(f"{DIRECTORY}/{ORDERS}/{1:020d}.log", b"")


async def append_three(logs: LogManager) -> None:
    for number in range(3):
        append(logs, "a", str(number), NOW_MS)


async def possible_loss(logs: LogManager) -> int | None:
    return logs.logs[ORDERS].possible_loss


def test_a_start_knows_a_possible_loss_from_the_checkpoints_of_its_log_directory() -> None:
    node = SimulatedNode()
    node.run(append_three)
    lose_end_of_second_segment(node)
    node.overwrite(f"{DIRECTORY}/{RECOVERY_POINTS}", offsets_text({ORDERS: 1}))
    assert node.run(possible_loss, {"orders": COMPACTED}) == 1

    node.overwrite(f"{DIRECTORY}/{CLEANED_OFFSETS}", offsets_text({ORDERS: 2}))
    assert node.run(possible_loss, {"orders": COMPACTED}) is None


def test_a_log_that_is_younger_than_the_recovery_point_checkpoint_may_have_a_possible_loss() -> None:
    node = SimulatedNode()
    node.run(append_three)
    lose_end_of_second_segment(node)
    node.overwrite(f"{DIRECTORY}/{RECOVERY_POINTS}", offsets_text({TopicPartition("other", 0): 1}))

    assert node.run(possible_loss, {"orders": COMPACTED}) == 1


def test_without_recovery_points_no_gap_of_a_compacted_log_counts_as_a_possible_loss() -> None:
    """Else all followers of the node would copy their compacted logs again."""
    node = SimulatedNode()
    node.run(append_three)
    lose_end_of_second_segment(node)
    node.overwrite(f"{DIRECTORY}/{RECOVERY_POINTS}", b"rubbish")

    assert node.run(possible_loss, {"orders": COMPACTED}) is None


@pytest.mark.parametrize("how", [PowerLoss.BYTES, PowerLoss.REORDERED, PowerLoss.ALL])
def test_what_a_power_loss_took_from_a_follower_of_a_compacted_log_is_at_its_end_or_at_a_possible_loss(
    how: PowerLoss,
) -> None:
    """The leader's log has gaps; those that the follower copied are told from those that the power loss made."""
    losses = 0
    for seed in range(60):
        node, rng = SimulatedNode(seed), random.Random(seed)
        offsets = list(accumulate(rng.choice([1, 1, 7, 300]) for _ in range(40)))
        flushed = rng.randrange(40)

        async def copy(logs: LogManager) -> None:
            log = compacted_log(logs, segment_bytes="300")
            for number, offset in enumerate(offsets):  # noqa: B023
                log.append_as_follower(batch("v", base_offset=offset, epoch=1))
                if number == flushed:  # noqa: B023
                    log.flush_now()
                    node.disk.sync_filesystem("/")  # noqa: B023
                    await logs.write_recovery_points()

        async def found(logs: LogManager) -> tuple[list[int], int | None]:
            log = logs.logs[ORDERS]
            return [header.base_offset for header in headers_of(log)], log.possible_loss

        node.run(copy)
        assert node.run(found, {"orders": COMPACTED}) == (offsets, None), "a kill loses nothing"
        node.disk.lose_power(how)
        left, loss = node.run(found, {"orders": COMPACTED})
        before = left if loss is None else [offset for offset in left if offset < loss]
        assert before == offsets[: len(before)], f"{seed}: a record is missing before {loss}"
        assert len(before) > flushed, seed
        losses += loss is not None
    assert (losses > 0) == (how is not PowerLoss.ALL)
