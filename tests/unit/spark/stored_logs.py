"""Log directories that klamm's log manager made, and reading them without Spark and without brokers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from tests.support.managed_logs import get_or_create
from tests.support.real_logs import DiskWithoutThreads
from tests.unit.log.compaction import COMPACTED, Workload, cleaner

from klamm.config.topic_config import TopicConfig
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.names import LOG
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import BlockingConnection
from klamm.runtime.workers import InlineWorkers
from klamm.runtime.world import real_world
from klamm.spark.columns import arrow_schema
from klamm.spark.filters import EVERY_ROW, RowFilter
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.plan import plan_batch
from klamm.spark.ranges import TaskRanges
from klamm.spark.schema import Columns
from klamm.spark.tasks import Job, read_task
from klamm.spark.transports import open_transport

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = UUID("00000000-0000-4000-8000-000000000001")
NOW_MS = 1_700_000_000_000
COLUMNS = ("key", "value", "partition", "offset", "timestamp")
SMALL_SEGMENTS = {"segment.bytes": "2000", "index.interval.bytes": "100"}


class NoBrokers:
    """A world in which no connection may be opened."""

    def connect(self, host: str, port: int, connect_timeout_s: float, answer_timeout_s: float) -> BlockingConnection:
        raise AssertionError(f"a read of log directories connects to {host}:{port}")

    def now_s(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Take no time."""

    def processors(self) -> int:
        return 2


@asynccontextmanager
async def log_manager(directory: Path, broker: int = 1, cluster: str = "cluster") -> AsyncIterator[LogManager]:
    """A broker's logs in the directory; closed, with all checkpoints, at the end."""
    logs = LogManager(replace(real_world(), disk=DiskWithoutThreads()), [str(directory)], broker, cluster)
    await logs.load()
    yield logs
    await logs.close()


def new_log(
    logs: LogManager,
    partition: TopicPartition = ORDERS,
    topic_id: UUID | None = TOPIC_ID,
    configs: Mapping[str, str] = SMALL_SEGMENTS,
) -> Log:
    """A log with small segments."""
    return get_or_create(logs, partition, TopicConfig.parse(configs), topic_id, is_new=True)


def fill(log: Log, seed: int = 1, batches: int = 40) -> Workload:
    """Append batches of all kinds, with transactions of both ends, and roll at the end."""
    workload = Workload(seed)
    workload.append(log, batches, NOW_MS)
    return workload


async def clean(logs: LogManager) -> int:
    """Compact until nothing is due; how many cleanings it took."""
    one = cleaner(replace(real_world(), disk=DiskWithoutThreads()), logs)
    count = 0
    while await one.clean_next(InlineWorkers()):
        count += 1
    return count


async def make_log(directory: Path, seed: int = 1, broker: int = 1) -> Log:
    """A directory with one generated log of orders-0, cleanly closed."""
    async with log_manager(directory, broker) as logs:
        log = new_log(logs)
        fill(log, seed)
    return log


async def copy_of_a_compacted_log(leader: Path, follower: Path, seed: int = 1) -> int:
    """Make two directories: a compacted log, and what a new follower copied of it; returns where both end."""
    async with log_manager(leader) as logs, log_manager(follower, broker=2) as copies:
        log = new_log(logs, configs=COMPACTED)
        fill(log, seed)
        assert await clean(logs)
        fill(log, seed + 100, batches=5)
        copy = new_log(copies, configs=COMPACTED | {"segment.bytes": "100000"})
        for path in segment_paths(leader):
            copy.append_as_follower(path.read_bytes())
        copy.update_high_watermark(log.end_offset)
        assert copy.end_offset == log.end_offset
    return log.end_offset


def stored_options(*directories: Path, **given: str) -> ReadOptions:
    """The options of a read of these log directories; two underscores stand for a dot."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    what = {} if {"assign", "subscribePattern"} & set(named) else {"subscribe": "orders"}
    return read_options({"logDirs": ",".join(map(str, directories))} | what | named)


def plan_stored(options: ReadOptions, wanted: RowFilter = EVERY_ROW) -> list[TaskRanges]:
    with open_transport(NoBrokers(), options) as transport:
        return plan_batch(transport, wanted, parallelism=2)


def read_planned(options: ReadOptions, tasks: list[TaskRanges], columns: tuple[str, ...] = COLUMNS) -> list[Any]:
    """The rows of planned tasks, as dicts."""
    job = Job(options, Columns(columns, columns))
    found = [rows for task in tasks for rows in read_task(NoBrokers(), job, task)]
    rows: list[Any] = pa.Table.from_batches(found, arrow_schema(columns)).to_pylist()
    return rows


def read_stored(*directories: Path, columns: tuple[str, ...] = COLUMNS, **given: str) -> list[Any]:
    """Plan and read log directories, without any broker; the rows as dicts."""
    options = stored_options(*directories, **given)
    return read_planned(options, plan_stored(options), columns)


def offsets_stored(*directories: Path, **given: str) -> list[int]:
    return [row["offset"] for row in read_stored(*directories, columns=("offset", "value"), **given)]


def as_content(rows: list[Any]) -> dict[int, tuple[bytes | None, bytes | None, int]]:
    """Offset -> key, value, timestamp."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {r["offset"]: (r["key"], r["value"], round((r["timestamp"] - epoch).total_seconds() * 1000)) for r in rows}


def segment_paths(directory: Path, suffix: str = LOG) -> list[Path]:
    """The files of orders-0 with this suffix, in order of their offsets."""
    return sorted((directory / "orders-0").glob(f"*{suffix}"))
