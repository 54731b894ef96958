"""How long single steps hold the event loop of a broker while a client sends what costs most.

    python -m benchmarks.stalls [--only TEXT] [--batches N …] [--json FILE]

Each case runs against a replica manager with real logs, on a real loop. `held` is the longest callback, in processor
time of the loop's thread: what others on the machine do is not in it. `late` is the longest that a timer of 1 ms was
late, by the clock: whatever held the loop is in it, threads that held the interpreter too, and a busy machine as well.
Goal: 10 ms, at worst 50 ms, whatever clients send. The large cases take minutes and some 12 GB of disk; their sizes are
options, `--only` chooses cases by their names.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table
from tests.support.real_logs import RealLogs
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster

from benchmarks.stall_cases.groups import join_large_group
from benchmarks.stall_cases.logs import (
    compact,
    fetch_cold,
    fill_closed_segments,
    fill_for_compaction,
    fill_with_tiny_batches,
    produce_with_flush,
    the_log,
    truncate,
)
from benchmarks.stall_cases.partitions import create_partitions, delete_partitions, describe
from benchmarks.stall_cases.sizes import Sizes
from klamm.model.ids import TopicPartition
from klamm.replication.fetch_data import FetchParams, FetchPartition
from klamm.replication.fetch_sessions import FetchRequested
from klamm.runtime.main_loop import freeze_startup_objects
from klamm.runtime.world import World, real_world
from klamm.wire.compression import Codec, compress
from klamm.wire.records import NewRecord, build_batch, header_at
from klamm.wire.records.batch import sealed_batch
from klamm.wire.records.legacy import Message, encode_messages
from klamm.wire.records.record import append_record

GOAL_MS: Final = 10
WORST_MS: Final = 50
TIMER_S: Final = 0.001
LARGE: Final = {"max_message_bytes": "99999999"}


class Stalls(NamedTuple):
    """In milliseconds, but for `seconds`: how long the case took."""

    held: float
    late: float
    seconds: float
    outcome: str


Run = Callable[[ReplicaCluster], Coroutine[None, None, str]]


async def prepare_nothing(_cluster: ReplicaCluster) -> None:
    """Most cases begin with an empty log."""


class Case(NamedTuple):
    """`prepare` runs before anything is measured."""

    name: str
    run: Run
    prepare: Callable[[ReplicaCluster], Coroutine[None, None, None]] = prepare_nothing


class ThreadedLogs(RealLogs):
    """Real logs whose slow work runs in threads, as in a node."""

    def __init__(self, world: World, directory: str) -> None:
        super().__init__(world, directory, 1)
        self._world = world

    async def delete(self, topic_partition: TopicPartition) -> None:
        """As `ReplicaLogs.delete` does."""
        await super().delete(topic_partition)
        await asyncio.sleep(0)


def zstd_bomb(size: int) -> bytes:
    """Millions of equal small records, `size` bytes of them, in some kilobytes of zstd."""
    record = bytearray()
    append_record(record, NewRecord(b"", b"", 0), 0, 0)
    count = size // len(record)
    header = header_at(build_batch([NewRecord(b"", b"", 0)]))
    announced = header._replace(attributes=Codec.ZSTD, record_count=count, last_offset_delta=count - 1)
    return sealed_batch(announced, compress(Codec.ZSTD, bytes(record) * count))


def produce(batch: bytes, **configs: str) -> Run:
    """A case in which a client sends one batch to a topic with these configs (underscores instead of dots)."""

    async def run(cluster: ReplicaCluster) -> str:
        log = cluster.partition(1).hosted_log
        log.update_config(log.config.parse({name.replace("_", "."): value for name, value in configs.items()}))
        result = (await cluster.brokers[1].append(1, 60_000, {P0: batch}))[P0]
        return f"{len(batch):,} bytes, {header_at(batch).record_count:,} records: {result.error.name}"

    return run


def fetch_old(batch: bytes) -> Run:
    """A case in which a consumer that knows only format 0 fetches this batch."""

    async def run(cluster: ReplicaCluster) -> str:
        await cluster.brokers[1].append(1, 60_000, {P0: batch})
        partition = FetchPartition(P0.topic, TOPIC_ID, P0.partition, 0, 1 << 20)
        answer = await cluster.brokers[1].fetch(FetchParams(magic=0), FetchRequested([partition]))
        ((_, data),) = answer.partitions
        return f"{len(data.records):,} bytes: {data.error.name}"

    return run


MANY: Final = [TopicPartition(P0.topic, number) for number in range(95)]


async def lead_many(cluster: ReplicaCluster) -> None:
    """Make the broker lead many partitions."""
    for partition in MANY:
        await cluster.elect(1, (1,), (1,), partition=partition)


async def produce_to_many(cluster: ReplicaCluster) -> str:
    """A client sends a batch to each of many partitions, in one request."""
    batch = build_batch([NewRecord(bytes(1_000_000), b"k", 0)])
    results = await cluster.brokers[1].append(1, 60_000, dict.fromkeys(MANY, batch))
    return f"{len(results)} of {len(batch):,} bytes: {results[P0].error.name}"


async def idle(_cluster: ReplicaCluster) -> str:
    """A case that does nothing, for comparison."""
    await asyncio.sleep(5)
    return "-"


def look_up(batch: bytes) -> Run:
    """A case in which a client asks for the offset of the last timestamp in this batch."""

    async def run(cluster: ReplicaCluster) -> str:
        await cluster.brokers[1].append(1, 60_000, {P0: batch})
        found = await cluster.brokers[1].look_up_offset(P0, header_at(batch).max_timestamp)
        return f"{len(batch):,} bytes: {found.error.name} at {found.offset:,}"

    return run


def cases(sizes: Sizes) -> Iterator[Case]:
    """All cases to measure."""
    bomb = zstd_bomb(sizes.bomb_mib << 20)
    small = build_batch([NewRecord(b"%d" % (n % 7), b"k", 0) for n in range(1_000_000)], Codec.ZSTD)
    small_gzip = build_batch([NewRecord(b"%d" % (n % 7), b"k", 0) for n in range(200_000)], Codec.GZIP)
    large = build_batch([NewRecord(bytes(100_000_000), b"k", 0)], Codec.ZSTD)
    plain = build_batch([NewRecord(b"%d" % n * 20, b"k", 0) for n in range(9_000)])
    yield Case("nothing, for 5 s: what the machine does", idle)
    yield Case("plain batch, nothing to walk", produce(plain))
    yield Case("zstd bomb, plain topic", produce(bomb))
    yield Case("zstd bomb, compacted topic", produce(bomb, cleanup_policy="compact"))
    yield Case("one record of 100 MB in zstd, compacted", produce(large, cleanup_policy="compact"))
    yield Case("1,000,000 small records, compacted", produce(small, cleanup_policy="compact"))
    yield Case("1,000,000 small records, plain topic", produce(small))
    yield Case("9,000 records, timestamps bounded", produce(plain, message_timestamp_after_max_ms="1000"))
    old = [Message(n, 0, None, b"%d" % (n % 7)) for n in range(200_000)]
    yield Case(
        "200,000 messages of format 1", produce(encode_messages(old, 1, Codec.NONE), max_message_bytes="99999999")
    )
    yield Case("200,000 messages of format 1 in gzip", produce(encode_messages(old, 1, Codec.GZIP)))
    yield Case("fetch in format 0 of 200,000 small records", fetch_old(small_gzip))
    yield Case("recompression to gzip", produce(plain, compression_type="gzip"))
    yield Case("recompression to zstd level 19", produce(plain, compression_type="zstd", compression_zstd_level="19"))
    yield Case("request of 95 MB, plain topic", produce(build_batch([NewRecord(bytes(95_000_000), b"k", 0)]), **LARGE))
    yield Case("95 batches of 1 MB in one request", produce_to_many, lead_many)
    yield Case("join of a group of 10,000 members", join_large_group)
    last = [*(NewRecord(b"", None, 0) for _ in range(999_999)), NewRecord(b"", None, 1)]
    yield Case("ListOffsets in 1,000,000 small records", look_up(build_batch(last, Codec.ZSTD)))
    yield from large_cases(sizes)


def large_cases(sizes: Sizes) -> Iterator[Case]:
    """The cases that need much data or many partitions."""
    yield Case(
        "truncation of half the batches",
        lambda cluster: truncate(cluster, sizes.batches),
        lambda cluster: fill_with_tiny_batches(the_log(cluster), sizes.batches),
    )
    yield Case("compaction", compact, lambda cluster: fill_for_compaction(the_log(cluster), sizes.compacted_mib))
    yield Case("flush.messages=1", produce_with_flush)
    yield Case(
        "cold fetches",
        lambda cluster: fetch_cold(cluster, sizes.fetch_mib),
        lambda cluster: fill_closed_segments(the_log(cluster), sizes.cold_mib),
    )
    yield Case(
        "deletion of partitions",
        lambda cluster: delete_partitions(cluster, sizes.deleted),
        lambda cluster: create_partitions(cluster, sizes.deleted),
    )
    yield Case("Metadata, topics of 10 partitions", describe(sizes.described // 10, 10))
    yield Case("Metadata, one topic", describe(1, sizes.described))


@contextmanager
def longest_callback() -> Iterator[list[float]]:
    """Measure the longest callback of the loop, in processor seconds of its thread."""
    longest = [0.0]
    run_callback = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run_callback(handle)
        longest[0] = max(longest[0], time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run_callback  # type: ignore[method-assign]


async def latest_timer(latest: list[float]) -> None:
    """Measure by how much a timer is late."""
    while True:
        due = time.perf_counter() + TIMER_S
        await asyncio.sleep(TIMER_S)
        latest[0] = max(latest[0], time.perf_counter() - due)


async def measure(case: Case, directory: str) -> Stalls:
    cluster = ReplicaCluster(())
    cluster.world = real_world()
    cluster.logs[1] = ThreadedLogs(cluster.world, directory)
    await cluster.start(1)
    await cluster.elect(1, (1,), (1,))
    await case.prepare(cluster)
    latest = [0.0]
    timer = asyncio.ensure_future(latest_timer(latest))
    freeze_startup_objects()  # as a node does: the collector does not scan what was imported
    await asyncio.sleep(0.05)
    latest[0] = 0.0
    began = time.perf_counter()
    with longest_callback() as longest:
        outcome = await asyncio.ensure_future(case.run(cluster))  # a task: a callback of its own
        seconds = time.perf_counter() - began
        await asyncio.sleep(0.01)
    timer.cancel()
    await cluster.close()
    return Stalls(longest[0] * 1000, latest[0] * 1000, seconds, outcome)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--only", help="run the cases whose names contain this text")
    options.add_argument("--directory", type=Path, help="where the logs are written; default: the system's")
    Sizes.add_options(options)
    given = options.parse_args()
    path: Path | None = given.json
    table = Table("case", "held, ms", "late, ms", "took, s", "outcome", title=f"goal {GOAL_MS} ms, worst {WORST_MS} ms")
    results: dict[str, Stalls] = {}
    for case in cases(Sizes.from_options(given)):
        if given.only is not None and given.only not in case.name:
            continue
        with tempfile.TemporaryDirectory(prefix="klamm-stalls-", dir=given.directory) as directory:
            stalls = results[case.name] = asyncio.run(measure(case, directory))
        colour = "red" if stalls.held > WORST_MS else "yellow" if stalls.held > GOAL_MS else "green"
        held = f"[{colour}]{stalls.held:.1f}[/]"
        table.add_row(case.name, held, f"{stalls.late:.1f}", f"{stalls.seconds:.2f}", stalls.outcome)
    Console().print(table)
    if path is not None:
        path.write_text(json.dumps({name: stalls._asdict() for name, stalls in results.items()}, indent=1))


if __name__ == "__main__":
    main()
