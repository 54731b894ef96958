"""The column `value` decoded as the options say, and what becomes of records that cannot be decoded."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.avro import decode_avro
from klamm.spark.columns import TIMESTAMP_ERROR
from klamm.spark.dead_letters import dead_letter, write_dead_letters
from klamm.spark.options import ReadOptions
from klamm.spark.read_client import ReadClient
from klamm.spark.schema import Columns
from klamm.spark.values import Decoder, decode_json, decode_strings, reason_column, without
from klamm.wire.records import NewRecord

_DECODED: Final = frozenset(("value", "rawValue", "decodeError"))
"""The columns that are made from a record's value, and from its timestamp where that is reported."""
_PLACE: Final = ("topic", "partition", "offset")
_LETTER: Final = ("key", "timestamp", "headers")
_AS_OBJECTS: Final = ("key", "value", "headers", *_PLACE)
"""What of a dead letter becomes a Python object: not the timestamp, of which datetime ends with the year 9999."""


class BadValue(KlammError):
    """A value that is not of the format that the options say."""


class ValueColumn:
    """Decodes the values of record batches; `read` has the columns that must be read for it."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        names = frozenset(columns.names)
        reports = options.values.on_error.reports
        self._decodes_values = options.values.format != "raw" and not _DECODED.isdisjoint(names)
        self._reports_times = reports and names.issuperset(("timestamp", "decodeError"))
        """Without the column that says why, a timestamp is not null: the read fails."""
        self._is_active = self._decodes_values or (reports and "decodeError" in names)
        self.read = self._columns_to_read()
        self._decode = _decoder(options, columns.value_type)

    def apply(self, rows: pa.RecordBatch, brokers: ReadClient | None) -> pa.RecordBatch:
        """The rows with decoded values and the job's columns. Raises BadValue, and what writing dead letters raises.

        `brokers` may be None for rows without a value.
        """
        if not self._is_active:
            return rows.select(list(self._columns.names))
        on_error = self._options.values.on_error
        columns = {name: rows.column(name) for name in rows.schema.names}
        reasons: dict[int, str] = {}
        if self._decodes_values:
            values, reasons = self._decode(rows.column("value"))
            columns |= {"value": values, "rawValue": rows.column("value")}
        if self._reports_times:
            reasons = _with_timestamp_errors(rows.column(TIMESTAMP_ERROR), reasons)
        columns["decodeError"] = reason_column(rows.num_rows, reasons)
        found = pa.RecordBatch.from_pydict({name: columns[name] for name in self._columns.names})
        if not reasons or on_error.reports:
            return found
        if on_error.dead_letters is None:
            raise BadValue(self._bad_value(rows, reasons))
        assert brokers is not None
        write_dead_letters(brokers, on_error.dead_letters, _letters(rows, reasons))
        return without(found, reasons)

    def _columns_to_read(self) -> tuple[str, ...]:
        """Return the columns to read from the records: those asked for, and those needed to decode the values."""
        if not self._is_active:
            return self._columns.names
        made = _DECODED if self._decodes_values else _DECODED - {"value"}
        names = [name for name in self._columns.names if name not in made]
        needed = ["value"] if self._decodes_values else []
        needed += [*_PLACE, *(_LETTER if self._options.values.on_error.dead_letters else ())]
        needed += [TIMESTAMP_ERROR] if self._reports_times else []
        return tuple(dict.fromkeys([*names, *needed]))

    def _bad_value(self, rows: pa.RecordBatch, reasons: dict[int, str]) -> str:
        """Return the error text for the first value that is not of the format."""
        place, reason = min(reasons.items())
        topic, partition, offset = (rows.column(name)[place].as_py() for name in _PLACE)
        return (
            f"{TopicPartition(topic, partition)}, offset {offset}: {reason}. It is one of {len(reasons)} such values "
            f"in {rows.num_rows} records. Set the option onDecodeError to report or deadletter:TOPIC, or correct "
            "valueFormat or valueSchema."
        )


def _with_timestamp_errors(errors: pa.StringArray, reasons: dict[int, str]) -> dict[int, str]:
    """Why records cannot be decoded, by their place: because of their timestamp, of their value, or of both."""
    if errors.null_count == len(errors):
        return reasons
    times = {place: text for place, text in enumerate(errors.to_pylist()) if text is not None}
    return reasons | {p: f"{text}; {reasons[p]}" if p in reasons else text for p, text in times.items()}


def _decoder(options: ReadOptions, kind: pa.StructType | None) -> Decoder:
    """The decoder of the format that the options say; `kind` is None for text."""
    if kind is None:
        return decode_strings
    if options.values.format == "avro":
        assert options.values.schema is not None, "the schema gave the type"
        return decode_avro(options.values.schema, kind, options.values.registry)
    return decode_json(kind)


def _letters(rows: pa.RecordBatch, reasons: dict[int, str]) -> Sequence[tuple[int, NewRecord]]:
    """The records that could not be decoded, as dead letters with the partition from which they came."""
    places = sorted(reasons)
    bad: list[dict[str, Any]] = rows.select(list(_AS_OBJECTS)).take(pa.array(places)).to_pylist()
    times = pc.cast(rows.column("timestamp"), pa.int64()).take(pa.array(places)).to_pylist()
    letters = []
    for place, row, time_us in zip(places, bad, times, strict=True):
        headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
        record = NewRecord(row["value"], row["key"], time_us // 1000, headers)
        partition = TopicPartition(row["topic"], row["partition"])
        letters.append((row["partition"], dead_letter(record, partition, row["offset"], reasons[place])))
    return letters
