"""The demo's books: each run has a number of its own, also one that was cut short."""

from pathlib import Path

import pyarrow.parquet as pq

from klamm.cli.demo.acknowledgements import Books
from klamm.runtime.disk import RealDisk


def test_runs_are_numbered_and_kept(tmp_path: Path) -> None:
    books = Books(RealDisk(), str(tmp_path / "demo"))
    assert books.begin_run() == 1
    assert books.begin_run() == 2  # the first one was cut short

    books.keep(2, bytearray([1, 0, 1]))

    kept = pq.read_table(books.paths).to_pylist()
    assert kept == [{"run": 2, "row": 0}, {"run": 2, "row": 2}]
    books.forget()
    assert books.paths == []
