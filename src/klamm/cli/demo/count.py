"""Count what the pipeline of the demo wrote: the rows of its table beside the acknowledged records.

The table is read with deltalake, without Spark and without the code that wrote it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

_KEYS = ("run", "row")


class Carrier(NamedTuple):
    carrier: str
    flights: int
    mean_departure_delay_minutes: float | None


class RunCount(NamedTuple):
    """The rows of one run or of several runs."""

    rows: int
    """Rows in the table, duplicates included."""
    lost: int
    """Acknowledged records without a row."""
    twice: int
    """Records with more than one row."""


class Count(NamedTuple):
    own: RunCount
    """This run."""
    earlier: RunCount
    """All earlier runs."""
    differing: list[str]
    """Partitions whose rows are not the records of the topic, each once; as text with the numbers."""
    carriers: list[Carrier]
    """Of this run, by name."""


def count_table(path: str, acknowledged: Sequence[str], run: int, ends: Mapping[int, int]) -> Count:
    """Count the rows of the Delta table. `ends` has the number of records of each partition of the topic."""
    rows = DeltaTable(path).to_pyarrow_table(columns=[*_KEYS, "carrier", "dep_delay", "partition", "offset"])
    return count_rows(rows, pq.read_table(list(acknowledged)), run, ends)


def count_rows(rows: pa.Table, acknowledged: pa.Table, run: int, ends: Mapping[int, int]) -> Count:
    """Compare rows with the acknowledged records, which have the columns `run` and `row`, and with the topic."""
    is_own = pc.equal(rows["run"], run)
    own = rows.filter(is_own)
    is_acknowledged_now = pc.equal(acknowledged["run"], run)
    return Count(
        _count_run(own, acknowledged.filter(is_acknowledged_now)),
        _count_run(rows.filter(pc.invert(is_own)), acknowledged.filter(pc.invert(is_acknowledged_now))),
        _differing_partitions(rows, ends),
        _carriers(own),
    )


def _count_run(rows: pa.Table, acknowledged: pa.Table) -> RunCount:
    """Count the rows of some runs, whose acknowledged records are given."""
    each = rows.group_by(_KEYS).aggregate([([], "count_all")])
    lost = acknowledged.join(each, list(_KEYS), join_type="left anti").num_rows
    return RunCount(rows.num_rows, lost, pc.sum(pc.greater(each["count_all"], 1)).as_py() or 0)


def _differing_partitions(rows: pa.Table, ends: Mapping[int, int]) -> list[str]:
    """Return the partitions whose rows do not have each offset from 0 to the end of the log once."""
    grouped = rows.group_by("partition").aggregate([([], "count_all"), ("offset", "count_distinct"), ("offset", "max")])
    found = {group["partition"]: group for group in grouped.to_pylist()}
    differing = []
    for partition, end in sorted(ends.items()):
        group = found.get(partition, {"count_all": 0, "offset_count_distinct": 0, "offset_max": -1})
        if (group["count_all"], group["offset_count_distinct"], group["offset_max"] + 1) != (end, end, end):
            differing.append(
                f"partition {partition} has {end} records, and the table {group['count_all']} rows with "
                f"{group['offset_count_distinct']} different offsets up to {group['offset_max']}"
            )
    return differing


def _carriers(rows: pa.Table) -> list[Carrier]:
    """Return the flights of each carrier, and their mean departure delay."""
    groups = rows.group_by("carrier").aggregate([([], "count_all"), ("dep_delay", "mean")]).sort_by("carrier")
    return [Carrier(g["carrier"], g["count_all"], g["dep_delay_mean"]) for g in groups.to_pylist()]
