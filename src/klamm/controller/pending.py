"""What waits for one broker, in order; requests coalesce to the newest state of each partition where order allows.

So a slow broker's queue is bounded by its partitions, not by how much happened meanwhile. Kafka keeps every request.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    StopReplicaItem,
    UpdateMetadataItem,
)
from klamm.controller.merged_metadata import merge_metadata
from klamm.controller.merged_stops import have_much_in_common, merge_orders

MERGED_PARTITIONS: Final = 2_500
"""Small requests grow into one up to this size: encoding it holds the loop a few ms."""
COMPACT_AT: Final = 64
"""Requests waiting before large ones are merged, too."""


class PendingRequests:
    def __init__(self) -> None:
        self._items: deque[ControlItem] = deque()
        self._compacted_to = 0
        """How many were left when large ones were last merged: looking again pays once there are twice as many."""

    def __len__(self) -> int:
        return len(self._items)

    def take(self) -> ControlItem:
        item = self._items.popleft()
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
        if isinstance(item, LeaderAndIsrItem) and self._merge_leader_and_isr(item):
            return
        if isinstance(item, UpdateMetadataItem) and self._merge_metadata(item):
            return
        self._items.append(item)
        if len(self._items) > max(COMPACT_AT, 2 * self._compacted_to):
            self._items = deque(_compacted(self._items))
            self._compacted_to = len(self._items)

    def _merge_leader_and_isr(self, item: LeaderAndIsrItem) -> bool:
        for index in range(len(self._items) - 1, -1, -1):
            waiting = self._items[index]
            if isinstance(waiting, StopReplicaItem):
                return False
            if isinstance(waiting, LeaderAndIsrItem):
                is_last = index == len(self._items) - 1
                known = waiting.broker_list_version == item.broker_list_version or is_last
                if not known or len(waiting.states) + len(item.states) > MERGED_PARTITIONS:
                    return False
                self._items[index] = waiting.merge(item)
                return True
        return False

    def _merge_metadata(self, item: UpdateMetadataItem) -> bool:
        for index in range(len(self._items) - 1, -1, -1):
            waiting = self._items[index]
            if isinstance(waiting, UpdateMetadataItem):
                if waiting.deletes or len(waiting.states) + len(item.states) > MERGED_PARTITIONS:
                    return False
                self._items[index] = waiting.merge(item)
                return True
        return False


def _compacted(items: deque[ControlItem]) -> Iterator[ControlItem]:
    """Large stops with nothing in common stay; what is between two of them becomes metadata and one LeaderAndIsr."""
    if have_much_in_common([i for i in items if isinstance(i, StopReplicaItem)], MERGED_PARTITIONS):
        yield from merge_orders(items, MERGED_PARTITIONS)
        return
    metadata: list[UpdateMetadataItem] = []
    leader_and_isr: LeaderAndIsrItem | None = None
    for item in items:
        if isinstance(item, UpdateMetadataItem):
            metadata.append(item)
        elif isinstance(item, LeaderAndIsrItem):
            leader_and_isr = leader_and_isr.merge(item) if leader_and_isr else item
        else:
            yield from _stretch(metadata, leader_and_isr)
            metadata, leader_and_isr = [], None
            yield item
    yield from _stretch(metadata, leader_and_isr)


def _stretch(metadata: list[UpdateMetadataItem], leader_and_isr: LeaderAndIsrItem | None) -> Iterator[ControlItem]:
    yield from merge_metadata(metadata, MERGED_PARTITIONS)
    if leader_and_isr is not None:
        yield leader_and_isr
