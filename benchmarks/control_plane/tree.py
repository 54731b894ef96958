"""Clusters as znodes: topics with 100 partitions and three replicas each, with states."""

import uuid
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import znodes
from klamm.zk.client import ZooKeeper
from klamm.zk.operations import Create, Op

BROKERS: Final = (1, 2, 3, 4, 5, 6)
HEAVY: Final = 6
"""The broker that dies."""
PER_TOPIC: Final = 100
OPS: Final = 2_000

Placement: TypeAlias = Callable[[int], tuple[int, ...]]
"""The replicas of the partition with that running number; the first leads."""


def spread(index: int) -> tuple[int, ...]:
    """Replicas of a partition: each broker leads a sixth and hosts half of all partitions."""
    start = index % len(BROKERS)
    return tuple(BROKERS[(start + i) % len(BROKERS)] for i in range(3))


def led_by_heavy(touched: int) -> Placement:
    """The heavy broker leads the first `touched` partitions, and has no others."""
    others = BROKERS[:-1]

    def place(index: int) -> tuple[int, ...]:
        ring = [others[(index + i) % len(others)] for i in range(3)]
        return (HEAVY, *ring[:2]) if index < touched else tuple(ring)

    return place


def topics(count: int, place: Placement, prefix: str = "topic") -> Iterator[tuple[str, dict[int, tuple[int, ...]]]]:
    """Topics with the replicas of each partition."""
    for first in range(0, count, PER_TOPIC):
        numbers = range(min(PER_TOPIC, count - first))
        yield f"{prefix}-{first // PER_TOPIC:05}", {n: place(first + n) for n in numbers}


async def write_cluster(client: ZooKeeper, count: int, place: Placement) -> None:
    """Write topics, assignments and partition states to ZooKeeper, which has the top-level znodes."""
    ops: list[Op] = []
    for topic, partitions in topics(count, place):
        assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in partitions.items()}
        ops.append(Create(f"/config/topics/{topic}", b'{"version":1,"config":{}}'))
        ops.append(Create(znodes.topic_path(topic), znodes.encode_topic(uuid.uuid4(), assignment)))
        ops.append(Create(znodes.partitions_path(topic)))
        for n, a in assignment.items():
            at = TopicPartition(topic, n)
            state = LeaderAndIsr(a.replicas[0], 0, a.replicas, 0)
            ops += [Create(znodes.partition_path(at)), Create(znodes.state_path(at), znodes.encode_state(state))]
        if len(ops) >= OPS:
            await client.multi(ops)
            ops = []
    if ops:
        await client.multi(ops)
