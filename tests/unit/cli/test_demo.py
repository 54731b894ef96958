"""The acknowledged rows and the report of the demo."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.charts.model import Span
from klamm.cli.demo.acknowledgements import AcknowledgedRows
from klamm.cli.demo.charts import NO_LEADER, carrier_charts, leader_chart
from klamm.cli.demo.count import Carrier, Count, RunCount, count_rows
from klamm.cli.demo.report import merge_leader_gaps
from klamm.cli.demo.run import parse_options
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal_reader import Entry, LeaderChange


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


def counted(rows: list[tuple[int, int, int, int]], acknowledged: list[tuple[int, int]], ends: dict[int, int]) -> Count:
    """Count rows (run, row, partition, offset) of run 2; odd rows are flights of AA, late by their number."""
    run, row, partition, offset = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "run": pa.array(run, pa.int32()),
            "row": pa.array(row, pa.int32()),
            "carrier": ["AA" if n % 2 else "UA" for n in row],
            "dep_delay": [float(n) if n % 2 else None for n in row],
            "partition": partition,
            "offset": offset,
        }
    )
    known = {name: pa.array([key[i] for key in acknowledged], pa.int32()) for i, name in enumerate(("run", "row"))}
    return count_rows(table, pa.table(known), 2, ends)


def test_klamm_demo_counts_a_table_that_has_every_record_once_without_a_problem() -> None:
    rows = [(1, 0, 0, 0), (2, 1, 0, 1), (2, 3, 1, 0), (2, 4, 0, 2)]

    count = counted(rows, [(1, 0), (2, 1), (2, 3)], {0: 3, 1: 1})

    assert (count.own, count.earlier, count.differing) == (RunCount(3, 0, 0), RunCount(1, 0, 0), [])
    assert count.carriers == [Carrier("AA", 2, 2.0), Carrier("UA", 1, None)]


def test_klamm_demo_counts_lost_and_repeated_rows_of_this_run_and_of_earlier_ones() -> None:
    rows = [(1, 0, 0, 0), (1, 0, 0, 1), (2, 1, 1, 0), (2, 1, 1, 0), (2, 1, 1, 1)]

    count = counted(rows, [(1, 0), (1, 5), (1, 6), (2, 1), (2, 2)], {0: 2, 1: 2, 2: 1})

    assert (count.own, count.earlier) == (RunCount(3, 1, 1), RunCount(2, 2, 1))
    assert count.differing == [
        "partition 1 has 2 records, and the table 3 rows with 2 different offsets up to 1",
        "partition 2 has 1 records, and the table 0 rows with 0 different offsets up to -1",
    ]


def test_klamm_demo_charts_carriers_by_flights_without_negative_bars() -> None:
    flights, delays = carrier_charts([Carrier("AA", 5, 2.5), Carrier("HA", 9, -1.5), Carrier("YV", 5, None)])

    assert (flights.names, flights.series) == (["HA", "AA", "YV"], {"flights": [9, 5, 5]})
    assert (delays.names, delays.series) == (["HA", "AA", "YV"], {"delay": [0.0, 2.5, 0.0]})


def election(ts_ms: int, topic: str, partition: int, leader_from: int | None, leader_to: int) -> Entry:
    facts = {"topic": topic, "partition": partition, "leader_from": leader_from, "leader_to": leader_to}
    return Entry(ts_ms, 1, 1, ts_ms, "1.1.1", "decision", facts)


def test_klamm_demo_charts_the_leaders_before_and_after_each_change() -> None:
    entries = [
        election(50, "flights", 0, None, 1),
        election(50, "flights", 1, None, 2),
        election(60, "flights", 2, None, 1),
        election(90, "flights", 2, 1, 3),
        election(120, "flights", 1, 2, -1),
        election(130, "flights", 1, -1, 3),
        election(150, "other", 0, 1, 2),
    ]

    chart = leader_chart(entries, "flights", 100, 200)

    assert chart.rows == {
        "flights-0": [Span(50, 200, "node 1")],
        "flights-1": [Span(100, 120, "node 2"), Span(120, 130, NO_LEADER), Span(130, 200, "node 3")],
        "flights-2": [Span(90, 200, "node 3")],
    }
    assert chart.notes == {"flights-0": "", "flights-1": "2 changes", "flights-2": ""}
    assert (chart.begin_ms, chart.end_ms, chart.marked) == (100, 200, NO_LEADER)


def test_klamm_demo_runs_its_nodes_with_crash_guards_unless_they_are_turned_off() -> None:
    assert (parse_options([]).directory, parse_options([]).overrides) == ("demo-data", {})
    without = parse_options(["elsewhere", "--no-crash-guard"])
    assert (without.directory, without.overrides) == ("elsewhere", {"klamm.crash.guard": "false"})
