"""What a produce and a fetch cost inside a broker, without sockets: microseconds per request.

    python benchmarks/replication.py [requests]

One process plays three brokers over real logs in a temporary directory. `append` is acks=1 to a lone replica;
`tail` is a consumer's fetch of one new batch; `idle session` is a follower's fetch of one changed partition among
many hosted; `replicated` is acks=all through two followers whose messages are encoded and decoded as on the wire.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.real_logs import real_batch
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster, leader_and_isr

from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import FetchParams, FetchPartition
from klamm.replication.fetch_sessions import FetchRequested
from klamm.runtime.clock import RealClock

VALUE = b"x" * 1024
HOSTED = 2_000


async def measure(name: str, count: int, work: Callable[[int], Awaitable[None]]) -> None:
    """Print the time per request."""
    for n in range(count // 10):
        await work(n)
    start = time.perf_counter()
    for n in range(count):
        await work(n)
    took = time.perf_counter() - start
    print(f"{name:14} {took / count * 1e6:8.1f} us  {count / took:10,.0f} a second")


async def alone(cluster: ReplicaCluster, partition: TopicPartition) -> None:
    """Make broker 1 the only replica."""
    await cluster.brokers[1].become_leader_or_follower(leader_and_isr(1, (1,), (1,), 0, 1, partition), 7)


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cluster = await ReplicaCluster.on_disk(directory, clock=RealClock())
        cluster.delay_s = 0
        broker = cluster.brokers[1]
        lone = TopicPartition("orders", 1)
        await alone(cluster, lone)
        batch = real_batch(filler=VALUE)

        async def append(n: int) -> None:
            await broker.append(1, 1000, {lone: batch})

        await measure("append", count, append)

        async def tail(n: int) -> None:
            wanted = FetchPartition("orders", TOPIC_ID, 1, cluster.log(1, lone).end_offset - 1, 1 << 20)
            answer = await broker.fetch(FetchParams(max_wait_ms=500), FetchRequested([wanted]))
            assert answer.partitions[0][1].records

        await measure("tail", count, tail)

        for number in range(2, HOSTED + 2):
            partition = TopicPartition("orders", number)
            request = leader_and_isr(1, (1, 2), (1, 2), 0, 1, partition)
            await broker.become_leader_or_follower(request, 7)
        follower = FetchParams(replica_id=BrokerId(2), max_wait_ms=500)
        wanted = [FetchPartition("orders", TOPIC_ID, n, 0, 1 << 20, 0) for n in range(2, HOSTED + 2)]
        first = await broker.fetch(
            follower._replace(max_wait_ms=0), FetchRequested(wanted, 0, 0, (), True, BrokerId(2))
        )
        epoch, changed = 1, TopicPartition("orders", 7)

        async def idle_session(n: int) -> None:
            nonlocal epoch
            await broker.append(1, 1000, {changed: batch})
            for offset in (cluster.log(1, changed).end_offset - 1, cluster.log(1, changed).end_offset):
                moved = [FetchPartition("orders", TOPIC_ID, 7, offset, 1 << 20, 0)]
                asked = FetchRequested(moved, first.session_id, epoch, (), True, BrokerId(2))
                await broker.fetch(follower._replace(max_wait_ms=0), asked)
                epoch += 1

        await measure("idle session", count, idle_session)
        await cluster.elect(1)
        await asyncio.sleep(0.5)

        async def replicated(n: int) -> None:
            assert not await cluster.produce(1, VALUE)

        await measure("replicated", count // 5, replicated)
        await cluster.close()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
