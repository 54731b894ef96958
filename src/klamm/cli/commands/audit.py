"""`klamm audit`: print the findings about a cluster. Exit status 1 if it is unhealthy."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from klamm.audit.finding import Finding, Severity
from klamm.audit.findings import findings, is_healthy
from klamm.audit.snapshot import Snapshot, take_snapshot
from klamm.audit.transactions import check_transactions
from klamm.cli.options import Auth
from klamm.cli.output import is_terminal, print_json, print_line, print_table

_MAX_SUBJECTS: Final = 5
_MAX_OF_A_KIND: Final = 10


def audit(
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", help="ZooKeeper of the cluster: HOST:PORT[,HOST:PORT][/chroot]")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="print all findings as one JSON object")] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds to wait for ZooKeeper")] = 15,
    auth: Auth = None,
) -> None:
    """Report what is wrong with a cluster and how to repair it.

    Reads ZooKeeper and asks leaders for open transactions; changes nothing. Works with any ZooKeeper-mode cluster.
    Exit status 1: unhealthy.
    """
    raise typer.Exit(run_audit(zookeeper, as_json, timeout, auth or []))


def run_audit(zookeeper: str, as_json: bool, timeout_s: float, auth: Sequence[str]) -> int:
    """Audit the cluster, and print the findings. Returns the exit status. Raises CannotAudit."""
    snapshot = take_snapshot(zookeeper, timeout_s, auth)
    check = check_transactions(snapshot, timeout_s)
    snapshot.open_transactions = check.open
    found = findings(snapshot)
    if as_json:
        print_json({**as_data(snapshot, found), "transactions_not_checked": check.not_checked})
    else:
        _print_findings(snapshot, found)
        for broker, reason in sorted(check.not_checked.items()):
            print_line(f"Open transactions on partitions that broker {broker} leads were not checked: {reason}")
    return 0 if is_healthy(found) else 1


def as_data(snapshot: Snapshot, found: Sequence[Finding]) -> dict[str, Any]:
    """The result of the audit for `--json`."""
    return {
        "healthy": is_healthy(found),
        "taken_ms": snapshot.taken_ms,
        "controller": snapshot.controller,
        "controller_epoch": snapshot.controller_epoch,
        "brokers": sorted(snapshot.broker_ownership),
        "topics": len(snapshot.topic_ids),
        "partitions": len(snapshot.assignments),
        "findings": [f._asdict() for f in found],
    }


def _print_findings(snapshot: Snapshot, found: Sequence[Finding]) -> None:
    """Print the size of the cluster and a table of the findings."""
    controller = "none" if snapshot.controller is None else f"broker {snapshot.controller}"
    print_line(
        f"{len(snapshot.broker_ownership)} brokers, {len(snapshot.topic_ids):,} topics, "
        f"{len(snapshot.assignments):,} partitions; controller: {controller}, epoch {snapshot.controller_epoch}"
    )
    shown = _first_of_each_kind(found)
    rows = [(n, f.severity, f.kind, _first_subjects(f.subjects), f.why, f.remedy) for n, f in enumerate(shown, start=1)]
    columns = ("", "severity", "problem", "where", "reason", "remedy")
    if rows and is_terminal():  # remedies are printed below the table: a wrapped command cannot be copied
        print_table(columns[:-1], [row[:-1] for row in rows])
        print_line("Remedies:")
        for number, *_, remedy in rows:
            print_line(f"{number:>3}  {remedy}")
    elif rows:
        print_table(columns[1:], [row[1:] for row in rows])
    if len(shown) < len(found):
        print_line(f"And {len(found) - len(shown):,} more of these kinds: --json prints all.")
    unhealthy = sum(1 for f in found if f.severity is not Severity.NOTICE)
    print_line("healthy" if is_healthy(found) else f"unhealthy: {unhealthy} finding{'s' if unhealthy > 1 else ''}")


def _first_of_each_kind(found: Sequence[Finding]) -> list[Finding]:
    """At most ten findings of each kind: there may be thousands with a reason or remedy of their own."""
    seen = Counter[str]()
    shown: list[Finding] = []
    for finding in found:
        seen[finding.kind] += 1
        if seen[finding.kind] <= _MAX_OF_A_KIND:
            shown.append(finding)
    return shown


def _first_subjects(subjects: Sequence[str]) -> str:
    """The first subjects, and how many more there are."""
    more = len(subjects) - _MAX_SUBJECTS
    return ", ".join(subjects[:_MAX_SUBJECTS]) + (f" and {more:,} more" if more > 0 else "")
