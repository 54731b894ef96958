"""What is wrong with a cluster: a snapshot in, findings out.

To add a check, write it in `cluster_checks.py`, `partition_checks.py` or `request_checks.py`, and add it to `CHECKS`.
Findings with the same kind, reason and remedy are merged into one that lists all subjects.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from klamm.audit import cluster_checks as cluster
from klamm.audit import partition_checks as partitions
from klamm.audit import request_checks as requests
from klamm.audit.finding import Finding, Severity, SubjectFinding
from klamm.audit.snapshot import Snapshot

CHECKS: Final[tuple[Callable[[Snapshot], Iterator[SubjectFinding]], ...]] = (
    cluster.controller,
    cluster.controller_epoch,
    cluster.registrations,
    cluster.features,
    cluster.missing_brokers,
    partitions.leaders,
    partitions.isrs,
    partitions.replication,
    partitions.preferred_leaders,
    partitions.assignments,
    partitions.open_transactions,
    requests.deletions,
    requests.reassignments,
    requests.stale_requests,
    requests.throttles,
    cluster.malformed,
    cluster.topic_ids,
    cluster.orphaned_configs,
)


def findings(snapshot: Snapshot) -> list[Finding]:
    """All findings, the most severe first."""
    grouped: dict[tuple[Severity, str, str, str], list[str]] = {}
    for check in CHECKS:
        for finding in check(snapshot):
            grouped.setdefault((finding.severity, finding.kind, finding.why, finding.remedy), []).append(
                finding.subject
            )
    found = [Finding(*key, tuple(subjects)) for key, subjects in grouped.items()]
    return sorted(found, key=lambda f: list(Severity).index(f.severity))


def is_healthy(found: Iterable[Finding]) -> bool:
    """Whether all findings are of the lowest severity."""
    return all(f.severity is Severity.NOTICE for f in found)
