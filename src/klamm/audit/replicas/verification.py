"""Verifies the replicas of one partition: what differs, from which offset on, and what to do about it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.audit.replicas.batch_comparison import Difference, compare_batches
from klamm.audit.replicas.key_comparison import KeyDifference, KeyedLog, compare_keys, read_keys
from klamm.audit.replicas.replica_log import (
    Bounds,
    BrokenReplica,
    RangeMoved,
    ReplicaLog,
    ReplicaUnavailable,
)
from klamm.model.ids import TopicPartition

MAX_TRIES: Final = 5
"""Retention may move the log start while a partition is read."""
_REPLACE: Final = (
    "Move the leadership to an intact replica if {name} leads (klamm elect), stop the broker, move the directory of "
    "{partition} away, and start it: it copies the log from the leader."
)
_NO_MAJORITY: Final = (
    "No majority says which one is right: the leader's records are what consumers get. To keep them, stop the other "
    "broker, move its directory of {partition} away, and start it."
)


class Divergence(NamedTuple):
    """What is wrong with a partition: its first offset, the replicas that are wrong or in doubt, and the remedy."""

    partition: TopicPartition
    offset: int
    replicas: tuple[str, ...]
    problem: str
    remedy: str


class Verified(NamedTuple):
    """The result for one partition: up to where its replicas were compared, and which could not be."""

    partition: TopicPartition
    start: int
    end: int
    divergences: tuple[Divergence, ...]
    unavailable: tuple[str, ...]
    """Replicas that could not be read, each with the reason."""


def verify_partition(partition: TopicPartition, replicas: Sequence[ReplicaLog]) -> Verified:
    """Compare all replicas up to their common high watermark; what differs is compared again before it is reported."""
    found = _verify(partition, replicas)
    if not found.divergences:
        return found
    again = _verify(partition, replicas)
    confirmed = {d._replace(problem="", remedy="") for d in again.divergences}
    return found._replace(
        divergences=tuple(d for d in found.divergences if d._replace(problem="", remedy="") in confirmed)
    )


def _verify(partition: TopicPartition, replicas: Sequence[ReplicaLog]) -> Verified:
    """Compare the replicas that can be read; again where the log start moves meanwhile."""
    unavailable: dict[str, str] = {}
    for _ in range(MAX_TRIES):
        readable, bounds = _bounds_of(replicas, unavailable)
        if not readable:
            break
        start, end = max(b.start for b in bounds), min(b.high_watermark for b in bounds)
        try:
            divergences = _compare(partition, readable, bounds)
        except RangeMoved as moved:
            reason = str(moved)
            continue
        except ReplicaUnavailable as error:
            reason = str(error)
            continue
        return Verified(partition, start, max(start, end), tuple(divergences), _as_lines(unavailable))
    else:
        unavailable[str(partition)] = reason
    return Verified(partition, 0, 0, (), _as_lines(unavailable))


def _bounds_of(replicas: Sequence[ReplicaLog], unavailable: dict[str, str]) -> tuple[list[ReplicaLog], list[Bounds]]:
    """The replicas that can be read, with their bounds; why the others cannot is added to `unavailable`."""
    readable, bounds = [], []
    for replica in replicas:
        if replica.name in unavailable:
            continue
        try:
            bounds.append(replica.bounds())
        except (ReplicaUnavailable, RangeMoved) as error:
            unavailable[replica.name] = str(error)
        else:
            readable.append(replica)
    return readable, bounds


def _compare(partition: TopicPartition, replicas: Sequence[ReplicaLog], bounds: Sequence[Bounds]) -> list[Divergence]:
    """Compare batches, and keys where compaction explains that batches differ."""
    start, end = max(b.start for b in bounds), min(b.high_watermark for b in bounds)
    compared = compare_batches(replicas, start, end)
    found = [_of_broken(partition, replica, error) for replica, error in compared.broken]
    if compared.difference is None:
        return found
    if not any(replica.is_compacted() for replica in replicas):
        return [*found, _of_batches(partition, compared.difference)]
    broken = {replica.name for replica, _ in compared.broken}
    logs: list[KeyedLog] = []
    stable_end = min(b.last_stable for b in bounds)
    for replica, own in zip(replicas, bounds, strict=True):
        try:
            if replica.name not in broken:
                logs.append(read_keys(replica, start, own, stable_end))
        except BrokenReplica as error:
            found.append(_of_broken(partition, replica, error))
    keys = compare_keys(logs)
    return found if keys is None else [*found, _of_keys(partition, keys)]


def _of_broken(partition: TopicPartition, replica: ReplicaLog, error: BrokenReplica) -> Divergence:
    """The report of a replica that cannot be read from an offset on."""
    return Divergence(partition, error.offset, (replica.name,), str(error), _remedy([replica], partition))


def _of_batches(partition: TopicPartition, difference: Difference) -> Divergence:
    """The report of different batches."""
    (largest, _), *others = difference.groups
    has_majority = len(largest) > sum(len(members) for members, _ in others)
    wrong = [replica for members, _ in (others if has_majority else difference.groups) for replica in members]
    texts = "; ".join(f"{', '.join(r.name for r in members)}: {text}" for members, text in difference.groups)
    return Divergence(
        partition,
        difference.offset,
        tuple(r.name for r in wrong),
        f"the replicas have different batches: {texts}",
        _remedy(wrong if has_majority else [], partition),
    )


def _of_keys(partition: TopicPartition, difference: KeyDifference) -> Divergence:
    """The report of a key whose last record is not on all replicas."""
    key = difference.key.decode(errors="backslashreplace")
    return Divergence(
        partition,
        difference.offset,
        tuple(r.name for r in difference.lacking),
        f"the last record of key {key[:100]!r} is at offset {difference.offset}, these replicas lack it or differ",
        _remedy(difference.lacking, partition),
    )


def _remedy(wrong: Sequence[ReplicaLog], partition: TopicPartition) -> str:
    """What to do about these replicas; with none, it is not known which ones are wrong."""
    if not wrong:
        return _NO_MAJORITY.format(partition=partition)
    return _REPLACE.format(name=" or ".join(replica.name for replica in wrong), partition=partition)


def _as_lines(unavailable: dict[str, str]) -> tuple[str, ...]:
    """Each replica with its reason."""
    return tuple(f"{name}: {reason}" for name, reason in unavailable.items())
