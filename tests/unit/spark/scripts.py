"""Scripted topics, and reading them without Spark."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from tests.support.scripted_brokers import ScriptedCluster, ScriptedLog, ScriptedWorld
from tests.unit.spark.batch_bytes import Record, batch

from klamm.model.ids import TopicPartition
from klamm.spark.columns import arrow_schema
from klamm.spark.option_set import Reads
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.plan import plan_ranges
from klamm.spark.ranges import OffsetRange, TaskRanges
from klamm.spark.read_client import read_client
from klamm.spark.schema import Columns
from klamm.spark.tasks import Job, read_task
from klamm.wire.messages import ListOffsetsRequest


def log(first: int, end: int, leader: int = 1, per_batch: int = 10, epoch: int = -1) -> ScriptedLog:
    """Offsets from `first` to before `end`, each with its number as the value."""
    epochs = [(epoch, first)] if epoch >= 0 else []
    return ScriptedLog(leader, numbered(first, end, per_batch, epoch), first, epoch=epoch, epochs=epochs)


def numbered(
    first: int, end: int, per_batch: int = 10, epoch: int = -1, text: bytes = b"%d"
) -> list[tuple[int, int, bytes]]:
    """Batches of this leader epoch with the offsets from `first` to before `end`, whose values are these texts."""
    batches = []
    for base in range(first, end, per_batch):
        offsets = range(base, min(base + per_batch, end))
        content = batch([Record(b"k", text % o) for o in offsets], base)
        batches.append((base, offsets[-1], content[:12] + epoch.to_bytes(4, signed=True) + content[16:]))
    return batches


def scripted(**logs: ScriptedLog) -> ScriptedWorld:
    """`orders_0=log(..)` is partition 0 of orders."""
    parts = {name.rpartition("_"): each for name, each in logs.items()}
    return ScriptedWorld(ScriptedCluster({TopicPartition(t, int(n)): each for (t, _, n), each in parts.items()}))


def options(**given: str) -> ReadOptions:
    """The options of a batch read; two underscores stand for a dot."""
    return read_options(_named(given), Reads.BATCH)


def stream_options(**given: str) -> ReadOptions:
    """The options of a streaming read; two underscores stand for a dot."""
    return read_options(_named(given), Reads.STREAM)


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """The options with dots, and those that every read needs."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    what = {} if {"assign", "subscribePattern"} & set(named) else {"subscribe": "orders"}
    return {"kafka.bootstrap.servers": "one:9092,two:9092"} | what | named


def plan(world: ScriptedWorld, **given: str) -> list[OffsetRange]:
    with read_client(world, options(**given)) as cluster:
        return plan_ranges(cluster).ranges


def offsets_read(world: ScriptedWorld, *ranges: OffsetRange, **given: str) -> list[int]:
    columns = ("offset", "value")
    pieces = list(read_task(world, job(columns, given), TaskRanges(ranges)))
    rows = pa.Table.from_batches(pieces, arrow_schema(columns)).to_pylist()
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)
    return [row["offset"] for row in rows]


def job(columns: tuple[str, ...], given: Mapping[str, str]) -> Job:
    return Job(options(**given), Columns(columns, columns))


def grow_with_each_request(world: ScriptedWorld, partition: TopicPartition) -> None:
    """Append a record to the partition before each answer to ListOffsets, as a live producer does."""
    batches = world.cluster.logs[partition].batches

    def on_request(broker: int, request: object) -> None:
        if isinstance(request, ListOffsetsRequest):
            end = world.cluster.logs[partition].end
            batches.append((end, end, batch([Record(b"k", b"%d" % end)], end)))

    world.cluster.on_request = on_request


@contextmanager
def logged(match: str) -> Iterator[None]:
    """Expect a warning of the source whose text matches."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("klamm.spark")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert any(re.search(match, line) for line in lines), lines
