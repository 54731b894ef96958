"""The demo's books: each run has a number of its own, also one that was cut short."""

from pathlib import Path

import pyarrow.parquet as pq

from klamm.cli.demo.acknowledgements import AcknowledgedRows
from klamm.runtime.disk import RealDisk


def test_runs_are_numbered_and_kept(tmp_path: Path) -> None:
    acknowledged_rows = AcknowledgedRows(RealDisk(), str(tmp_path / "demo"))
    assert acknowledged_rows.begin_run() == 1
    assert acknowledged_rows.begin_run() == 2  # the first one was cut short

    acknowledged_rows.keep(2, bytearray([1, 0, 1]))

    kept = pq.read_table(acknowledged_rows.paths).to_pylist()
    assert kept == [{"run": 2, "row": 0}, {"run": 2, "row": 2}]
    acknowledged_rows.forget()
    assert acknowledged_rows.paths == []
