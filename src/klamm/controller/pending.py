"""What waits for one broker, in order; requests coalesce to the newest state of each partition where order allows.

So a slow broker's queue is bounded by its partitions, not by how much happened meanwhile. Kafka keeps every request.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from klamm.controller.control_requests import (
    MAX_CAUSES,
    ControlItem,
    LeaderAndIsrItem,
    StopReplicaItem,
    UpdateMetadataItem,
)
from klamm.model.leader_and_isr import LEADER_DURING_DELETE

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

    def clear(self) -> None:
        self._items.clear()
        self._compacted_to = 0

    @property
    def stops(self) -> Iterator[StopReplicaItem]:
        return (item for item in self._items if isinstance(item, StopReplicaItem))

    def put(self, item: ControlItem) -> None:
        """LeaderAndIsr never overtakes a StopReplica, nor metadata that changes the broker list.

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
    """Each stretch between two StopReplica becomes its metadata, cut again, and one LeaderAndIsr."""
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
    for group in _lives(metadata):
        yield from _merged(group)
    if leader_and_isr is not None:
        yield leader_and_isr


def _lives(metadata: list[UpdateMetadataItem]) -> Iterator[list[UpdateMetadataItem]]:
    """Cut where a topic comes that went before: what is told of the one must not ride along with the other."""
    group: list[UpdateMetadataItem] = []
    gone: set[str] = set()
    for item in metadata:
        if gone and any(p.topic in gone and s.leader != LEADER_DURING_DELETE for p, s in item.states.items()):
            yield group
            group, gone = [], set()
        group.append(item)
        if item.deletes:
            gone.update(p.topic for p, s in item.states.items() if s.leader == LEADER_DURING_DELETE)
    if group:
        yield group


def _merged(metadata: list[UpdateMetadataItem]) -> Iterator[UpdateMetadataItem]:
    sendings = {item.sending for item in metadata}
    if len(sendings) == 1 and None not in sendings:
        yield from metadata  # nothing to merge, and looking for it holds the loop
        return
    newest = {p: state for item in metadata for p, state in item.states.items()}
    if len(newest) == sum(len(item.states) for item in metadata):
        yield from metadata  # nothing to merge: as they are, brokers share what is encoded
        return
    causes = tuple(dict.fromkeys(cause for item in metadata for cause in item.causes))[-MAX_CAUSES:]
    deletes = any(item.deletes for item in metadata)
    states = iter(newest.items())
    first = True
    while (part := dict(islice(states, MERGED_PARTITIONS))) or first:
        yield UpdateMetadataItem(part, causes, metadata[-1].broker_list_version, deletes)
        first = False
