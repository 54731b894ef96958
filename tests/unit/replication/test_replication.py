"""Leaders and followers together: what becomes of logs that went different ways when leaders change."""

import asyncio

import pytest
from tests.support.replica_cluster import ReplicaCluster
from tests.unit.replication.fetching import now
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

NONE = ErrorCode.NONE


def test_a_follower_retries_soon_while_the_new_leader_lacks_its_leader_and_isr(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, partition=TopicPartition("orders", 1))
        await asyncio.sleep(2.1)
        start = now()
        await cluster.elect(1, tell=[2, 3])
        await asyncio.sleep(0.06)
        await cluster.elect(1, tell=[1], epoch=0)
        assert await cluster.produce(1) is NONE
        assert now() - start < 0.6

    run(scenario)


def test_a_waiting_produce_fails_at_once_when_the_leader_becomes_a_follower(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        produced = asyncio.create_task(cluster.produce(1))
        await asyncio.sleep(0.1)
        await cluster.elect(2)
        assert await produced is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert now() < 0.2

    run(scenario)


def test_records_acknowledged_with_acks_all_survive_leader_changes(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        acknowledged = []
        leaders = [1, 2, 3, 1, 3, 2]
        for n, leader in enumerate(leaders):
            await cluster.elect(leader)
            for k in range(3):
                value = b"%d-%d" % (n, k)
                assert await cluster.produce(leader, value) is NONE
                acknowledged.append(value)
        await asyncio.sleep(2)
        for b in (1, 2, 3):
            assert cluster.values(b) == acknowledged
            assert cluster.log(b).high_watermark == len(acknowledged)

    run_on(scenario)


def test_a_former_leader_truncates_records_that_were_not_replicated(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        assert await cluster.produce(1, b"a") is NONE
        await asyncio.sleep(1)
        cluster.cut |= {(1, 2), (1, 3)}
        assert await cluster.produce(1, b"lost", acks=1) is NONE
        await cluster.elect(2, (2, 3), tell=[2, 3])
        assert await cluster.produce(2, b"b") is NONE
        cluster.cut.clear()
        await cluster.elect(2, (2, 3))
        await asyncio.sleep(3)
        for b in (1, 2, 3):
            assert cluster.values(b) == [b"a", b"b"]
        assert sorted(cluster.isr(2)) == [1, 2, 3]

    run_on(scenario)


def test_a_restarted_follower_keeps_records_above_its_high_watermark(run_on: Run) -> None:
    """KIP-101, first scenario: cutting to the high watermark on the way up would lose an acknowledged record."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2))
        assert await cluster.produce(1, b"a") is NONE
        await asyncio.sleep(1)
        assert await cluster.produce(1, b"b") is NONE
        assert cluster.log(2).high_watermark == 1  # has b, but has not heard that it is committed
        await cluster.crash(2)
        await cluster.start(2)
        await cluster.elect(1, (1, 2), (1, 2), tell=[2], epoch=0)
        await cluster.crash(1)
        await cluster.elect(2, (2,), (1, 2))
        assert cluster.values(2) == [b"a", b"b"]
        assert cluster.log(2).high_watermark == 2
        await cluster.start(1)
        await cluster.elect(2, (2,), (1, 2))
        await asyncio.sleep(2)
        assert cluster.values(1) == [b"a", b"b"]

    run_on(scenario)


def test_replica_logs_that_diverged_at_the_same_offset_become_equal(run_on: Run) -> None:
    """KIP-101, second scenario: both wrote offset 1, in different epochs."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2))
        assert await cluster.produce(1, b"a") is NONE
        await asyncio.sleep(1)
        cluster.cut |= {(1, 2)}
        await cluster.produce(1, b"old", acks=1)
        await cluster.crash(1)
        await cluster.elect(2, (2,), (1, 2))
        assert await cluster.produce(2, b"new") is NONE
        cluster.cut.clear()
        await cluster.start(1)
        await cluster.elect(2, (2,), (1, 2))
        await asyncio.sleep(2)
        assert cluster.values(1) == cluster.values(2) == [b"a", b"new"]

    run_on(scenario)


def test_replica_logs_become_equal_after_fast_leader_changes(run_on: Run) -> None:
    """KIP-279: the follower's last epoch is one the leader never had; one answer is not enough to find the place."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2))
        assert await cluster.produce(1, b"a") is NONE  # epoch 0
        await asyncio.sleep(1)
        cluster.cut |= {(1, 2)}
        for value in (b"x1", b"x2"):
            await cluster.produce(1, value, acks=1)  # epoch 0, only on 1
        await cluster.elect(2, (2,), (1, 2), tell=[2])
        await cluster.produce(2, b"y1", acks=1)  # epoch 1, only on 2
        await cluster.elect(1, (1,), (1, 2), tell=[1])
        await cluster.produce(1, b"x3", acks=1)  # epoch 2, only on 1
        await cluster.elect(2, (2,), (1, 2), tell=[2])
        await cluster.produce(2, b"y2", acks=1)  # epoch 3, only on 2
        cluster.cut.clear()
        await cluster.elect(2, (2,), (1, 2))
        await asyncio.sleep(3)
        assert cluster.values(1) == cluster.values(2) == [b"a", b"y1", b"y2"]
        assert [tuple(e) for e in cluster.log(1).epochs.entries] == [(0, 0), (1, 1), (3, 2)]

    run_on(scenario)


def test_a_follower_that_missed_several_leader_epochs_truncates_to_the_leaders_log(run_on: Run) -> None:
    """KAFKA-7164: the leader is the same as before, but its epoch is newer."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2))
        assert await cluster.produce(1, b"a") is NONE
        cluster.cut |= {(1, 2)}
        await cluster.elect(2, (2,), (1, 2), tell=[2])
        await cluster.produce(2, b"mine", acks=1)
        await cluster.elect(1, (1,), (1, 2), tell=[1])
        await cluster.produce(1, b"b", acks=1)
        cluster.cut.clear()
        await cluster.elect(1, (1,), (1, 2))
        await asyncio.sleep(3)
        assert cluster.values(2) == [b"a", b"b"]

    run_on(scenario)


def test_followers_truncate_to_the_log_of_an_unclean_leader(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2))
        cluster.cut |= {(1, 3), (2, 3)}
        for value in (b"a", b"b", b"c"):
            await cluster.produce(1, value, acks=1)
        await asyncio.sleep(1)
        cluster.cut.clear()
        await cluster.elect(3, (3,))
        await cluster.produce(3, b"z", acks=1)
        await asyncio.sleep(3)
        assert [cluster.values(b) for b in (1, 2, 3)] == [[b"z"]] * 3
        assert [cluster.log(b).high_watermark for b in (1, 2, 3)] == [1, 1, 1]

    run_on(scenario)


def test_a_former_leader_does_not_raise_its_high_watermark_before_truncating(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-14704: the high watermark of the answer that says "diverging" is not applied."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        await cluster.produce(1, b"never committed", acks=1)
        await cluster.elect(2, (2,), (1, 2), tell=[2])
        await cluster.produce(2, b"z", acks=1)
        seen = []
        log = cluster.log(1)

        def update_high_watermark(offset: int) -> None:
            seen.append((offset, log.fillers()))
            log.high_watermark = offset

        monkeypatch.setattr(log, "update_high_watermark", update_high_watermark)
        await cluster.elect(2, (2,), (1, 2))
        await asyncio.sleep(2)
        assert log.fillers() == [b"z"]
        assert seen == [(1, [b"z"])]

    run(scenario)


def test_a_follower_below_the_leaders_log_start_restarts_at_that_offset(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1, 2), tell=[1])
        for value in (b"a", b"b", b"c"):
            await cluster.produce(1, value, acks=1)
        cluster.log(1).advance_start_offset(2)
        await cluster.elect(1, (1,), (1, 2))
        await asyncio.sleep(3)
        assert cluster.values(2) == [b"c"]
        assert (cluster.log(2).start_offset, cluster.log(2).end_offset) == (2, 3)
        assert cluster.isr(1) == (1, 2)

    run_on(scenario)


def test_the_leaders_log_start_offset_reaches_its_followers(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        for value in (b"a", b"b"):
            await cluster.produce(1, value)
        await asyncio.sleep(1)
        cluster.log(1).advance_start_offset(1)
        await cluster.produce(1, b"c")
        await asyncio.sleep(1)
        assert [cluster.log(b).start_offset for b in (1, 2, 3)] == [1, 1, 1]

    run_on(scenario)


def test_the_leaders_log_start_offset_may_reach_the_high_watermark(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        for value in (b"a", b"b"):
            await cluster.produce(1, value)
        await asyncio.sleep(1)
        follower = cluster.partition(2)
        follower.update_from_leader(2, 3)  # beyond its high watermark: not yet
        assert cluster.log(2).start_offset == 0
        follower.update_from_leader(2, 2)
        assert (cluster.log(2).start_offset, cluster.log(2).high_watermark) == (2, 2)

    run_on(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_random_elections_and_network_partitions_lose_no_acknowledged_record(run: Run, seed: int) -> None:
    """Clean elections only: the next leader comes from the ISR the controller knows."""

    async def scenario(cluster: ReplicaCluster) -> None:
        dice = cluster.world.randomness.stream(f"test-{seed}")
        acknowledged: list[bytes] = []
        await cluster.elect(1)
        leader, count = 1, 0
        for _ in range(60):
            move = dice.random()
            if move < 0.3:
                isr = cluster.isr(leader)
                leader = dice.choice(isr)
                await cluster.elect(leader, isr)
            elif move < 0.45:
                a, b = dice.sample([1, 2, 3], 2)
                cluster.cut ^= {(min(a, b), max(a, b))}
            elif move < 0.6:
                await asyncio.sleep(dice.random() * 20)
            else:
                count += 1
                value = b"%d" % count
                if await cluster.produce(leader, value, timeout_ms=2_000) is NONE:
                    acknowledged.append(value)
        cluster.cut.clear()
        await cluster.elect(leader, cluster.isr(leader))
        await asyncio.sleep(60)
        final = cluster.values(leader)
        assert [v for v in acknowledged if v not in final] == []
        assert sorted(cluster.isr(leader)) == [1, 2, 3]
        for b in (1, 2, 3):
            assert cluster.values(b) == final

    run(scenario, min_insync_replicas=2, settings=None)
