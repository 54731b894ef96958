"""The charts at the end of the demo: flights and delays of each carrier, and who led which partition."""

from collections import defaultdict
from collections.abc import Sequence

from klamm.charts.model import Bars, Span, Timeline
from klamm.cli.demo.count import Carrier
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_reader import Entry, LeaderChange, current_leader_changes, leader_changes

NO_LEADER = "no leader"


def carrier_charts(carriers: Sequence[Carrier]) -> list[Bars]:
    """The departures of each carrier, most first, and in the same order their mean delay."""
    by_flights = sorted(carriers, key=lambda c: (-c.flights, c.carrier))
    names = [c.carrier for c in by_flights]
    # bars begin at 0: a carrier that departs early on average has none
    delays = [max(0.0, c.mean_departure_delay_minutes or 0.0) for c in by_flights]
    return [
        Bars("Departures from New York per carrier", names, {"flights": [c.flights for c in by_flights]}),
        Bars("Mean departure delay per carrier", names, {"delay": delays}, "min"),
    ]


def leader_chart(entries: Sequence[Entry], topic: str, begin_ms: int, end_ms: int) -> Timeline:
    """Which node led each partition of the topic from `begin_ms` to `end_ms`, as the journals say."""
    # a partition whose leader never changed has its first election alone
    of_partition = {p: [change] for p, change in current_leader_changes(entries).items() if p.topic == topic}
    changes: dict[TopicPartition, list[LeaderChange]] = defaultdict(list)
    for change in sorted(leader_changes(entries), key=lambda c: c.ts_ms):
        if change.partition.topic == topic:
            changes[change.partition].append(change)
    of_partition |= changes
    rows = {str(p): _spans(of_partition[p], begin_ms, end_ms) for p in sorted(of_partition)}
    notes = {name: _times(sum(begin_ms < span.begin_ms for span in spans)) for name, spans in rows.items()}
    return Timeline(f"Leaders of {topic}", begin_ms, end_ms, rows, notes, NO_LEADER)


def _spans(changes: Sequence[LeaderChange], begin_ms: int, end_ms: int) -> list[Span]:
    """The leaders of one partition: before the first change, and then each up to the next one or to `end_ms`."""
    first = changes[0]
    before = [Span(begin_ms, first.ts_ms, _state(first.leader_from))] if begin_ms < first.ts_ms else []
    ends = [*(change.ts_ms for change in changes[1:]), end_ms]
    return [*before, *(Span(c.ts_ms, end, _state(c.leader_to)) for c, end in zip(changes, ends, strict=True))]


def _state(leader: int) -> str:
    """Return who leads, as text."""
    return NO_LEADER if leader < 0 else f"node {leader}"


def _times(changes: int) -> str:
    """Return how many changes there were, as text; empty for none."""
    return f"{changes} {'change' if changes == 1 else 'changes'}" if changes else ""
