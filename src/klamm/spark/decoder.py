"""Converts fetched record batches to Arrow record batches, without a Python object per record."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from klamm.client.committed_batches import committed_batches, data_batches
from klamm.client.read_committed import Aborted
from klamm.model.ids import TopicPartition
from klamm.spark.columns import Rows, record_batch
from klamm.spark.errors import LEADER, Origin
from klamm.wire.records.batch import LOG_APPEND_TIME_BIT
from klamm.wire.vectors.batches import CorruptBatch, Headers, Run, check_crc, check_order
from klamm.wire.vectors.fields import Fields, Slices, read_headers
from klamm.wire.vectors.groups import GROUP_BYTES, Group, decode_group, group_batches, per_record
from klamm.wire.vectors.starts import Finder, find_bodies

MAX_ROWS_PER_BATCH: Final = 1 << 16  # of one Arrow record batch
_IN_HEADERS: Final = frozenset(("topic", "partition", "offset", "timestampType", "dataLoss"))
"""The columns that the headers of batches tell, where no offset in the batch is missing."""
_NO_SLICES: Final = Slices(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
_NO_FIELDS: Final = Fields(_NO_SLICES.starts, _NO_SLICES.starts, _NO_SLICES, _NO_SLICES)


class RecordSelection(NamedTuple):
    """Which records of a partition, and which of their columns."""

    topic_partition: TopicPartition
    start: int
    end: int  # exclusive
    columns: tuple[str, ...]


def decode(
    run: Run,
    selection: RecordSelection,
    aborted: Sequence[Aborted] | None = None,
    find: Finder = find_bodies,
    origin: Origin = LEADER,
) -> Iterator[pa.RecordBatch]:
    """Decode the selected records of the run. `aborted` is None for read_uncommitted.

    Raises CorruptBatch, naming the partition and offset, before any record of a damaged group is yielded.
    """
    try:
        check_order(run)
        check_crc(run)
        for rows in _rows(run, selection, _selected_batches(run, selection, aborted), find):
            yield from _record_batches(rows, selection)
    except CorruptBatch as error:
        first = int(run.headers["base_offset"][0])
        raise CorruptBatch(
            f"{selection.topic_partition}: the batches at offsets {first} to {run.next_offset - 1} cannot be "
            f"decoded: {error}. {origin.explain(error.position)}"
        ) from error


def _selected_batches(run: Run, selection: RecordSelection, aborted: Sequence[Aborted] | None) -> list[int]:
    """The indexes of the batches to decode: in range, and not of aborted transactions."""
    kept = data_batches(run) if aborted is None else committed_batches(run, aborted)
    kept &= (run.last_offsets >= selection.start) & (run.headers["base_offset"] < selection.end)
    return [int(i) for i in np.flatnonzero(kept & (run.headers["record_count"] > 0))]


def _rows(run: Run, selection: RecordSelection, chosen: list[int], find: Finder) -> Iterator[Rows]:
    """The rows of the chosen batches, in order; from their headers alone where that suffices.

    A count of more than one record per stored byte is not accepted without reading the records.
    """
    headers = run.headers[chosen]
    counts = headers["record_count"].astype(np.int64)
    is_dense = (counts == headers["last_offset_delta"].astype(np.int64) + 1) & (counts <= headers["batch_length"])
    if _IN_HEADERS.issuperset(selection.columns) and is_dense.all():
        if chosen:
            yield _rows_of_headers(headers, selection)
        return
    for group in group_batches(run, chosen, GROUP_BYTES):
        yield _decode_group(group, selection, find)


def _rows_of_headers(headers: Headers, selection: RecordSelection) -> Rows:
    """Return the rows of batches without gaps in their offsets, made from the batch headers alone."""
    counts = headers["record_count"].astype(np.int64)
    batch_of = np.repeat(np.arange(len(headers)), counts)
    firsts = np.cumsum(counts) - counts
    offsets = headers["base_offset"].astype(np.int64)[batch_of] + np.arange(len(batch_of)) - firsts[batch_of]
    types = _timestamp_types(headers)[batch_of]
    return Rows(pa.py_buffer(b""), selection.topic_partition, _NO_FIELDS, None, offsets, _NO_SLICES.starts, types)


def _timestamp_types(headers: Headers) -> npt.NDArray[np.int32]:
    """Who set the timestamps of each batch: 0 the producer, 1 the broker, -1 nobody, as in message format 0."""
    log_append = (headers["attributes"] & LOG_APPEND_TIME_BIT) != 0
    return np.where(headers["magic"] == 0, -1, log_append).astype(np.int32)


def _decode_group(group: Group, selection: RecordSelection, find: Finder) -> Rows:
    """Decode the records of a group of batches."""
    found = decode_group(group, find)
    headers = read_headers(found.raw, found.bodies, found.fields.values) if "headers" in selection.columns else None
    log_append = (group.headers["attributes"] & LOG_APPEND_TIME_BIT) != 0
    timestamps, batch_of = found.timestamps, found.batch_of
    if log_append.any():
        timestamps = np.where(log_append[batch_of], per_record(group.headers["max_timestamp"], batch_of), timestamps)
    types = _timestamp_types(group.headers)[batch_of]
    buffer = pa.py_buffer(group.buffer)
    return Rows(buffer, selection.topic_partition, found.fields, headers, found.offsets, timestamps, types)


def _record_batches(rows: Rows, selection: RecordSelection) -> Iterator[pa.RecordBatch]:
    """The rows in range, as record batches of limited size."""
    inside = np.flatnonzero((rows.offsets >= selection.start) & (rows.offsets < selection.end))
    for begin in range(0, len(inside), MAX_ROWS_PER_BATCH):
        yield record_batch(rows, selection.columns, inside[begin : begin + MAX_ROWS_PER_BATCH])
