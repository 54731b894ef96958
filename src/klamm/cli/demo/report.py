"""The report at the end of the demo."""

from collections.abc import Sequence
from posixpath import join

from klamm.charts.files import check_drawable, write_charts
from klamm.charts.model import Bars, Chart, Timeline
from klamm.cli.charts import print_chart
from klamm.cli.demo.count import Count
from klamm.cli.demo.interruptions import Interruption
from klamm.cli.demo.load import Loader
from klamm.cli.output import print_line, print_table
from klamm.runtime.disk import Disk
from klamm.telemetry.journal_reader import (
    Entry,
    LeaderChange,
    controller_absence_ms,
    controller_terms,
    leader_changes,
    read_journals,
)


def print_report(
    disk: Disk, journals: Sequence[str], topic: str, interruptions: Sequence[Interruption], loader: Loader, count: Count
) -> list[Entry]:
    """Print what was counted, and what happened in each interruption. Returns the journal."""
    entries = list(read_journals(disk, journals))
    _print_counts(loader, count)
    for interruption in interruptions:
        _print_interruption(entries, topic, interruption, loader)
    return entries


def print_charts(directory: str, carriers: Sequence[Bars], leaders: Timeline) -> None:
    """Print the charts, and write them to image files. Raises CannotDraw."""
    charts: list[Chart] = [*carriers, leaders]
    for chart in charts:
        print_line()
        print_chart(chart)
    print_line()
    files: dict[str, Sequence[Chart]] = {"carriers.png": carriers, "leaders.png": [leaders]}
    for name, of_file in files.items():
        path = join(directory, name)
        check_drawable(path, "the chart")
        write_charts(path, of_file)
        print_line(f"Chart: {path}")


def _print_counts(loader: Loader, count: Count) -> None:
    """Print how many records were sent, acknowledged, found in the table, lost and duplicated."""
    print_line()
    rows: list[tuple[str, int]] = [
        ("records sent", loader.sent),
        ("acknowledged", loader.acknowledged_count),
        ("rows in the table", count.own.rows),
        ("acknowledged, not in the table", count.own.lost),
        ("more than once in the table", count.own.twice),
    ]
    if count.earlier.rows or count.earlier.lost:
        rows += [
            ("rows of earlier runs", count.earlier.rows),
            ("acknowledged in earlier runs, not in the table", count.earlier.lost),
            ("more than once, earlier runs", count.earlier.twice),
        ]
    print_table(("", "records"), rows)


def _print_interruption(entries: Sequence[Entry], topic: str, interruption: Interruption, loader: Loader) -> None:
    """Print what an interruption caused: time without controller, longest gap, changes of leaders."""
    print_line()
    print_line(f"{interruption.what}: every partition in sync again after {interruption.recovery_s:.1f} s")
    print_line(f"  {_controller_absence_text(entries, interruption)}")
    gap = loader.longest_gap_s(interruption.began, interruption.ended)
    print_line(f"  longest gap between two acknowledgements: {f'{gap:.2f} s' if gap else 'under 0.2 s'}")
    changes = [
        change
        for change in leader_changes(entries)
        if change.partition.topic == topic and interruption.began_ms <= change.ts_ms <= interruption.ended_ms
    ]
    if not changes:
        print_line("  no leader changed")
        return
    print_table(("partition", "from", "to", "why"), [_change_row(change) for change in merge_leader_gaps(changes)])


def merge_leader_gaps(changes: Sequence[LeaderChange]) -> list[LeaderChange]:
    """Sort changes by partition, and merge a change to no leader with the next change to a leader."""
    joined: list[LeaderChange] = []
    for change in sorted(changes, key=lambda c: (c.partition, c.ts_ms)):
        last = joined[-1] if joined else None
        if last is not None and last.partition == change.partition and last.leader_to < 0 and change.leader_from < 0:
            joined[-1] = change._replace(leader_from=last.leader_from)
        else:
            joined.append(change)
    return joined


def _controller_absence_text(entries: Sequence[Entry], interruption: Interruption) -> str:
    """Return a sentence that says how long there was no controller during the interruption."""
    if not interruption.was_controller:
        return "the controller was active all the time"
    terms = controller_terms(entries)
    before = [t for t in terms if t.node == interruption.node and t.elected_ms <= interruption.began_ms]
    after = [t for t in terms if t.ready_ms is not None and t.ready_ms >= interruption.began_ms]
    if not before or not after:
        return "the journal does not show how long there was no controller"
    absent_ms = controller_absence_ms(before[-1], after[0], interruption.began_ms)
    return f"no controller for {(absent_ms or 0) / 1000:.2f} s, then node {after[0].node}"


def _change_row(change: LeaderChange) -> tuple[str, str, str, str]:
    """One line of the table of leader changes."""
    rejected = "; ".join(f"not {broker}: {why}" for broker, why in change.rejected)
    why = f"{change.why} ({rejected})" if rejected else change.why
    return str(change.partition), _broker_text(change.leader_from), _broker_text(change.leader_to), why


def _broker_text(broker_id: int) -> str:
    """Return `node <id>`, or `none` for -1."""
    return "none" if broker_id < 0 else f"node {broker_id}"
