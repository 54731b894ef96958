"""How fast the log cleaner compacts one log, and how late the event loop is meanwhile.

    python -m benchmarks.compaction [--mib 256] [--keys 100000]

Each log is written first, with keys drawn at random; then one cleaning runs in a worker process, as in a node. MB/s
counts the bytes of the log before the cleaning. `late` is the longest that a timer of 1 ms was late.
"""

import argparse
import asyncio
import random
import tempfile
import time
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.settings import CleanerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import ProcessWorkers
from klamm.runtime.world import real_world
from klamm.telemetry.logs import configure_logs
from klamm.wire.compression import Codec
from klamm.wire.records import NewRecord, build_batch

BATCH_BYTES: Final = 16 * 1024
TIMER_S: Final = 0.001
ORDERS: Final = TopicPartition("orders", 0)


class Case(NamedTuple):
    value_bytes: int
    codec: Codec


CASES: Final = (Case(100, Codec.NONE), Case(1000, Codec.NONE), Case(100, Codec.LZ4), Case(1000, Codec.ZSTD))


class Result(NamedTuple):
    before_bytes: int
    after_bytes: int
    seconds: float
    late_ms: float


def fill(log: Log, case: Case, total_bytes: int, keys: int) -> None:
    """Append batches until the log has so many bytes of records, decompressed."""
    draw = random.Random(1)
    per_batch = max(1, BATCH_BYTES // (case.value_bytes + 20))
    for _ in range(total_bytes // (per_batch * (case.value_bytes + 20))):
        content = [
            NewRecord(draw.randbytes(case.value_bytes // 2) * 2, b"key-%08d" % draw.randrange(keys), 1_000)
            for _ in range(per_batch)
        ]
        log.append_as_leader(build_batch(content, case.codec), 0)
        log.update_high_watermark(log.end_offset)
    log.roll()
    log.flush_now()


async def measure(case: Case, total_bytes: int, keys: int) -> Result:
    late = 0.0

    async def watch() -> None:
        nonlocal late
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(TIMER_S)
            late = max(late, time.perf_counter() - asked - TIMER_S)

    with tempfile.TemporaryDirectory() as directory:
        logs = LogManager(real_world(), [directory], 1, "cluster")
        await logs.load()
        config = TopicConfig.parse({"segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0"})
        log = logs.get_or_create(ORDERS, config, None, is_new=True)
        fill(log, case, total_bytes, keys)
        log.update_config(TopicConfig.parse({"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}))
        before, workers = log.size, ProcessWorkers(1)
        cleaner = LogCleaner(real_world(), logs, CleanerSettings())
        watching = asyncio.create_task(watch())
        began = time.perf_counter()
        while await cleaner.clean_next(workers):
            pass
        took = time.perf_counter() - began
        watching.cancel()
        await workers.close()
        after = log.size
        await logs.close()
    return Result(before, after, took, late * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="size of each log, decompressed")
    parser.add_argument("--keys", type=int, default=100_000)
    given = parser.parse_args()
    configure_logs("warning")
    table = Table("value bytes", "codec", "log MB", "left MB", "seconds", "MB/s", "late ms")
    for case in CASES:
        result = asyncio.run(measure(case, given.mib << 20, given.keys))
        before = result.before_bytes / 1e6
        table.add_row(
            f"{case.value_bytes:,}",
            case.codec.name.lower(),
            f"{before:,.0f}",
            f"{result.after_bytes / 1e6:,.0f}",
            f"{result.seconds:.1f}",
            f"{before / result.seconds:,.0f}",
            f"{result.late_ms:.1f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
