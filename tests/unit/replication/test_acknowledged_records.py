"""Random crashes, partitions, elections and late orders: what was acknowledged by all in-sync replicas stays."""

import asyncio
import random

import pytest
from tests.support.replica_cluster import ReplicaCluster
from tests.support.state_keeper import StateKeeper
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode

STEPS = 80


async def live_through(cluster: ReplicaCluster, dice: random.Random) -> None:
    """Produce while brokers crash and restart and leaders change at random, then check the logs."""
    keeper = StateKeeper(cluster, dice)
    keeper.elect(1)
    await asyncio.sleep(5)
    writing: set[asyncio.Task[None]] = set()

    async def write(value: bytes) -> None:
        leader = keeper.leader
        if leader in cluster.brokers and await cluster.produce(leader, value, timeout_ms=3_000) is ErrorCode.NONE:
            keeper.acknowledged.append(value)

    for step in range(STEPS):
        move = dice.random()
        running, down = sorted(cluster.brokers), sorted(set(keeper.replicas) - set(cluster.brokers))
        if move < 0.08 and len(running) > 1:
            victim = dice.choice(running)
            await cluster.crash(victim)
            keeper.on_crash(victim)
        elif move < 0.2 and down:
            await cluster.start(down[0])
            keeper.on_start(down[0])
        elif move < 0.3:
            keeper.elect()
        elif move < 0.42:
            pair = dice.sample(keeper.replicas, 2)
            cluster.cut ^= {(min(pair), max(pair))}
        elif move < 0.6:
            await asyncio.sleep(dice.random() * 15)
        else:
            task = asyncio.create_task(write(b"%d" % step))
            writing.add(task)
            task.add_done_callback(writing.discard)
            await asyncio.sleep(dice.random() * 0.5)
        keeper.check()
    await heal(cluster, keeper)


async def heal(cluster: ReplicaCluster, keeper: StateKeeper) -> None:
    """End all faults and wait until the replicas are equal."""
    cluster.cut.clear()
    for broker in sorted(set(keeper.replicas) - set(cluster.brokers)):
        await cluster.start(broker)
        keeper.on_start(broker)
    await asyncio.sleep(120)
    keeper.check()
    assert sorted(keeper.isr) == sorted(keeper.replicas)
    held = [keeper.values_on(b) for b in keeper.replicas]
    assert held[0] == held[1] == held[2]
    assert keeper.acknowledged


@pytest.mark.parametrize("seed", range(12))
def test_random_failures_lose_no_record_acknowledged_with_acks_all(run: Run, seed: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await live_through(cluster, random.Random(seed))

    run(scenario, min_insync_replicas=2)


@pytest.mark.parametrize("seed", range(100, 103))
def test_random_failures_with_logs_on_real_disk_lose_no_record_acknowledged_with_acks_all(
    run_on_disk: Run, seed: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await live_through(cluster, random.Random(seed))

    run_on_disk(scenario, min_insync_replicas=2)
