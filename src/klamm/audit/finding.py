"""What a check reports: a finding with severity, reason and remedy."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from klamm.audit.snapshot import Snapshot
from klamm.model.ids import BrokerId

STALE_REQUEST_MS: Final = 60_000
"""A request or notification that is in ZooKeeper for longer than this is not being handled."""


class Severity(StrEnum):
    CRITICAL = "critical"  # data is unavailable or may be lost, or there is no controller
    WARNING = "warning"  # something is stuck, or the next failure makes it critical
    NOTICE = "notice"  # worth knowing; the cluster is healthy


class Finding(NamedTuple):
    severity: Severity
    kind: str
    why: str
    remedy: str
    subjects: tuple[str, ...]
    """Partitions, topics, brokers or znode paths."""


class SubjectFinding(NamedTuple):
    """A finding about one subject."""

    severity: Severity
    kind: str
    subject: str
    why: str
    remedy: str


def critical(kind: str, subject: str, why: str, remedy: str) -> SubjectFinding:
    """A finding of the highest severity: data is unavailable or in danger, or there is no controller."""
    return SubjectFinding(Severity.CRITICAL, kind, subject, why, remedy)


def warning(kind: str, subject: str, why: str, remedy: str) -> SubjectFinding:
    """A finding of medium severity: something is stuck, or the next failure makes it critical."""
    return SubjectFinding(Severity.WARNING, kind, subject, why, remedy)


def notice(kind: str, subject: str, why: str, remedy: str) -> SubjectFinding:
    """A finding of the lowest severity: worth knowing, although the cluster is healthy."""
    return SubjectFinding(Severity.NOTICE, kind, subject, why, remedy)


def age(s: Snapshot, since_ms: int) -> str | None:
    """How long a request has been waiting, for example `2 h`; None when that is too short for a finding."""
    seconds = (s.taken_ms - since_ms) // 1000
    if seconds * 1000 < STALE_REQUEST_MS:
        return None
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def listed(brokers: Iterable[BrokerId]) -> str:
    """The broker ids as one text, separated by commas."""
    return ", ".join(map(str, brokers))
