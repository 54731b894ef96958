"""Budget: read 100,000 partition states in 0.6 s and write them, fenced, in 1.5 s, against one real server.

Run: python benchmarks/zookeeper.py [partitions] [rounds]. Prints the best and the median of the rounds; `--profile`
adds a profile of one round of each.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from klamm.embedded.zookeeper import ServerOptions, ZooKeeperServer
from klamm.runtime.ports import free_port
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import ZkCode
from klamm.zk.operations import Check, Create, Op, Set

PARTITIONS_PER_TOPIC = 100
WRITES_PER_MULTI = 1_000
MULTIS_UNDER_WAY = 8
READ_BUDGET_S = 0.6  # for 100,000
WRITE_BUDGET_S = 1.5


def state(partition: int, leader_epoch: int) -> bytes:
    replicas = [partition % 6, (partition + 1) % 6, (partition + 2) % 6]
    isr = ",".join(map(str, replicas))
    return (
        f'{{"controller_epoch":17,"leader":{replicas[0]},"version":1,"leader_epoch":{leader_epoch},"isr":[{isr}]}}'
    ).encode()


def state_paths(partitions: int) -> list[str]:
    return [
        f"/brokers/topics/t-{i // PARTITIONS_PER_TOPIC}/partitions/{i % PARTITIONS_PER_TOPIC}/state"
        for i in range(partitions)
    ]


async def write_in_multis(client: ZooKeeper, operations: Sequence[Op], fence: Sequence[Op] = ()) -> None:
    """Send all operations in batches, a few of them at a time."""
    room = asyncio.Semaphore(MULTIS_UNDER_WAY)

    async def one(batch: Sequence[Op]) -> None:
        async with room:
            results = await client.multi([*fence, *batch])
        assert all(r.code is ZkCode.OK for r in results), results[0]

    async with asyncio.TaskGroup() as group:
        for start in range(0, len(operations), WRITES_PER_MULTI):
            group.create_task(one(operations[start : start + WRITES_PER_MULTI]))


async def prepare(client: ZooKeeper, paths: Sequence[str]) -> None:
    await client.ensure_path("/brokers/topics")
    await client.create("/controller_epoch", b"17")
    parents = dict.fromkeys(path.rsplit("/", depth)[0] for path in paths for depth in (3, 2, 1))
    await write_in_multis(client, [Create(path, None) for path in parents])
    await write_in_multis(client, [Create(path, state(i, 0)) for i, path in enumerate(paths)])


class Timing(NamedTuple):
    wall_s: float
    cpu_s: float  # of this process alone


async def timed(what: Callable[[], Awaitable[object]]) -> Timing:
    gc.collect()
    start, cpu = time.monotonic(), time.process_time()
    await what()
    return Timing(time.monotonic() - start, time.process_time() - cpu)


async def measure(client: ZooKeeper, partitions: int, rounds: int, profile: bool) -> None:
    paths = state_paths(partitions)
    await prepare(client, paths)
    epoch = 0

    async def read() -> None:
        results = await client.get_many(paths)
        assert len(results) == partitions
        assert results[-1].data == state(partitions - 1, epoch)

    async def write() -> None:
        nonlocal epoch
        operations = [Set(path, state(i, epoch + 1), epoch) for i, path in enumerate(paths)]
        writes.append(await timed(lambda: write_in_multis(client, operations, [Check("/controller_epoch", 0)])))
        epoch += 1

    async def read_watched() -> None:
        await client.get_many(paths[: partitions // 10], watch=True)

    reads: list[Timing] = []
    writes: list[Timing] = []
    for _ in range(rounds):
        await write()
        reads.append(await timed(read))
    single = await timed(read_watched)
    rate = partitions / 10 / single.wall_s
    print(f"watch {partitions // 10:,} states, one by one: {single.wall_s:.3f} s ({rate:,.0f}/s)")
    report("read", reads, partitions, READ_BUDGET_S)
    report("write", writes, partitions, WRITE_BUDGET_S)
    if profile:
        for each in (read, write):
            await profiled(each)


async def profiled(what: Callable[[], Awaitable[object]]) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    await what()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


def report(what: str, timings: list[Timing], partitions: int, budget_s: float) -> None:
    best, median = min(t.wall_s for t in timings), statistics.median(t.wall_s for t in timings)
    cpu = statistics.median(t.cpu_s for t in timings)
    allowed = budget_s * partitions / 100_000
    print(
        f"{what:5} {partitions:,} states: best {best:.3f} s, median {median:.3f} s ({partitions / median:,.0f}/s),"
        f" of which {cpu:.3f} s of CPU here; budget {allowed:.2f} s: {'kept' if median <= allowed else 'EXCEEDED'}",
        flush=True,
    )


async def main(arguments: argparse.Namespace, connect_string: str) -> None:
    client = ZooKeeper(real_world(), connect_string, 30_000)
    await client.connect(30)
    await measure(client, arguments.partitions, arguments.rounds, arguments.profile)
    await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("partitions", type=int, nargs="?", default=100_000)
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = ZooKeeperServer(directory, free_port(), ServerOptions(heap_mb=1024, sync_to_disk=True))
        server.start()
        try:
            asyncio.run(main(given, server.connect_string))
        finally:
            server.stop()
