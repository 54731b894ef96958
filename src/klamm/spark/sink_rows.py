"""Arrow record batches of a DataFrame as the rows to write, sorted by topic and partition."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.record_encoder import Longs, RecordColumns, Run, lengths_of, record_sizes
from klamm.spark.row_partitioner import StickyPartitions, partitions_by_key
from klamm.spark.sink_schema import SinkColumns

_HEADER_TYPE = pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())]))


class BadRow(KlammError):
    """A row that cannot be a record."""


class Rows(NamedTuple):
    """`topics` is None where an option says the topic, `partitions` where the rows do not say it."""

    records: RecordColumns
    topics: pa.StringArray | None
    partitions: pa.Int32Array | None

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.records.values)


def gather(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join record batches until they have `max_bytes`; empty ones are left out."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and size + batch.nbytes > max_bytes:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def rows_of(batch: pa.RecordBatch, columns: SinkColumns) -> Rows:
    """The columns to write. Raises BadRow for a null topic and a header without a key."""
    keys = None if columns.key is None else _binary(batch.column(columns.key))
    if keys is not None and keys.null_count == len(keys):
        keys = None
    headers = None if columns.headers is None else _headers(batch.column(columns.headers))
    topics = None if columns.topic is None else batch.column(columns.topic).cast(pa.string())
    if topics is not None and topics.null_count:
        raise BadRow(
            f"the column topic is null in {topics.null_count} rows of {len(topics)}: filter them out, or set the "
            "option topic"
        )
    partitions = None if columns.partition is None else batch.column(columns.partition)
    return Rows(RecordColumns(keys, _binary(batch.column(columns.value)), headers), topics, partitions)


def _binary(column: pa.Array) -> pa.BinaryArray:
    """A column of text or bytes as bytes."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _headers(column: pa.Array) -> pa.ListArray | None:
    """The headers with keys as bytes; None where no row has one. Raises BadRow for a header that is or has a null."""
    flat = column.flatten()
    if not len(flat):
        return None
    if flat.null_count or flat.field("key").null_count:
        raise BadRow("the column headers has a header that is null, or whose key is null: filter such headers out")
    return column.cast(_HEADER_TYPE)


class Router:
    """Sorts rows by topic and partition; rows of one partition keep their order."""

    def __init__(self, topic: str | None, sticky: StickyPartitions, *, ignores_keys: bool) -> None:
        self._topic = topic
        self._sticky = sticky
        self._ignores_keys = ignores_keys

    def topics_of(self, rows: Rows) -> list[str]:
        """The names of the topics of these rows, each once."""
        if rows.topics is None:
            return [self._topic or ""]
        return sorted(pc.unique(rows.topics).to_pylist())

    def route(self, rows: Rows, counts: Mapping[str, int]) -> tuple[RecordColumns, list[Run]]:
        """The rows in the order of their partitions. `counts` has each topic's number of partitions. Raises BadRow."""
        topics = self.topics_of(rows)
        if rows.topics is None:
            topic_of = np.zeros(rows.size, np.int64)
        else:
            topic_of = pc.index_in(rows.topics, pa.array(topics)).to_numpy(zero_copy_only=False).astype(np.int64)
        chosen = np.empty(rows.size, np.int64)
        for number, topic in enumerate(topics):
            mine = np.flatnonzero(topic_of == number) if len(topics) > 1 else None
            part = rows if mine is None else _take(rows, mine)
            partitions = self._partitions(part, topic, counts[topic])
            if mine is None:
                chosen = partitions
            else:
                chosen[mine] = partitions
        return _sorted_by(rows.records, topics, topic_of, chosen)

    def _partitions(self, rows: Rows, topic: str, count: int) -> Longs:
        """The partition of each row: its own, else by its key, else where there is room. Raises BadRow."""
        keys = None if self._ignores_keys else rows.records.keys
        chosen = np.full(rows.size, -1, np.int64) if keys is None else partitions_by_key(keys, count)
        if keys is not None and keys.null_count:
            chosen[lengths_of(keys) < 0] = -1
        if rows.partitions is not None:
            given = pc.fill_null(rows.partitions, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            is_given = pc.is_valid(rows.partitions).to_numpy(zero_copy_only=False)
            wrong = is_given & ((given < 0) | (given >= count))
            if wrong.any():
                raise BadRow(
                    f"the column partition is {given[wrong][0]} in a row for topic {topic}, which has the partitions 0 "
                    f"to {count - 1}: correct it, or make it null"
                )
            chosen = np.where(is_given, given, chosen)
        free = np.flatnonzero(chosen < 0)
        if free.size:
            chosen[free] = self._sticky.choose(topic, record_sizes(rows.records)[free], count)
        return chosen


def _take(rows: Rows, at: Longs) -> Rows:
    """Return the rows at these positions."""
    picked = pa.array(at)
    records = RecordColumns(*(None if c is None else c.take(picked) for c in rows.records))
    return Rows(records, None, None if rows.partitions is None else rows.partitions.take(picked))


def _sorted_by(
    records: RecordColumns, topics: list[str], topic_of: Longs, chosen: Longs
) -> tuple[RecordColumns, list[Run]]:
    """The rows in the order of topics and partitions, and where each partition's rows are."""
    width = int(chosen.max()) + 1
    targets = topic_of * width + chosen
    if (targets[1:] < targets[:-1]).any():
        # numpy sorts numbers of 16 bits by their digits, ten times faster
        order = np.argsort(targets.astype(np.uint16) if targets.max() < 1 << 16 else targets, kind="stable")
        targets = targets[order]
        picked = pa.array(order)
        records = RecordColumns(*(None if c is None else c.take(picked) for c in records))
    starts = np.flatnonzero(np.diff(targets, prepend=-1))
    ends = np.append(starts[1:], len(targets))
    runs = [
        Run(TopicPartition(topics[int(targets[s]) // width], int(targets[s]) % width), int(s), int(e))
        for s, e in zip(starts, ends, strict=True)
    ]
    return records, runs
