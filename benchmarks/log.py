"""Append and read speed of one log, and what single steps of an append cost. `python benchmarks/log.py`."""

import sys
import tempfile
import time
from collections.abc import Callable

from klamm.config.topic_config import TopicConfig
from klamm.log.file_slice import FileSlice
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.model.ids import TopicPartition
from klamm.runtime.world import real_world
from klamm.wire.compression import Codec
from klamm.wire.records import NewRecord, batches, build_batch, crc_is_valid, header_at, records

SECONDS = 1.0
ORDERS = TopicPartition("orders", 0)


def seconds_per_call(work: Callable[[], object], seconds: float = SECONDS) -> float:
    """Seconds that a call takes, measured for at least `seconds`."""
    count = 0
    begin = time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        for _ in range(20):
            work()
        count += 20
    return passed / count


def print_row(what: str, cost_s: float, size: int) -> None:
    print(f"  {what:44} {cost_s * 1e6:9.1f} us {1 / cost_s:11,.0f} /s {size / cost_s / 1e6:9,.0f} MB/s")


def batch_of(total_bytes: int, codec: Codec = Codec.NONE) -> bytes:
    return build_batch([NewRecord(b"x" * 100, None, 1000) for _ in range(total_bytes // 110)], codec)


def measure(name: str, batch: bytes, directory: str) -> None:
    """Print append and read speed for this batch."""
    print(f"{name}: {len(batch):,} bytes, {header_at(batch).record_count:,} records")
    log = Log.open(real_world(), f"{directory}/leader", ORDERS, TopicConfig.parse({}))
    print_row("append as leader", seconds_per_call(lambda: log.append_as_leader(batch, 0)), len(batch))
    stamped = Log.open(
        real_world(), f"{directory}/stamped", ORDERS, TopicConfig.parse({"message.timestamp.type": "LogAppendTime"})
    )
    print_row(
        "append as leader, LogAppendTime", seconds_per_call(lambda: stamped.append_as_leader(batch, 0), 0.5), len(batch)
    )
    follower = Log.open(real_world(), f"{directory}/follower", ORDERS, TopicConfig.parse({}))
    fetched = log.read(0, 1 << 20).records
    assert not isinstance(fetched, FileSlice), "the active segment is read into memory"
    whole = list(batches(fetched))
    copied = bytearray(fetched[: whole[-1].position + whole[-1].size])

    def follow() -> None:
        shift = follower.end_offset - header_at(copied).base_offset
        for header in whole:
            base = header_at(copied, header.position).base_offset + shift
            copied[header.position : header.position + 8] = base.to_bytes(8, "big")
        follower.append_as_follower(memoryview(copied))

    print_row(f"append as follower, {len(whole)} batches", seconds_per_call(follow, 0.5), len(copied))
    end = log.end_offset
    step = header_at(batch).record_count
    position = 0

    def read_next_lines() -> None:
        nonlocal position
        position = position + step if position + step < end else 0
        log.read(position, len(batch))

    def read_tail() -> None:
        log.read(end - step, len(batch))

    print_row("read one batch, anywhere", seconds_per_call(read_next_lines), len(batch))
    print_row("read the last batch", seconds_per_call(read_tail, 0.5), len(batch))
    megabytes = seconds_per_call(lambda: log.read(0, 1 << 20), 0.5)
    print_row("read 1 MiB", megabytes, 1 << 20)
    log.close()
    begin = time.perf_counter()
    Log.open(real_world(), log.directory, ORDERS, TopicConfig.parse({}), known=CheckpointedState())
    print_row("recover, per batch", (time.perf_counter() - begin) / (end // step), len(batch))
    begin = time.perf_counter()
    Log.open(real_world(), log.directory, ORDERS, TopicConfig.parse({}), known=CheckpointedState(True, end))
    print(f"  open after a clean end {(time.perf_counter() - begin) * 1000:31.2f} ms")


def measure_steps() -> None:
    """Print the cost of single steps of an append."""
    batch = memoryview(batch_of(16 * 1024))
    header = header_at(batch)
    print("steps, 16 KiB batch")
    print_row("header", seconds_per_call(lambda: header_at(batch), 0.2), len(batch))
    print_row("CRC", seconds_per_call(lambda: crc_is_valid(batch, header), 0.2), len(batch))
    print_row("walk of its records", seconds_per_call(lambda: list(records(batch, header)), 0.2), len(batch))


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        measure_steps()
        for name, size in {"small": 1_000, "16 KiB": 16 * 1024, "1 MiB": 1_000_000}.items():
            measure(name, batch_of(size), f"{directory}/{size}")


if __name__ == "__main__":
    main()
