"""Conditions on topic, partition, offset and timestamp that the source itself applies, given by Spark as filters.

They select partitions and offsets before anything is fetched, and rows exactly. A lower limit on the timestamp also
selects the first offset; an upper one cannot select the last, since timestamps need not increase.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from klamm.model.ids import TopicPartition

_OPERATORS: Final = {
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}
_COLUMNS: Final = ("topic", "partition", "offset", "timestamp")
_NEVER_NULL: Final = ("topic", "partition", "offset")
_MS: Final = 1000


class Condition(NamedTuple):
    """One comparison of a column, by the name of Arrow's function, or `is_in` with a tuple of values."""

    column: str
    operator: str
    value: Any

    def holds(self, value: Any) -> bool:
        """Whether a value meets the condition, for example `offset >= 5`."""
        return _COMPARISONS[self.operator](value, self.value)


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "equal": lambda a, b: a == b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "is_in": lambda a, b: a in b,
}


class RowFilter(NamedTuple):
    """Conditions that all hold for a row that is read."""

    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the filter compares."""
        return frozenset(c.column for c in self.conditions)

    @property
    def min_time_ms(self) -> int | None:
        """The lowest timestamp that passes, in milliseconds since 1970, rounded down; None without a lower limit."""
        limits = [
            min(c.value) if c.operator == "is_in" else c.value
            for c in self.conditions
            if c.column == "timestamp" and c.operator in ("equal", "greater", "greater_equal", "is_in")
        ]
        return max(limits) // _MS if limits else None

    def may_have(self, partition: TopicPartition) -> bool:
        """Whether rows of this partition can pass the conditions on topic and partition."""
        values = {"topic": partition.topic, "partition": partition.partition}
        return all(c.holds(values[c.column]) for c in self.conditions if c.column in values)

    def clip(self, start: int, end: int) -> tuple[int, int]:
        """The part of the offset range that can pass the conditions on offsets."""
        for column, operator, value in self.conditions:
            if column != "offset":
                continue
            if operator in ("equal", "is_in", "greater_equal"):
                start = max(start, min(value) if operator == "is_in" else value)
            if operator == "greater":
                start = max(start, value + 1)
            if operator in ("equal", "is_in", "less_equal"):
                end = min(end, (max(value) if operator == "is_in" else value) + 1)
            if operator == "less":
                end = min(end, value)
        return start, max(start, end)

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that meet all conditions."""
        for column, operator, value in self.conditions:
            values = rows.column(column)
            if operator == "is_in":
                mask = pc.is_in(values, value_set=pa.array(value, _plain(values.type)).view(values.type))
            else:
                mask = getattr(pc, operator)(values, pa.scalar(value, _plain(values.type)).cast(values.type))
            rows = rows.filter(mask)
        return rows


EVERY_ROW: Final = RowFilter()


def take_filters(filters: Iterable[Filter], taken: list[Condition]) -> Iterator[Filter]:
    """Add the conditions that this source applies to `taken`; yield the filters that Spark has to apply."""
    for given in filters:
        path: tuple[str, ...] = getattr(given, "attribute", ())
        column = path[0].lower() if len(path) == 1 else ""
        condition = _condition(column, given)
        if condition is not None:
            taken.append(condition)
        elif not (isinstance(given, IsNotNull) and column in _NEVER_NULL):
            yield given


def _condition(column: str, given: Any) -> Condition | None:
    """Convert a Spark filter to a condition; None for one that the source does not apply."""
    if column not in _COLUMNS:
        return None
    if isinstance(given, In):
        values = tuple(_as_stored(v) for v in given.value if v is not None)
        return Condition(column, "is_in", values) if values else None
    operator = _OPERATORS.get(type(given))
    if operator is None or given.value is None:
        return None
    return Condition(column, operator, _as_stored(given.value))


def _as_stored(value: Any) -> Any:
    """The value as Arrow stores it: a time in microseconds since 1970, else the value itself."""
    if not isinstance(value, datetime):
        return value
    whole = value.replace(microsecond=0).timestamp()
    return int(whole) * 1_000_000 + value.microsecond


def _plain(kind: pa.DataType) -> pa.DataType:
    """The Arrow type in which conditions hold the values of a column of this type."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind
