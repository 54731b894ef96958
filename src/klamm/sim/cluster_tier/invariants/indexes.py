"""Index files: each entry agrees with the batches of its segment. A wrong entry makes reads slow, or skips records."""

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from klamm.log.names import INDEX, LOG, TIME_INDEX, DirectoryKind, offset_of
from klamm.sim.cluster_tier.invariants.rest import RestingCluster
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs, StoredBatch

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


def indexes_agree_with_batches(cluster: RestingCluster) -> str | None:
    """Entries of index files rise, and each is that of a batch: its last offset and position, or its largest time."""
    for broker, disk in cluster.tier.disks.items():
        for path, found in disk.directories(DirectoryKind.LIVE):
            if found.partition in cluster.tier.destroyed:
                continue
            if wrong := _wrong_index(disk, path):
                return f"broker {broker}: {wrong}"
    return None


def _wrong_index(disk: DiskLogs, path: str) -> str | None:
    """What is wrong in an index file of a log; None where all agree with the batches."""
    names = disk.disk.children(path)
    newest = max((name for name in names if name.endswith(LOG)), default="")
    for name, batches in disk.read(path).segment_batches():
        base = offset_of(name)
        assert base is not None
        offsets = _content(disk, f"{path}/{name.removesuffix(LOG)}{INDEX}")
        times = _content(disk, f"{path}/{name.removesuffix(LOG)}{TIME_INDEX}")
        wrong = _wrong_offset(offsets, base, batches) or _wrong_time(times, base, batches, is_closed=name != newest)
        if wrong:
            return f"{path}/{name}: {wrong}"
    return None


def _content(disk: DiskLogs, path: str) -> bytes:
    """The bytes of an index file; none where it is not written yet."""
    inode = disk.disk.inode(path)
    return bytes(inode.content) if inode is not None else b""


def _wrong_offset(content: bytes, base: int, batches: Sequence[StoredBatch]) -> str | None:
    """What is wrong in the offset index of a segment; None where it agrees with the batches."""
    ends = accumulate((batch.header.size for batch in batches), initial=0)
    lasts = dict(zip(ends, (batch.header.last_offset for batch in batches), strict=False))
    before = -1
    for relative, position in _OFFSET_ENTRY.iter_unpack(content):
        if lasts.get(position) != base + relative or relative <= before:
            return f"its index has offset {base + relative} at byte {position}, where {lasts.get(position)} is"
        before = relative
    return None


def _wrong_time(content: bytes, base: int, batches: Sequence[StoredBatch], *, is_closed: bool) -> str | None:
    """What is wrong in the time index of a segment; None where it agrees with the batches.

    That of a closed segment has its largest timestamp.
    """
    largest = {b.header.last_offset: b.header.max_timestamp for b in batches}
    before, last = (-1, -1), -1
    for at_ms, relative in _TIME_ENTRY.iter_unpack(content):
        last = max((t for offset, t in largest.items() if offset <= base + relative), default=-1)
        if largest.get(base + relative) != at_ms or last != at_ms or (at_ms, relative) <= before:
            return f"its time index has {at_ms} for offset {base + relative}; the largest time up to there is {last}"
        before = at_ms, relative
    most = max(largest.values(), default=-1)
    if is_closed and most >= 0 and last != most:
        return f"its time index ends with {last}, its largest time is {most}"
    return None
