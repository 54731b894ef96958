"""How fast the log cleaner compacts one log, in which memory, and how late the event loop is meanwhile.

    python -m benchmarks.compaction [--mib 256] [--keys 100000] [--codecs none,zstd] [--value-bytes 100,1000]
    python -m benchmarks.compaction --mib 2048 --keys 20000000 --codecs none --value-bytes 100

Each log is written first, with keys drawn at random; then it is cleaned in a worker process, as in a node, until
nothing is dirty: a log with more keys than the offset map holds takes several cleanings. MB/s counts the bytes of the
log before the first, once by the clock and once by the worker's processor time. `worker MiB` is the worker's peak
memory, and `late` the longest that a timer of 1 ms was late.
"""

import argparse
import asyncio
import re
import resource
import tempfile
import time
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from tests.support.managed_logs import get_or_create

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.settings import CleanerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import ProcessWorkers
from klamm.runtime.world import real_world
from klamm.telemetry.logs import configure_logs
from klamm.wire.compression import Codec, compress
from klamm.wire.records import NewRecord, build_batch, header_at
from klamm.wire.records.batch import HEADER_BYTES, sealed_batch

BATCH_BYTES: Final = 16 * 1024
TIMER_S: Final = 0.001
ORDERS: Final = TopicPartition("orders", 0)


class Case(NamedTuple):
    value_bytes: int
    codec: Codec


KEY: Final = b"key-00000000"
KEY_DIGITS: Final = 8


class Result(NamedTuple):
    before_bytes: int
    after_bytes: int
    cleanings: int
    seconds: float
    processor_s: float
    worker_mib: float
    late_ms: float


def fill(log: Log, case: Case, total_bytes: int, keys: int) -> None:
    """Append batches until the log has so many bytes of records, decompressed."""
    draw = np.random.default_rng(1)
    count = max(1, BATCH_BYTES // (case.value_bytes + 20))
    template = build_batch([NewRecord(bytes(case.value_bytes), KEY, 1_000)] * count)
    header = header_at(template)
    header = header._replace(attributes=header.attributes | case.codec)
    payload = np.frombuffer(template[HEADER_BYTES:], np.uint8).copy()
    keys_at = np.array([found.start() for found in re.finditer(KEY, template[HEADER_BYTES:])])[:, np.newaxis]
    digits_at = keys_at + len(KEY) - KEY_DIGITS + np.arange(KEY_DIGITS)
    length_bytes = -(-(2 * case.value_bytes).bit_length() // 7)
    values_at = keys_at + len(KEY) + length_bytes + np.arange(case.value_bytes)
    powers = 10 ** np.arange(KEY_DIGITS - 1, -1, -1)
    for _ in range(total_bytes // (count * (case.value_bytes + 20))):
        payload[digits_at] = ord("0") + draw.integers(keys, size=(count, 1)) // powers % 10
        half = draw.integers(256, size=(count, case.value_bytes // 2), dtype=np.uint8)
        payload[values_at] = np.tile(half, 2)
        log.append_as_leader(sealed_batch(header, compress(case.codec, payload.tobytes())), 0)
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
        configs = {"segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0"}
        config = TopicConfig.parse(configs)
        log = get_or_create(logs, ORDERS, config, None, is_new=True)
        fill(log, case, total_bytes, keys)
        log.update_config(TopicConfig.parse(configs | {"cleanup.policy": "compact"}))
        before, workers = log.size, ProcessWorkers(1)
        cleaner = LogCleaner(real_world(), logs, CleanerSettings())
        watching = asyncio.create_task(watch())
        began = time.perf_counter()
        cleanings = 0
        while await cleaner.clean_next(workers):
            cleanings += 1
        took = time.perf_counter() - began
        watching.cancel()
        used = await workers.run(resource.getrusage, resource.RUSAGE_SELF)
        await workers.close()
        after = log.size
        await logs.close()
    processor_s = used.ru_utime + used.ru_stime
    return Result(before, after, cleanings, took, processor_s, used.ru_maxrss / 1024, late * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="size of each log, decompressed")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--codecs", default=",".join(codec.name.lower() for codec in Codec))
    parser.add_argument("--value-bytes", default="100,1000")
    given = parser.parse_args()
    configure_logs("warning")
    table = Table(
        "value bytes", "codec", "log MB", "left MB", "cleanings", "seconds", "MB/s", "processor s", "MB/s of it",
        "worker MiB", "late ms",
    )  # fmt: skip
    codecs = [Codec[name.upper()] for name in given.codecs.split(",")]
    for case in [Case(int(size), codec) for codec in codecs for size in given.value_bytes.split(",")]:
        result = asyncio.run(measure(case, given.mib << 20, given.keys))
        before = result.before_bytes / 1e6
        table.add_row(
            f"{case.value_bytes:,}",
            case.codec.name.lower(),
            f"{before:,.0f}",
            f"{result.after_bytes / 1e6:,.0f}",
            f"{result.cleanings}",
            f"{result.seconds:.1f}",
            f"{before / result.seconds:,.0f}",
            f"{result.processor_s:.1f}",
            f"{before / result.processor_s:,.0f}",
            f"{result.worker_mib:,.0f}",
            f"{result.late_ms:.1f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
