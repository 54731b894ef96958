"""The acknowledged rows of each run of the demo, as one Parquet file per run."""

import re
from posixpath import join
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.runtime.disk import Disk
from klamm.runtime.small_files import create_directory

_NAME: Final = re.compile(r"acknowledged-(\d+)\.parquet")


class AcknowledgedRows:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        create_directory(disk, directory)

    @property
    def runs(self) -> list[int]:
        """The numbers of the stored runs, ascending."""
        matches = (_NAME.fullmatch(name) for name in self._disk.list_directory(self._directory))
        return sorted(int(m[1]) for m in matches if m)

    @property
    def paths(self) -> list[str]:
        """The Parquet file of each run."""
        return [self._path(run) for run in self.runs]

    def begin_run(self) -> int:
        """Create the file of a new run and return its number; it exists even if the run does not finish."""
        run = max(self.runs, default=0) + 1
        self.write_run(run, bytearray())
        return run

    def write_run(self, run: int, acknowledged: bytearray) -> None:
        """Store which rows of a run were acknowledged: one byte for each row, 1 if it was."""
        rows = [number for number, flag in enumerate(acknowledged) if flag]
        table = pa.table({"run": pa.array([run] * len(rows), pa.int32()), "row": pa.array(rows, pa.int32())})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self._disk.write_atomically(self._path(run), sink.getvalue().to_pybytes())

    def remove_all(self) -> None:
        """Remove the files of all runs, because their topic does not exist any more."""
        for path in self.paths:
            self._disk.remove(path)

    def _path(self, run: int) -> str:
        """Return the path of the file with the acknowledged rows of run number `run`."""
        return join(self._directory, f"acknowledged-{run:03}.parquet")
