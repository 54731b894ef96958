"""What waits for one broker, in order; requests coalesce to the newest state of each partition where order allows.

So a slow broker's queue is bounded by its partitions, not by how much happened meanwhile. Kafka keeps every request.
Where much waits, a piece of it is merged with each request that comes, and what comes meanwhile stands behind that.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from klamm.controller.batch_sizes import REQUEST_PARTITIONS
from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    Steps,
    StopReplicaItem,
    UpdateMetadataItem,
    joined_causes,
)
from klamm.controller.merged_metadata import merge_metadata
from klamm.controller.merged_stops import is_worth_merging, merge_control_requests

MAX_UNMERGED_REQUESTS: Final = 64
"""Requests waiting before large ones are merged, too."""
MERGE_STEP_PARTITIONS: Final = 5_000
"""Partitions looked at for that with each request: a millisecond."""
MAX_FREED_REQUESTS: Final = 2
"""Requests that became others, freed with each that comes or goes."""


class PendingRequests:
    def __init__(self) -> None:
        self._items: deque[ControlItem] = deque()
        self._compacted_to = 0
        """How many were left when large ones were last merged: looking again pays once there are twice as many."""
        self._compaction: _Compaction | None = None
        """Under way; what it is about is still in `_items`."""
        self._replaced_requests: list[ControlItem] = []
        """What the last one was about: freed at once, it would hold the loop."""

    def __len__(self) -> int:
        return len(self._items)

    def take(self) -> ControlItem:
        """Remove and return the oldest request."""
        item = self._items.popleft()
        self._compaction = None  # it would bring back what goes now
        del self._replaced_requests[-MAX_FREED_REQUESTS:]
        self._compacted_to = min(self._compacted_to, len(self._items))
        return item

    @property
    def stops(self) -> Iterator[StopReplicaItem]:
        return (item for item in self._items if isinstance(item, StopReplicaItem))

    def put(self, item: ControlItem) -> None:
        """LeaderAndIsr never overtakes a StopReplica of its partition, nor metadata that changes the broker list.

        The leaders it names must be brokers that the receiver knows; metadata may arrive earlier than it was queued,
        never later.
        """
        del self._replaced_requests[-MAX_FREED_REQUESTS:]
        if isinstance(item, LeaderAndIsrItem) and self._merge_leader_and_isr(item):
            return
        if isinstance(item, UpdateMetadataItem) and self._merge_metadata(item):
            return
        self._items.append(item)
        if self._compaction is None and len(self._items) > max(MAX_UNMERGED_REQUESTS, 2 * self._compacted_to):
            self._compaction = _Compaction(list(self._items))
        if self._compaction is not None and self._compaction.advance():
            self._items = deque((*self._compaction.left, *islice(self._items, len(self._compaction.items), None)))
            self._compacted_to = len(self._compaction.left)
            self._replaced_requests = self._compaction.items
            self._compaction = None

    def _mergeable_indexes(self) -> range:
        """Indexes, the newest first; what is being compacted stays as it is."""
        first = 0 if self._compaction is None else len(self._compaction.items)
        return range(len(self._items) - 1, first - 1, -1)

    def _merge_leader_and_isr(self, item: LeaderAndIsrItem) -> bool:
        for index in self._mergeable_indexes():
            waiting = self._items[index]
            if isinstance(waiting, StopReplicaItem):
                return False
            if isinstance(waiting, LeaderAndIsrItem):
                is_last = index == len(self._items) - 1
                known = waiting.broker_list_version == item.broker_list_version or is_last
                if not known or len(waiting.states) + len(item.states) > REQUEST_PARTITIONS:
                    return False
                self._items[index] = waiting.merge(item)
                return True
        return False

    def _merge_metadata(self, item: UpdateMetadataItem) -> bool:
        for index in self._mergeable_indexes():
            waiting = self._items[index]
            if isinstance(waiting, UpdateMetadataItem):
                if waiting.deletes or len(waiting.states) + len(item.states) > REQUEST_PARTITIONS:
                    return False
                self._items[index] = waiting.merge(item)
                return True
        return False


class _Compaction:
    def __init__(self, items: list[ControlItem]) -> None:
        self.items = items
        self.left: list[ControlItem] = []
        self._steps = _compaction_steps(items)

    def advance(self) -> bool:
        """Whether that was the last piece."""
        looked_at = 0
        for step in self._steps:
            if not isinstance(step, int):
                self.left.append(step)
                continue
            looked_at += step
            if looked_at >= MERGE_STEP_PARTITIONS:
                return False
        return True


def _compaction_steps(items: list[ControlItem]) -> Steps:
    """Large stops with nothing in common stay; what is between two of them becomes metadata and one LeaderAndIsr."""
    if (yield from is_worth_merging([i for i in items if isinstance(i, StopReplicaItem)], REQUEST_PARTITIONS)):
        yield from merge_control_requests(items, REQUEST_PARTITIONS)
        return
    metadata: list[UpdateMetadataItem] = []
    orders: list[LeaderAndIsrItem] = []
    for item in items:
        if isinstance(item, UpdateMetadataItem):
            metadata.append(item)
        elif isinstance(item, LeaderAndIsrItem):
            orders.append(item)
        else:
            yield from _merge_between_stops(metadata, orders)
            metadata, orders = [], []
            yield item
    yield from _merge_between_stops(metadata, orders)


def _merge_between_stops(metadata: list[UpdateMetadataItem], orders: list[LeaderAndIsrItem]) -> Steps:
    """Merged UpdateMetadata first, then the LeaderAndIsr requests merged into one."""
    yield from merge_metadata(metadata, REQUEST_PARTITIONS)
    if len(orders) < 2:
        yield from orders
        return
    merged = LeaderAndIsrItem({}, joined_causes(orders), 0)
    for order in orders:
        for piece in order.pieces(REQUEST_PARTITIONS):
            merged.merge_states_from(piece)
            yield len(piece.states)
    yield merged
