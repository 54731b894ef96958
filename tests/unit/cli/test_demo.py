"""The acknowledged rows and the report of the demo."""

from pathlib import Path

import pyarrow.parquet as pq

from klamm.cli.demo.acknowledgements import AcknowledgedRows
from klamm.cli.demo.report import merge_leader_gaps
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal_reader import LeaderChange


def test_each_run_of_klamm_demo_stores_its_acknowledged_records_under_the_next_number(tmp_path: Path) -> None:
    acknowledged_rows = AcknowledgedRows(RealDisk(), str(tmp_path / "demo"))
    assert acknowledged_rows.begin_run() == 1
    assert acknowledged_rows.begin_run() == 2  # the first one was cut short

    acknowledged_rows.write_run(2, bytearray([1, 0, 1]))

    kept = pq.read_table(acknowledged_rows.paths).to_pylist()
    assert kept == [{"run": 2, "row": 0}, {"run": 2, "row": 2}]
    acknowledged_rows.remove_all()
    assert acknowledged_rows.paths == []


def change(ts_ms: int, partition: int, leader_from: int, leader_to: int) -> LeaderChange:
    return LeaderChange(ts_ms, TopicPartition("flights", partition), leader_from, leader_to, 1, "why", (), False)


def test_klamm_demo_reports_a_leader_change_with_an_offline_period_as_one_change() -> None:
    changes = [change(1, 4, 2, -1), change(1, 1, 2, -1), change(2, 1, -1, 3), change(2, 4, -1, 1), change(3, 4, 1, 2)]

    joined = [(c.partition.partition, c.leader_from, c.leader_to) for c in merge_leader_gaps(changes)]

    assert joined == [(1, 2, 3), (4, 2, 1), (4, 1, 2)]


def test_klamm_demo_reports_a_partition_without_a_new_leader() -> None:
    assert merge_leader_gaps([change(1, 0, 2, -1)]) == [change(1, 0, 2, -1)]
