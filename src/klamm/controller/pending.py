"""The queue of control requests for one broker; requests are merged where their order allows.

So the queue of a slow broker is bounded by its number of partitions; Kafka keeps every request. If many requests wait,
all of them are merged in small steps, one with each request that is put; requests put meanwhile wait behind.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

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
from klamm.controller.steps import REQUEST_PARTITIONS

MAX_UNMERGED_REQUESTS: Final = 64
"""With more waiting requests than this, large requests are merged, too."""
MERGE_STEP_PARTITIONS: Final = 5_000
"""Partitions processed in one step of that merge, about a millisecond."""
MIN_OVERTAKEN: Final = 4
"""A LeaderAndIsr overtakes so many waiting UpdateMetadata or more: those of a new controller, which has sent the states
of all partitions."""
MAX_FREED_REQUESTS: Final = 2
"""Merged requests that are freed with each request put or taken, so that freeing them does not hold the loop."""


class PendingRequests:
    """The waiting requests, in order."""

    def __init__(self) -> None:
        self._items: deque[ControlItem] = deque()
        self._compacted_to = 0
        """The number of requests after the last compaction; the next one begins when there are twice as many."""
        self._compaction: _Compaction | None = None
        """The compaction in progress; its requests are still in `_items`."""
        self._replaced_requests: list[ControlItem] = []
        """Requests that a compaction replaced, and that are freed in small steps."""
        self._has_sent_leader_and_isr = False
        self._sent_broker_list = -1
        """The version of the broker list in the last UpdateMetadata that was taken."""

    def __len__(self) -> int:
        return len(self._items)

    def take(self) -> ControlItem:
        """Remove and return the oldest request."""
        item = self._items.popleft()
        if isinstance(item, LeaderAndIsrItem):
            self._has_sent_leader_and_isr = True
        elif isinstance(item, UpdateMetadataItem):
            self._sent_broker_list = item.broker_list_version
        self._compaction = None  # its result would include the request that is taken now
        del self._replaced_requests[-MAX_FREED_REQUESTS:]
        self._compacted_to = min(self._compacted_to, len(self._items))
        return item

    @property
    def stops(self) -> Iterator[StopReplicaItem]:
        """Yield the waiting StopReplica requests."""
        return (item for item in self._items if isinstance(item, StopReplicaItem))

    def put(self, item: ControlItem) -> None:
        """Queue a request, merged into a waiting one where that is possible.

        A LeaderAndIsr never overtakes a StopReplica of its partition, nor metadata that changes the broker list: the
        broker must know the leaders it names. Metadata may be sent earlier than it was queued, and later only where a
        LeaderAndIsr is merged into one that waits before it, or overtakes much of it.
        """
        del self._replaced_requests[-MAX_FREED_REQUESTS:]
        if isinstance(item, LeaderAndIsrItem) and self._merge_leader_and_isr(item):
            return
        if isinstance(item, UpdateMetadataItem) and self._merge_metadata(item):
            return
        self._items.insert(self._place_of(item), item)
        if self._compaction is None and len(self._items) > max(MAX_UNMERGED_REQUESTS, 2 * self._compacted_to):
            self._compaction = _Compaction(list(self._items))
        if self._compaction is not None and self._compaction.advance():
            self._items = deque((*self._compaction.left, *islice(self._items, len(self._compaction.items), None)))
            self._compacted_to = len(self._compaction.left)
            self._replaced_requests = self._compaction.items
            self._compaction = None

    def _place_of(self, item: ControlItem) -> int:
        """Where the request waits: at the end, or before much metadata if it is a LeaderAndIsr.

        The first one does not overtake anything: a broker that starts gets its metadata before. Nor does one overtake
        the metadata with which the broker learns of the broker list.
        """
        end = len(self._items)
        if not isinstance(item, LeaderAndIsrItem) or not self._has_sent_leader_and_isr:
            return end
        place = end
        for index in self._mergeable_indexes():
            waiting = self._items[index]
            if not isinstance(waiting, UpdateMetadataItem) or waiting.deletes:
                break
            if waiting.broker_list_version != item.broker_list_version:
                break
            place = index
        if self._sent_broker_list != item.broker_list_version:
            place += 1
        return place if end - place >= MIN_OVERTAKEN else end

    def _mergeable_indexes(self) -> range:
        """Indexes of requests that may still change, the newest first: all that are not being compacted."""
        first = 0 if self._compaction is None else len(self._compaction.items)
        return range(len(self._items) - 1, first - 1, -1)

    def _merge_leader_and_isr(self, item: LeaderAndIsrItem) -> bool:
        """Merge into a waiting LeaderAndIsr; false if there is none that may take it."""
        for index in self._mergeable_indexes():
            waiting = self._items[index]
            if isinstance(waiting, StopReplicaItem):
                return False
            if isinstance(waiting, LeaderAndIsrItem):
                is_last = index == len(self._items) - 1
                known = waiting.broker_list_version == item.broker_list_version or is_last
                most = min(waiting.max_partitions, item.max_partitions)
                if not known or len(waiting.states) + len(item.states) > most:
                    return False
                self._items[index] = waiting.merge(item)
                return True
        return False

    def _merge_metadata(self, item: UpdateMetadataItem) -> bool:
        """Merge into a waiting UpdateMetadata; false if there is none that may take it."""
        for index in self._mergeable_indexes():
            waiting = self._items[index]
            if isinstance(waiting, UpdateMetadataItem):
                if waiting.deletes or len(waiting.states) + len(item.states) > REQUEST_PARTITIONS:
                    return False
                self._items[index] = waiting.merge(item)
                return True
        return False


class _Compaction:
    """The merge of all requests in `items` into `left`, done in steps."""

    def __init__(self, items: list[ControlItem]) -> None:
        self.items = items
        self.left: list[ControlItem] = []
        self._steps = _compaction_steps(items)

    def advance(self) -> bool:
        """Do one step of the merge; true after the last step."""
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
    """The steps that merge these requests.

    Unless merging StopReplica requests saves some, these stay, and the requests between two of them become
    UpdateMetadata and one LeaderAndIsr.
    """
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
    """The steps that merge the requests between two StopReplica: UpdateMetadata first, then one LeaderAndIsr."""
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
