"""Compares replicas of a compacted log: each key must have its last committed record on all of them.

Each replica is compacted on its own, so their batches differ. A record may be missing where compaction may remove it: a
later record of its key follows, even after what is compared, or it is a tombstone.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np

from klamm.audit.replicas.batch_comparison import damaged_batch
from klamm.audit.replicas.replica_log import Bounds, BrokenReplica, Piece, ReplicaLog
from klamm.client.committed_batches import committed_batches, data_batches
from klamm.wire.vectors.groups import decode_group, group_batches


class LastRecord(NamedTuple):
    offset: int
    checksum: int | None
    """Of the value; None for a tombstone."""


class KeyedLog(NamedTuple):
    """The last record of each key before the end of the comparison, and the keys that have a later one."""

    replica: ReplicaLog
    last: dict[bytes, LastRecord]
    superseded: set[bytes]


class KeyDifference(NamedTuple):
    """The record at this offset is the last one of its key on some replicas; others lack it, or values differ."""

    offset: int
    key: bytes
    lacking: tuple[ReplicaLog, ...]


def compare_keys(logs: Sequence[KeyedLog]) -> KeyDifference | None:
    """The difference with the least offset; None where the last records agree."""
    keys: set[bytes] = set().union(*(log.last for log in logs))
    return min((d for key in keys if (d := _difference_of(key, logs))), key=lambda d: (d.offset, d.key), default=None)


def read_keys(replica: ReplicaLog, start: int, own: Bounds, common_end: int) -> KeyedLog:
    """Read a replica up to its own end. Raises BrokenReplica, ReplicaUnavailable, RangeMoved.

    That is behind its last stable offset in log directories: compaction knows a newer high watermark than the
    checkpoint. What cannot be read there is left out.
    """
    log = KeyedLog(replica, {}, set())
    try:
        for piece in replica.read(start, own.readable_end, committed=True):
            for key, record in _records(piece):
                if record.offset >= common_end:
                    log.superseded.add(key)
                elif record.offset >= start:
                    log.last[key] = record
    except BrokenReplica as error:
        if error.offset < own.last_stable:
            raise
    return log


def _difference_of(key: bytes, logs: Sequence[KeyedLog]) -> KeyDifference | None:
    """The replicas that lack the last record of a key; None where all may be as they are."""
    newest = max((log.last[key] for log in logs if key in log.last), key=lambda record: record.offset)
    holding = [log for log in logs if key in log.last and log.last[key].offset == newest.offset]
    if any(log.last[key] != newest for log in holding):  # nobody knows which value is right
        return KeyDifference(newest.offset, key, tuple(log.replica for log in holding))
    lacking = tuple(
        log.replica
        for log in logs
        if (mine := log.last.get(key)) != newest
        and key not in log.superseded
        and not (mine is None and newest.checksum is None)
    )
    return KeyDifference(newest.offset, key, lacking) if lacking else None


def _records(piece: Piece) -> Iterator[tuple[bytes, LastRecord]]:
    """The committed records that have a key. Raises BrokenReplica."""
    run, aborted = piece
    if (damage := damaged_batch(run)) is not None:
        raise BrokenReplica(int(run.headers["base_offset"][damage[0]]), damage[1])
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
