"""Leader epochs after a crash: what the batches say counts, not a checkpoint that is ahead of the log."""

from pathlib import Path

import pytest
from tests.unit.log.support import Partition, batch, headers_of, values_of

from klamm.log.epochs import EpochEntry, LeaderEpochs
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log


def written(orders: Partition, *epochs: int) -> Log:
    """A log with one batch of two records for each of these leader epochs, not flushed."""
    log = orders.open()
    for number, epoch in enumerate(epochs):
        log.append_as_follower(batch(f"{number}a", f"{number}b", base_offset=2 * number, epoch=epoch))
    return log


def checkpoint(log: Log, *entries: tuple[int, int]) -> None:
    """Write `leader-epoch-checkpoint`."""
    epochs = LeaderEpochs([EpochEntry(*entry) for entry in entries])
    Path(log.directory, "leader-epoch-checkpoint").write_bytes(epochs.text())


@pytest.mark.parametrize(
    ("epochs", "stored", "expected"),
    [
        ((4, 4, 4), [(4, 0), (5, 2)], ((4, 0),)),  # a truncation to offset 2 was undone
        ((4, 4, 4), [(4, 0), (5, 1)], ((4, 0),)),
        ((4, 4, 5), [(4, 0), (5, 2)], ((4, 0), (5, 4))),
        ((4, 5, 6), [(4, 0), (6, 2)], ((4, 0), (5, 2), (6, 4))),
        ((4, 4, 4), [(3, 0), (5, 4)], ((4, 0),)),
        ((4, 5, 5), [(4, 0)], ((4, 0), (5, 2))),
        ((4, 4, 4), [(4, 0), (6, 6)], ((4, 0),)),
        ((4, 4, 4), [(4, 0)], ((4, 0),)),
    ],
)
def test_checkpointed_leader_epochs_that_contradict_recovered_batches_are_replaced(
    orders: Partition, epochs: tuple[int, ...], stored: list[tuple[int, int]], expected: tuple[tuple[int, int], ...]
) -> None:
    """A follower that keeps an epoch of the checkpoint alone does not truncate what its leader does not have."""
    checkpoint(written(orders, *epochs), *stored)

    back = orders.open()

    assert back.epochs.entries == expected
    assert back.end_offset == 2 * len(epochs)
    assert back.has_changed_small_files == (tuple(stored) != expected)


def test_log_recovery_truncates_at_an_unflushed_batch_with_a_lower_leader_epoch(orders: Partition) -> None:
    """A power loss kept a batch of the new leader and undid the truncation before it."""
    log = written(orders, 4, 5, 5)
    name = log.segments.active.log_path
    content = bytearray(Path(name).read_bytes())
    third = len(content) // 3
    content[2 * third + 12 : 2 * third + 16] = (4).to_bytes(4, "big")  # the leader epoch lies outside the CRC
    Path(name).write_bytes(content)

    back = orders.open()

    assert values_of(back) == ["0a", "0b", "1a", "1b"]
    assert back.epochs.entries == ((4, 0), (5, 2))
    assert "the batch has the leader epoch 4, but the batch before has 5" in back.notes[0]


def test_log_recovery_keeps_a_flushed_batch_with_a_lower_leader_epoch(orders: Partition) -> None:
    log = written(orders, 4, 5, 5)
    name = log.segments.active.log_path
    content = bytearray(Path(name).read_bytes())
    content[2 * (len(content) // 3) + 15] = 4
    Path(name).write_bytes(content)

    back = orders.open(CheckpointedState(recovery_point=6))

    assert [header.partition_leader_epoch for header in headers_of(back)] == [4, 5, 4]


def test_leader_epochs_are_read_from_batches_after_a_kill_that_left_the_checkpoints_before_a_truncation(
    orders: Partition,
) -> None:
    """Followers would keep records of the earlier leader epoch where this log has others."""
    log = orders.open()
    for _ in range(10):
        log.append_as_leader(batch("old"), 0)
    log.close()
    log = orders.open(CheckpointedState(True, 10))
    log.truncate_to(5)
    log.append_as_leader(batch("new"), 2)
    log.roll()
    log.append_as_leader(batch("newer"), 2)

    assert orders.open(CheckpointedState(False, 10)).epochs.entries == ((0, 0), (2, 5))
