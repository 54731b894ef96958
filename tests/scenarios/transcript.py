"""The run of a scenario as text: events, controllers, leader changes, control requests to each broker.

The last part is the output of `klamm explain`. Times are cut to tenths of a second: a request more or less
in an event is not worth a difference.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.scenarios.scenarios import FIRST_FAULT_S, Scenario

from klamm.explain.timeline import last_state, timeline_lines
from klamm.model.ids import parse_topic_partition
from klamm.sim.cluster import run_script
from klamm.sim.world import START_MS
from klamm.telemetry.journal_reader import (
    Entry,
    LeaderChange,
    controller_terms,
    leader_changes,
    lines_about_partition,
    parse_lines,
)


def transcript(name: str, scenario: Scenario) -> str:
    """Raises AssertionError if an invariant is violated."""
    outcome = run_script(scenario.script, with_story=True)
    assert outcome.violation is None, outcome.violation
    entries = list(parse_lines(outcome.journal))
    recent = [e for e in entries if e.ts_ms >= START_MS + FIRST_FAULT_S * 1000]
    parts = [
        [name.upper(), "", scenario.about],
        ["EVENTS (virtual seconds)", "", *map(_in_tenths, outcome.action_log)],
        ["CONTROLLERS", "", *_terms(entries)],
        ["LEADER CHANGES", "", *(list(map(_leader_change, leader_changes(recent))) or ["none"])],
        ["CONTROL REQUESTS SENT AFTER THE FIRST FAULT", "", *_requests(recent)],
        *([f"$ klamm explain {p}", "", *_explained(entries, p)] for p in scenario.explained),
    ]
    return "\n\n\n".join("\n".join(part) for part in parts) + "\n"


def _in_tenths(line: str) -> str:
    """Cut the time at the beginning to tenths of a second."""
    return re.sub(r"^(\s*[-\d: ]*\d\.\d)\d\d  ", r"\1  ", line)


def _seconds(ts_ms: int | None) -> str:
    return "      -" if ts_ms is None else f"{(ts_ms - START_MS) // 100 / 10:7.1f}"


def _terms(entries: Iterable[Entry]) -> list[str]:
    lines = ["epoch  node  elected    ready  resigned"]
    for term in controller_terms(entries):
        elected, ready, resigned = map(_seconds, (term.elected_ms, term.ready_ms, term.resigned_ms))
        lines.append(f"{term.controller_epoch:5}  {term.node:4}  {elected}  {ready}  {resigned:>8}")
    return lines


def _leader_change(change: LeaderChange) -> str:
    before, after = (str(n) if n >= 0 else "nobody" for n in (change.leader_from, change.leader_to))
    passed_over = "".join(f"; not {broker}: {why}" for broker, why in change.rejected)
    return f"{_seconds(change.ts_ms)}  {change.partition}  {before} > {after}  ({change.why}{passed_over})"


def _requests(entries: Sequence[Entry]) -> list[str]:
    """The number of requests of each kind to each broker."""
    sent = Counter((e.facts["broker"], e.facts["api"]) for e in entries if e.kind == "request")
    apis = sorted({api for _, api in sent})
    rows = [["node", *apis], *([str(b), *(str(sent[b, a]) for a in apis)] for b in sorted({b for b, _ in sent}))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _explained(entries: Iterable[Entry], partition: str) -> list[str]:
    story = lines_about_partition(entries, parse_topic_partition(partition))
    return [*map(_in_tenths, timeline_lines(story)), f"{partition} now: {last_state(story)}"]
