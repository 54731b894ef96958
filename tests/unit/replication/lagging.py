"""A follower that lags: how tests bring it about, and how long the leader takes to notice."""

import asyncio
from collections.abc import Callable

from tests.support.replica_cluster import ReplicaCluster

from klamm.model.errors import ErrorCode
from klamm.wire.messages import AlterPartitionRequest, AlterPartitionResponse

LAG_S = 30
Answer = ErrorCode | Exception | Callable[[AlterPartitionRequest], AlterPartitionResponse]


async def lagging(cluster: ReplicaCluster, *errors: Answer, isr: tuple[int, ...] = (1, 2, 3)) -> None:
    """Broker 1 leads, broker 3 has died without anybody noticing; its lag time is over by now, but nothing was sent."""
    await cluster.elect(1, isr)
    await cluster.produce(1)
    cluster.cut |= {(3, 1)}
    await cluster.produce(1, acks=1)
    cluster.controller.answers = list(errors)


async def shrunk(cluster: ReplicaCluster) -> None:
    """Wait until the leader has removed lagging followers from the ISR."""
    await asyncio.sleep(LAG_S * 1.6)
