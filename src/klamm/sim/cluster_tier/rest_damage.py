"""A bit flips in a closed segment of a topic at rest: nobody gets the record, and another replica repairs it."""

import asyncio
from itertools import pairwise
from typing import Final

from klamm.log.names import LOG, offset_of
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.plain_requests import fetch_once
from klamm.sim.cluster_tier.rest_topic import RestTopic, address, partition
from klamm.sim.power_loss import Inode

_FOUND: Final = "klamm_log_damaged_ranges_found_total"
_REPAIRED: Final = "klamm_log_damaged_ranges_repaired_total"
_LEFT: Final = "klamm_log_damaged_ranges"
_REPAIR_S: Final = 3.0
_COUNTED_S: Final = 0.5
"""The repair is counted once the name of the new file is on the device."""
_FROM_THE_END: Final = 5
"""Bytes before the end of a segment: inside of the last record of its last batch."""


async def damage_records(rest: RestTopic) -> None:
    """A leader, or a follower, serves no damaged record, and has the same bytes as before soon."""
    p = partition(2)
    node = rest.replicas[rest.cluster.options.seed // 2 % 2]
    closed = _closed_segments(rest, node, p)
    rest.expect(f"whether node {node} has closed segments of {p}", bool(closed), True)
    if closed:
        await _damage(rest, node, p, *closed[-1])


def _closed_segments(rest: RestTopic, node: int, p: TopicPartition) -> list[tuple[str, int]]:
    """The log's segments with records that are not deleted, but for the active one: path, and last batch's offset."""
    disk, log = rest.cluster.tier.disks[node], rest.cluster.tier.disks[node].of(p)
    if log is None:
        return []
    names = [name for name in disk.disk.children(log.directory) if name.endswith(LOG)]
    start = rest.end(p) - len(rest.sent[p])
    by_offset = sorted((offset, name) for name in names if (offset := offset_of(name)) is not None)
    closed = [
        (name, max(b.base_offset for b in log.identities() if offset <= b.base_offset < following))
        for (offset, name), (following, _) in pairwise(by_offset)
        if offset >= start
    ]
    return [(f"{log.directory}/{name}", offset) for name, offset in closed]


async def _damage(rest: RestTopic, node: int, p: TopicPartition, path: str, offset: int) -> None:
    """Flip a bit of the last batch of a segment, ask for its records, and wait for the repair."""
    inode = _inode(rest, node, path)
    assert inode is not None
    metrics = await rest.metrics(node)
    before = bytes(inode.content)
    inode.flip_bit(8 * (len(before) - _FROM_THE_END))
    async with rest.client("reads what is damaged") as client:
        found = await fetch_once(client, address(node), p, offset, 0)
        rest.expect(f"a fetch of a damaged record from node {node}", found.error, ErrorCode.CORRUPT_MESSAGE)
        await rest.until(lambda: _content(rest, node, path) == before, f"node {node} has repaired {path}", _REPAIR_S)
        found = await fetch_once(client, address(node), p, offset, 0)
        start = rest.end(p) - len(rest.sent[p])
        rest.expect(f"the repaired record of node {node}", found.values[:1], [rest.sent[p][offset - start]])
    if metrics:
        await asyncio.sleep(_COUNTED_S)
    await rest.expect_growth(node, metrics, {_FOUND: 1, _REPAIRED: 1, _LEFT: 0})


def _inode(rest: RestTopic, node: int, path: str) -> Inode | None:
    """The file of a node."""
    return rest.cluster.tier.disks[node].disk.inode(path)


def _content(rest: RestTopic, node: int, path: str) -> bytes:
    """What is in the file of a node now; empty where it is not there."""
    inode = _inode(rest, node, path)
    return bytes(inode.content) if inode is not None else b""
