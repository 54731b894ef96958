"""A replica whose log may lack records before later ones, after a power loss: as follower and as leader."""

import pytest
from tests.support.memory_log import batch
from tests.support.replica_cluster import P0, ReplicaCluster, leader_and_isr
from tests.unit.replication.runs import Run
from tests.unit.replication.scripted_leader import Follow, Leader, answer, data, settle

from klamm.model.errors import ErrorCode
from klamm.replication.fetcher import Fetcher
from klamm.wire.messages import FetchResponseEpochEndOffset


def follow_again(cluster: ReplicaCluster, fetcher: Fetcher, possible_loss: int) -> None:
    """Fetch from the leader in a newer leader epoch, as after a start that found the possible loss."""
    cluster.log(1).possible_loss = possible_loss
    fetcher.add(P0, cluster.partition(1), 4)


def test_a_follower_fetches_from_a_possible_loss_and_truncates_its_log_there_once_the_leader_answers(
    follow: Follow,
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        follow_again(cluster, fetcher, 1)
        await settle()
        log = cluster.log(1)
        assert leader.fetches() == [[(0, 1, 2)], [(0, 4, 2)]]
        assert log.truncations == [1]
        assert log.fillers() == [b"old", b"new", b"new", b"new"]
        assert log.is_durable

    again = b"".join(batch(base=offset, epoch=2, filler=b"new") for offset in (1, 2, 3))
    follow(scenario, answer(data(records=again, high_watermark=3)), records=(3,))


def test_a_follower_keeps_its_log_after_a_possible_loss_while_its_leader_does_not_answer(follow: Follow) -> None:
    """The broker may become leader instead."""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        follow_again(cluster, fetcher, 1)
        await settle()
        assert leader.fetches() == [[(0, 1, 2)]]
        assert cluster.log(1).truncations == []

    follow(scenario, answer(data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)), records=(3,))


POSITIONS = {
    "in the newest epoch": (4, (4, 4, 3)),
    "in an earlier epoch": (3, (3, 4, 0)),
    "before the first epoch": (2, (2, 4, -1)),
    "at the log start": (0, (0, 4, -1)),
}
"""Possible loss -> fetch offset, leader epoch, last fetched epoch."""


@pytest.mark.parametrize(("possible_loss", "expected"), POSITIONS.values(), ids=POSITIONS)
def test_a_follower_fetches_from_a_possible_loss_with_the_epoch_of_the_batch_before_it(
    follow: Follow, possible_loss: int, expected: tuple[int, int, int]
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        log = cluster.log(1)
        for epoch in (-1, -1, 0, 3, 3):
            log.append_as_follower(batch(base=log.end_offset, epoch=epoch, filler=b"old"))
        follow_again(cluster, fetcher, possible_loss)
        assert (fetcher._followed[P0].position()[1:4], log.truncations) == (expected, [])
        await settle()
        assert log.truncations == [expected[0]], "once the leader has answered"
        assert leader.fetches()[0] == [(0, expected[0], expected[2])]

    follow(scenario, answer(data(high_watermark=9)), records=(0,))


def test_a_log_without_leader_epochs_is_truncated_to_its_high_watermark_below_a_possible_loss(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        log = cluster.log(1)
        for offset in range(4):
            log.append_as_follower(batch(base=offset))
        log.update_high_watermark(1)
        follow_again(cluster, fetcher, 2)
        assert log.truncations == [1]
        await settle()
        assert leader.fetches() == [[(0, 1, -1)], []]
        assert not fetcher.failed

    follow(scenario, answer(data(high_watermark=1)), records=(0,))


def test_a_log_that_diverged_before_a_possible_loss_is_truncated_as_any_other(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        follow_again(cluster, fetcher, 2)
        await settle()
        log = cluster.log(1)
        assert (log.truncations, log.possible_loss) == ([1], None)
        assert leader.fetches() == [[(0, 2, 2)], [(0, 1, 2)]]

    diverging = FetchResponseEpochEndOffset(epoch=2, end_offset=1)
    follow(scenario, answer(data(diverging_epoch=diverging)), records=(4,))


def test_a_follower_whose_possible_loss_is_below_the_leaders_log_start_copies_the_log_from_there(
    follow: Follow,
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        follow_again(cluster, fetcher, 1)
        await settle()
        log = cluster.log(1)
        assert (log.start_offset, log.end_offset, log.truncations) == (2, 2, [1])
        assert leader.fetches()[-1] == [(0, 2, -1)]

    follow(scenario, answer(data(error=ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=(9, 2))


def test_a_leader_keeps_its_log_after_a_possible_loss(run: Run) -> None:
    """No other replica may have the records; followers copy the log as it is, so it is not truncated later either."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2), 3, 1), 7)
        log = cluster.log(1)
        for offset in range(3):
            log.append_as_follower(batch(base=offset, epoch=3))
        log.possible_loss = 1
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(1, (1,), (1, 2), 4, 1), 7)
        assert (log.end_offset, log.truncations) == (3, [])
        assert not log.possible_loss

    run(scenario)
