"""The option table: what log directories consist of, as rows: partitions, segments, batches of every replica."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from klamm.log.names import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, offset_of, segment_file
from klamm.log.replicas.directories import StoredReplica, most_advanced, topic_id_of
from klamm.log.replicas.offsets import StoredOffsets
from klamm.log.replicas.reader import Gap, ReplicaReader, StoredRun
from klamm.log.replicas.segment_files import SegmentFile, list_segment_files
from klamm.model.topic_ids import id_to_text
from klamm.runtime.blocking import BlockingWorld
from klamm.runtime.disk import Disk
from klamm.spark.columns import fits_microseconds
from klamm.spark.errors import BadOption
from klamm.spark.log_dirs import LogDirs
from klamm.spark.options import ReadOptions
from klamm.spark.partitions import find_partitions
from klamm.wire.compression import Codec
from klamm.wire.records.batch import CODEC_MASK, CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT
from klamm.wire.vectors.batches import valid_checksums
from klamm.wire.vectors.varints import Longs

_TIME: Final = pa.timestamp("us", tz="UTC")
_REPLICA: Final = (
    ("topic", pa.string()), ("partition", pa.int32()), ("logDir", pa.string()), ("brokerId", pa.int32()),
)  # fmt: skip
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "partitions": pa.schema([
        *_REPLICA, ("topicId", pa.string()), ("logStartOffset", pa.int64()), ("highWatermark", pa.int64()),
        ("segments", pa.int32()), ("bytes", pa.int64()), ("isRead", pa.bool_()),
    ]),
    "segments": pa.schema([
        *_REPLICA, ("baseOffset", pa.int64()), ("bytes", pa.int64()), ("modified", _TIME),
        ("offsetIndexBytes", pa.int64()), ("timeIndexBytes", pa.int64()), ("transactionIndexBytes", pa.int64()),
    ]),
    "batches": pa.schema([
        *_REPLICA, ("segment", pa.int64()), ("position", pa.int64()), ("bytes", pa.int32()), ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()), ("records", pa.int32()), ("leaderEpoch", pa.int32()), ("maxTimestamp", _TIME),
        ("timestampType", pa.int32()), ("codec", pa.string()), ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()), ("baseSequence", pa.int32()), ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()), ("checksum", pa.int64()), ("isValid", pa.bool_()),
    ]),
}  # fmt: skip
"""`isRead`: records are read from this replica; `isValid`: the checksum is that of the bytes."""


class TableTask(NamedTuple):
    replica: StoredReplica
    topic_id: uuid.UUID | None
    is_read: bool


def table_schema(table: str) -> StructType:
    """The Spark schema of a table."""
    return from_arrow_schema(SCHEMAS[table])


def table_columns(table: str, schema: StructType) -> tuple[tuple[str, str], ...]:
    """The columns that a user's schema selects, each with the name that it gives; names in any case.

    Raises BadOption for any other column or type.
    """
    known = {field.name.lower(): field for field in table_schema(table).fields}
    for field in schema.fields:
        found = known.get(field.name.lower())
        if found is None or found.dataType != field.dataType:
            raise BadOption(
                f"the schema has the column {field.name} {field.dataType.simpleString()}, which the table {table} does "
                "not have. Use some of: " + ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in known.values())
            )
    return tuple((known[name.lower()].name, name) for name in schema.names)


def plan_table(world: BlockingWorld, disk: Disk, options: ReadOptions) -> list[TableTask]:
    """A task for each replica of the partitions that the options select. Raises BadOption."""
    directories = LogDirs(world, disk, options)
    if options.subscription.pattern is None:
        partitions = find_partitions(directories)
    else:
        directories.refresh()
        partitions = [p for p in directories.replicas if options.subscription.includes(p)]
    tasks = []
    for partition in partitions:
        replicas = directories.replicas[partition]
        read = most_advanced(replicas)
        tasks += [TableTask(r, topic_id_of(disk, r), r == read) for r in replicas]
    return tasks


def read_table(
    disk: Disk, table: str, columns: tuple[tuple[str, str], ...], task: TableTask
) -> Iterator[pa.RecordBatch]:
    """The rows of one replica, with the selected columns. Raises ReplicaGone, CorruptBatch, CorruptFile, OSError."""
    schema = SCHEMAS[table]
    selected = pa.schema([schema.field(name).with_name(label) for name, label in columns])
    replica = task.replica
    for found in _TABLES[table](disk, task):
        count = len(next(iter(found.values())))
        known = {
            "topic": [replica.partition.topic] * count,
            "partition": [replica.partition.partition] * count,
            "logDir": [replica.log_dir] * count,
            "brokerId": [replica.broker_id] * count,
            **found,
        }
        arrays = [pa.array(known[name], schema.field(name).type) for name, _ in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=selected)


Columns = dict[str, Any]


def _partition_rows(disk: Disk, task: TableTask) -> Iterator[Columns]:
    """The one row of a replica."""
    offsets = StoredOffsets(disk, task.replica, task.topic_id)
    yield {
        "topicId": [None if task.topic_id is None else id_to_text(task.topic_id)],
        "logStartOffset": [offsets.log_start()],
        "highWatermark": [task.replica.high_watermark],
        "segments": [len(list_segment_files(disk, task.replica.directory).segments)],
        "bytes": [offsets.size()],
        "isRead": [task.is_read],
    }


def _segment_rows(disk: Disk, task: TableTask) -> Iterator[Columns]:
    """A row for each segment; those that vanish meanwhile are left out."""
    for file in list_segment_files(disk, task.replica.directory).segments:
        path = _path(task.replica, file, LOG)
        try:
            size, modified_ms = disk.size(path), disk.modified_ms(path)
        except FileNotFoundError:
            continue
        yield {
            "baseOffset": [file.base_offset],
            "bytes": [size],
            "modified": [modified_ms * 1000],
            "offsetIndexBytes": [_size(disk, task.replica, file, INDEX)],
            "timeIndexBytes": [_size(disk, task.replica, file, TIME_INDEX)],
            "transactionIndexBytes": [_size(disk, task.replica, file, TRANSACTION_INDEX)],
        }


def _path(replica: StoredReplica, file: SegmentFile, kind: str) -> str:
    """The path of one of a segment's files."""
    return f"{replica.directory}/{segment_file(file.base_offset, kind)}{file.suffix}"


def _size(disk: Disk, replica: StoredReplica, file: SegmentFile, kind: str) -> int | None:
    """The size of one of a segment's files; None where there is none."""
    try:
        return disk.size(_path(replica, file, kind))
    except FileNotFoundError:
        return None


def _batch_rows(disk: Disk, task: TableTask) -> Iterator[Columns]:
    """A row for each batch up to the high watermark; gaps are left out."""
    offsets = StoredOffsets(disk, task.replica, task.topic_id)
    start, end = offsets.log_start(), offsets.high_watermark()
    for found in ReplicaReader(disk, task.replica, task.topic_id, start, end):
        if not isinstance(found, Gap):
            yield _columns_of(found)


def _columns_of(found: StoredRun) -> Columns:
    """The columns of the batches of one run."""
    run, headers = found.run, found.run.headers
    attributes = headers["attributes"].astype(np.int32)
    name = found.path.rpartition("/")[2]
    return {
        "segment": np.full(len(headers), offset_of(name), np.int64),
        "position": np.array(run.positions, np.int64) + found.position,
        "bytes": np.array(run.sizes, np.int32),
        "baseOffset": headers["base_offset"].astype(np.int64),
        "lastOffset": run.last_offsets,
        "records": headers["record_count"].astype(np.int32),
        "leaderEpoch": headers["leader_epoch"].astype(np.int32),
        "maxTimestamp": _times_of(headers["max_timestamp"].astype(np.int64)),
        "timestampType": ((attributes & LOG_APPEND_TIME_BIT) != 0).astype(np.int32),
        "codec": [_CODECS[number] for number in (attributes & CODEC_MASK).tolist()],
        "producerId": headers["producer_id"].astype(np.int64),
        "producerEpoch": headers["producer_epoch"].astype(np.int32),
        "baseSequence": headers["base_sequence"].astype(np.int32),
        "isTransactional": (attributes & TRANSACTIONAL_BIT) != 0,
        "isControl": (attributes & CONTROL_BIT) != 0,
        "checksum": headers["crc"].astype(np.int64),
        "isValid": valid_checksums(run),
    }


def _times_of(milliseconds: Longs) -> Any:
    """The times in microseconds; null where these have more than 64 bits."""
    return np.ma.masked_array(milliseconds * 1000, mask=~fits_microseconds(milliseconds))


_CODECS: Final = {number: str(number) for number in range(8)} | {int(codec): codec.name.lower() for codec in Codec}
_TABLES: Final[Mapping[str, Callable[[Disk, TableTask], Iterator[Columns]]]] = {
    "partitions": _partition_rows,
    "segments": _segment_rows,
    "batches": _batch_rows,
}
