"""`klamm audit --zookeeper HOST:PORT/chroot`: read the tree, say what is wrong. Exit status 1 when unhealthy."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from klamm.audit.findings import Finding, findings, is_healthy
from klamm.audit.snapshot import Snapshot, take_snapshot
from klamm.cli.output import is_terminal, say, show

_SHOWN: Final = 5
_SHOWN_OF_A_KIND: Final = 10


def audit(zookeeper: str, as_json: bool, timeout_s: float, auth: Sequence[str]) -> int:
    """The exit status: 0 healthy, 1 not. Raises CannotAudit."""
    snapshot = take_snapshot(zookeeper, timeout_s, auth)
    found = findings(snapshot)
    if as_json:
        say(msgspec.json.encode(as_data(snapshot, found)).decode())
    else:
        _print(snapshot, found)
    return 0 if is_healthy(found) else 1


def as_data(snapshot: Snapshot, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "healthy": is_healthy(found),
        "taken_ms": snapshot.taken_ms,
        "controller": snapshot.controller,
        "controller_epoch": snapshot.controller_epoch,
        "brokers": sorted(snapshot.broker_held),
        "topics": len(snapshot.topic_ids),
        "partitions": len(snapshot.assignments),
        "findings": [f._asdict() for f in found],
    }


def _print(snapshot: Snapshot, found: Sequence[Finding]) -> None:
    controller = "nobody" if snapshot.controller is None else f"broker {snapshot.controller}"
    say(
        f"{len(snapshot.broker_held)} brokers, {len(snapshot.topic_ids):,} topics, "
        f"{len(snapshot.assignments):,} partitions; controller: {controller}, epoch {snapshot.controller_epoch}"
    )
    shown = _first_of_each_kind(found)
    rows = [(n, f.severity, f.kind, _some(f.subjects), f.why, f.remedy) for n, f in enumerate(shown, start=1)]
    columns = ("", "severity", "what", "where", "why", "what mends it")
    if rows and is_terminal():  # a command that is broken over the lines of a narrow column cannot be copied
        show(columns[:-1], [row[:-1] for row in rows])
        say("what mends it:")
        for number, *_, remedy in rows:
            say(f"{number:>3}  {remedy}")
    elif rows:
        show(columns[1:], [row[1:] for row in rows])
    if len(shown) < len(found):
        say(f"and {len(found) - len(shown):,} more of these kinds: --json tells all")
    unhealthy = sum(1 for f in found if f.severity != "notice")
    say("healthy" if is_healthy(found) else f"unhealthy: {unhealthy} finding{'s' if unhealthy > 1 else ''}")


def _first_of_each_kind(found: Sequence[Finding]) -> list[Finding]:
    """Reasons and remedies may be of one partition each, and there may be thousands."""
    seen = Counter[str]()
    shown: list[Finding] = []
    for finding in found:
        seen[finding.kind] += 1
        if seen[finding.kind] <= _SHOWN_OF_A_KIND:
            shown.append(finding)
    return shown


def _some(subjects: Sequence[str]) -> str:
    more = len(subjects) - _SHOWN
    return ", ".join(subjects[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
