"""What all answers share: pending work, findings with remedies, steps, unanswered requests."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from klamm.audit.finding import Finding, Severity
from klamm.audit.findings import findings
from klamm.audit.snapshot import Snapshot
from klamm.explain.sources import ExplainInputs
from klamm.explain.timeline import utc_time
from klamm.explain.unanswered import unanswered
from klamm.telemetry.journal_reader import (
    Entry,
)
from klamm.zk import znodes

NOTHING_PENDING: Final = "next: nothing is pending, and nothing is wrong"
MAX_LINES: Final = 12
MAX_PARTITIONS: Final = 20
"""A topic with more partitions is summarized."""
_OMITTED_FACTS: Final = ("partition", "partitions", "topic", "topics")


class Answer(NamedTuple):
    lines: list[str]
    is_known: bool
    """Whether the journal or ZooKeeper knows the subject."""


def pending_and_wrong(now: Snapshot | None, subjects: set[str], rejected: Sequence[str] = ()) -> list[str]:
    """Pending deletions, findings and remedies for these subjects; a missing controller concerns all."""
    if now is None:
        return [*rejected]
    lines = [_deletion_line(now, topic) for topic in now.deletions if topic in subjects]
    about = [f for f in findings(now) if not subjects.isdisjoint(f.subjects) or _concerns_all(f)]
    lines += [line for f in about[:MAX_LINES] for line in _finding_lines(f, subjects)]
    if len(about) > MAX_LINES:
        lines.append(f"and {len(about) - MAX_LINES:,} more: klamm audit --zookeeper {now.connect}")
    return [*lines, *rejected] or [NOTHING_PENDING]


def _concerns_all(finding: Finding) -> bool:
    """Whether the finding is critical and about the controller, so that it matters for every partition."""
    return finding.severity is Severity.CRITICAL and znodes.CONTROLLER in finding.subjects


def _deletion_line(now: Snapshot, topic: str) -> str:
    """Return a line that says what a pending deletion of a topic waits for."""
    holders = {b for p, a in now.assignments.items() if p.topic == topic for b in a.replicas}
    dead = sorted(holders - now.live)
    gone = f", when broker {listed(dead)} is back (klamm's controller waits 60 s at most)" if dead else ""
    return f"next: {topic} is deleted (requested at {utc_time(now.deletions[topic])}){gone}"


def zookeeper_problem(inputs: ExplainInputs) -> list[str]:
    """Return a warning if ZooKeeper did not answer, or was not named so that the journal may be stale.

    Else an empty list.
    """
    if inputs.zookeeper_problem is None:
        if inputs.now is not None or not inputs.may_be_stale or not inputs.entries:
            return []
        last = max(e.ts_ms for e in inputs.entries)
        return [
            f"this is the state of {utc_time(last)}, the last entry of the {inputs.where}: "
            "add --zookeeper HOST:PORT/chroot for the current state"
        ]
    return [
        f"critical: {inputs.zookeeper_problem}",
        "    this is the last state in the journal; without ZooKeeper leaders continue, but none is elected",
        "    remedy: start ZooKeeper, or find out why this machine cannot reach it",
    ]


def _finding_lines(finding: Finding, subjects: set[str]) -> list[str]:
    """Return two lines about the finding: what is wrong, and the remedy."""
    named = [s for s in finding.subjects if s in subjects]
    which = f"{', '.join(named[:3])}{' ...' if len(named) > 3 else ''}: " if len(subjects) > 1 else ""
    return [f"{finding.severity}: {which}{finding.kind}, {finding.why}", f"    remedy: {finding.remedy}"]


def step_lines(entries: Iterable[Entry]) -> list[str]:
    """One line for each journal entry; repeated ones share a line with the time of the last."""
    lines: list[str] = []
    for text, same in groupby(entries, key=step_text):
        times = [e.ts_ms for e in same]
        often = f" ({len(times):,} times since {utc_time(times[0])})" if len(times) > 1 else ""
        lines.append(f"{utc_time(times[-1])}  {text}{often}")
    return lines


def step_text(entry: Entry) -> str:
    """A journal entry as text: its kind, what it did, and the other facts."""
    kept = {k: v for k, v in entry.facts.items() if k not in _OMITTED_FACTS and v not in (None, [])}
    what = kept.pop("step", kept.pop("what", ""))
    rest = "".join(f", {k.replace('_', ' ')} {v}" for k, v in kept.items())
    return f"{entry.kind} {what}{rest}".strip()


def unanswered_requests(inputs: ExplainInputs, number: int | None = None) -> list[str]:
    """A line for each unanswered control request to one broker, or to all."""
    return [
        f"{u.api} to broker {u.broker} unanswered for {u.age_ms / 1000:.1f} s: {u.partitions} partitions"
        + (f", merged from {u.merged} events" if u.merged > 1 else "")
        + (f"; the last attempt failed: {u.failed}" if u.failed else "")
        for u in unanswered(inputs.entries, inputs.now.taken_ms if inputs.now else None)
        if number in (None, u.broker)
    ]


def listed(brokers: Iterable[int]) -> str:
    """Broker ids, separated by commas."""
    return ", ".join(map(str, brokers))
