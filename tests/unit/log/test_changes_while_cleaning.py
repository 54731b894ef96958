"""Truncations and changes of the config between two steps of the log cleaner."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.compaction import cleaner, compacted_log
from tests.unit.log.simulated_node import SimulatedNode
from tests.unit.log.support import ORDERS, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaner.sessions import end_cleaning
from klamm.log.cleaning_state import CleaningState
from klamm.log.leftovers import clear_leftovers, remove_cleaned_files
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.names import INDEX, LOG, TRANSACTION_INDEX, segment_file
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.runtime.workers import InlineWorkers

PAYMENTS = TopicPartition("payments", 0)


class Workers(InlineWorkers):
    """Calls `after` with the number of each call and what was called, once it is done."""

    def __init__(self, after: Callable[[int, object], None]) -> None:
        self._after = after
        self._calls = 0

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = await super().run(call, *args, **kwargs)
        self._calls += 1
        self._after(self._calls, call)
        return result


def with_three_segments(logs: LogManager, partition: TopicPartition = ORDERS) -> Log:
    """Three closed segments of one record each: the last one replaces the first."""
    log = compacted_log(logs, partition)
    for key, value in (("k", "first"), ("o", "other"), ("k", "last")):
        log.append_as_leader(batch(value, key=key.encode()), 1)
        log.roll()
    log.update_high_watermark(log.end_offset)
    log.flush_now()
    return log


def test_a_log_truncated_after_it_was_chosen_for_compaction_keeps_what_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its active segment lies below the end of the dirty range that was found before the truncation."""
    node = SimulatedNode()

    async def main(logs: LogManager) -> None:
        log, other = with_three_segments(logs), compacted_log(logs, PAYMENTS)
        await logs.write_recovery_points()
        chosen = cleaner(node.world, logs)
        find = chosen._dirty_range

        def truncate_meanwhile(looked_at: Log, now_ms: int) -> Any:
            if looked_at is other:
                log.truncate_to(2)
            return find(looked_at, now_ms)

        monkeypatch.setattr(chosen, "_dirty_range", truncate_meanwhile)

        def append(number: int, call: object) -> None:
            if number == 2:
                log.append_as_leader(batch("late", key=b"l"), 2)

        await chosen.clean_next(Workers(append))
        log.append_as_leader(batch("later", key=b"m"), 2)

        assert values_of(log)[-2:] == ["late", "later"]
        assert log.end_offset == 4

    node.run(main)


def test_a_log_truncated_while_its_compaction_ends_is_dirty_from_there_on() -> None:
    """A tombstone that is appended below the end of the compaction was not compared with earlier records."""
    node = SimulatedNode()

    async def main(logs: LogManager) -> None:
        log = with_three_segments(logs)

        def truncate(number: int, call: object) -> None:
            if call is end_cleaning:
                assert log.cleaning.first_dirty == 3
                log.truncate_to(2)

        await cleaner(node.world, logs).clean_next(Workers(truncate))

        assert log.cleaning.first_dirty == 2

    node.run(main)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_no_longer_compacted_ends_its_compaction(policy: str) -> None:
    node = SimulatedNode()

    async def main(logs: LogManager) -> None:
        log = with_three_segments(logs)

        def change(number: int, call: object) -> None:
            if number == 2:
                logs.update_topic_configs({"orders": TopicConfig.parse({"cleanup.policy": policy})})

        is_cleaned = await cleaner(node.world, logs).clean_next(Workers(change))

        assert is_cleaned == ("compact" in policy)
        assert values_of(log) == (["other", "last"] if is_cleaned else ["first", "other", "last"])

    node.run(main)


def test_a_log_is_not_compacted_again_before_the_files_of_a_cancelled_compaction_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With several threads another one may be looking for work: it would take the files for those of a process."""
    node = SimulatedNode()

    async def main(logs: LogManager) -> None:
        log = with_three_segments(logs)
        in_thread = node.disk.in_thread

        def truncate(number: int, call: object) -> None:
            if number == 2:
                log.truncate_to(2)

        async def clean_meanwhile(call: Callable[..., Any], *args: Any) -> Any:
            if call is remove_cleaned_files:
                monkeypatch.undo()
                assert not await cleaner(node.world, logs).clean_next(InlineWorkers())
            return await in_thread(call, *args)

        monkeypatch.setattr(node.disk, "in_thread", clean_meanwhile)
        await cleaner(node.world, logs).clean_next(Workers(truncate))

        assert log.cleaning.why_uncleanable is None
        assert await cleaner(node.world, logs).clean_next(InlineWorkers())

    node.run(main)


class StoppingDisk(RealDisk):
    """Makes `left` renames and removals; the process is killed at the next."""

    def __init__(self, left: int) -> None:
        self.left = left

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("operations", range(1, 4))
def test_a_kill_while_a_truncation_ends_a_compaction_leaves_the_files_of_the_segment(
    tmp_path: Path, operations: int
) -> None:
    """The index of aborted transactions of the compacted segment lacks those whose data are still in the segment."""
    names = [segment_file(0, kind) for kind in (LOG, INDEX, TRANSACTION_INDEX)]
    for name in names:
        (tmp_path / name).write_bytes(b"")
        (tmp_path / f"{name}.swap").write_bytes(b"compacted")
    state = CleaningState(StoppingDisk(operations))
    state.begin(10)
    state.on_swap_began([f"{tmp_path}/{name}.swap" for name in names])

    with contextlib.suppress(KeyboardInterrupt):
        state.on_truncated(5)
    clear_leftovers(RealDisk(), str(tmp_path))

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(names, b"")
