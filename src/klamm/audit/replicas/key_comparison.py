"""Compares replicas of a compacted log: each key must have its last committed record on all of them.

Each replica is compacted on its own, so their batches differ. A record may be missing where compaction may remove it: a
later record of its key follows, even behind what is compared, or it is a tombstone.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np

from klamm.audit.replicas.batch_comparison import damaged_batch
from klamm.audit.replicas.replica_log import Piece, ReplicaLog
from klamm.client.committed_batches import committed_batches, data_batches
from klamm.wire.vectors.batches import CorruptBatch
from klamm.wire.vectors.groups import decode_group, group_batches


class LastRecord(NamedTuple):
    offset: int
    checksum: int | None
    """Of the value; None for a tombstone."""


class KeyedLog(NamedTuple):
    """The last record of each key before the end of the comparison, and the keys that have a later one."""

    last: dict[bytes, LastRecord]
    superseded: set[bytes]


class KeyDifference(NamedTuple):
    """The record at this offset is the last one of its key on some replicas, and these lack it or have another."""

    offset: int
    key: bytes
    lacking: tuple[ReplicaLog, ...]


def compare_keys(replicas: Sequence[ReplicaLog], start: int, ends: Sequence[int]) -> KeyDifference | None:
    """Compare the last records before the least of `ends`, which has the last stable offset of each replica.

    None where they agree. Raises BrokenReplica, ReplicaUnavailable, RangeMoved.
    """
    common_end = min(ends)
    logs = [read_keys(replica, start, own_end, common_end) for replica, own_end in zip(replicas, ends, strict=True)]
    differences = (d for key in set().union(*(log.last for log in logs)) if (d := _difference_of(key, logs)))
    first = min(differences, default=None)
    if first is None:
        return None
    offset, key, lacking = first
    return KeyDifference(offset, key, tuple(replicas[i] for i in lacking))


def read_keys(replica: ReplicaLog, start: int, own_end: int, common_end: int) -> KeyedLog:
    """Read a replica up to its own end. Raises BrokenReplica, ReplicaUnavailable, RangeMoved."""
    log = KeyedLog({}, set())
    for piece in replica.read(start, own_end, committed=True):
        for key, record in _records(piece):
            if record.offset >= common_end:
                log.superseded.add(key)
            elif record.offset >= start:
                log.last[key] = record
    return log


def _difference_of(key: bytes, logs: Sequence[KeyedLog]) -> tuple[int, bytes, tuple[int, ...]] | None:
    """Offset, key and the numbers of the logs that lack the last record of a key; None where all may be as they are."""
    newest = max((log.last[key] for log in logs if key in log.last), key=lambda record: record.offset)
    lacking = tuple(
        i
        for i, log in enumerate(logs)
        if (mine := log.last.get(key)) != newest
        and key not in log.superseded
        and not (mine is None and newest.checksum is None)
    )
    return (newest.offset, key, lacking) if lacking else None


def _records(piece: Piece) -> Iterator[tuple[bytes, LastRecord]]:
    """The committed records that have a key. Raises CorruptBatch."""
    run, aborted = piece
    if (damage := damaged_batch(run)) is not None:
        raise CorruptBatch(damage[1])
    kept = data_batches(run) if aborted is None else committed_batches(run, aborted)
    chosen = [int(i) for i in np.flatnonzero(kept & (run.headers["record_count"] > 0))]
    for group in group_batches(run, chosen):
        found = decode_group(group)
        raw, (keys, values) = group.buffer, found.fields[2:4]
        columns = (keys.starts, keys.ends, keys.null, values.starts, values.ends, values.null, found.offsets)
        for k0, k1, no_key, v0, v1, no_value, offset in zip(*(c.tolist() for c in columns), strict=True):
            if not no_key:
                checksum = None if no_value else google_crc32c.value(bytes(raw[v0:v1]))
                yield bytes(raw[k0:k1]), LastRecord(offset, checksum)
