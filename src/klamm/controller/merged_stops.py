"""Merging many LeaderAndIsr and StopReplica that wait for one broker into few with the same effect.

A replica may be stopped and created again several times meanwhile. For each partition there remain, in this order: one
StopReplica of what was before, which deletes if any of them did; the newest LeaderAndIsr since then; one StopReplica
after that. A LeaderAndIsr before a deletion is dropped. So every requested deletion is answered, and answered after the
last LeaderAndIsr that its response could be confused with.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    Steps,
    StopReplicaItem,
    UpdateMetadataItem,
    joined_causes,
)
from klamm.controller.merged_metadata import are_sparse, merge_metadata
from klamm.controller.topic import Partition
from klamm.model.ids import TopicPartition
from klamm.wire.messages import StopReplicaPartitionState


def is_worth_merging(stops: Sequence[StopReplicaItem], max_partitions: int) -> Generator[int, None, bool]:
    """Whether merging leaves fewer requests of at most `max_partitions`.

    A generator that yields the numbers of partitions processed, and returns the answer.
    """
    included = sum(len(item.stops) for item in stops)
    if len(stops) < 2:
        return False
    if are_sparse(len(stops), included, max_partitions):
        return True
    named: set[Partition] = set()
    for item in stops:
        named.update(item.stops)
        yield len(item.stops)
    return len(named) < included


def merge_control_requests(items: Iterable[ControlItem], max_partitions: int) -> Steps:
    """Merge queued requests, given in order; UpdateMetadata comes first, since it may be sent earlier."""
    metadata: list[UpdateMetadataItem] = []
    leading: list[LeaderAndIsrItem] = []
    stops: list[StopReplicaItem] = []
    merged = _MergedRequests()
    for item in items:
        if isinstance(item, UpdateMetadataItem):
            metadata.append(item)
        elif isinstance(item, LeaderAndIsrItem):
            leading.append(item)
            for piece in item.pieces(max_partitions):
                merged.add_leader_and_isr(piece)
                yield len(piece.states)
        else:
            stops.append(item)
            merged.add_stop_replica(item)
            yield len(item.stops)
    yield from merge_metadata(metadata, max_partitions)
    yield from _stop_items(merged.before.values(), stops, max_partitions)
    if merged.states.states:
        merged.states.causes = joined_causes(leading)
        yield merged.states
    yield from _stop_items(merged.after.values(), stops, max_partitions)


@dataclass(slots=True)
class _Stop:
    """The merged StopReplica of one replica; `partitions` are those of that name that wait for the response."""

    state: StopReplicaPartitionState
    partitions: dict[Partition, None] = field(default_factory=dict)

    def merge(self, newer: "_Stop") -> "_Stop":
        """Merge with a newer stop; a deletion that ignores the leader epoch keeps ignoring it."""
        delete = self.state.delete_partition or newer.state.delete_partition
        forced = self.state.delete_partition and self.state.leader_epoch < 0
        epoch = self.state.leader_epoch if forced else newer.state.leader_epoch
        state = StopReplicaPartitionState(newer.state.partition_index, epoch, delete)
        return _Stop(state, {**self.partitions, **newer.partitions})


class _MergedRequests:
    """The merged requests: stops before the states, the states, and stops after them."""

    def __init__(self) -> None:
        self.before: dict[TopicPartition, _Stop] = {}
        """By partition name, stops that come before the LeaderAndIsr."""
        self.states = LeaderAndIsrItem({}, (), 0)
        self.after: dict[TopicPartition, _Stop] = {}
        self._merged_partitions: dict[TopicPartition, list[Partition]] = {}
        """By partition name, the partitions in `states`: topics of one name may have had several."""

    def add_leader_and_isr(self, item: LeaderAndIsrItem) -> None:
        """Add a LeaderAndIsr; stops of its partitions now come before it."""
        for p in item.states:
            key = p.key
            stopped = self.after.pop(key, None)
            if stopped is not None:
                _merge_stop(self.before, key, stopped)
            if p not in self.states.states:
                self._merged_partitions.setdefault(key, []).append(p)
        self.states.merge_states_from(item)

    def add_stop_replica(self, item: StopReplicaItem) -> None:
        """Add a StopReplica; a deletion drops the states queued for its partitions."""
        for p, state in item.stops.items():
            key = p.key
            if state.delete_partition:
                for included in self._merged_partitions.pop(key, ()):
                    del self.states.own_states[included]
                earlier = self.before.pop(key, None)
                if earlier is not None:
                    later = self.after.get(key)
                    self.after[key] = earlier if later is None else earlier.merge(later)
            _merge_stop(self.after, key, _Stop(state, {p: None}))


def _merge_stop(stops: dict[TopicPartition, _Stop], key: TopicPartition, newer: _Stop) -> None:
    """Put the stop of this partition name into `stops`, merged with an older one."""
    older = stops.get(key)
    stops[key] = newer if older is None else older.merge(newer)


def _stop_items(stops: Iterable[_Stop], items: Sequence[StopReplicaItem], max_partitions: int) -> Steps:
    """Yield StopReplica requests that carry these stops, at most `max_partitions` in each.

    The number of its partitions follows each request.
    """
    included = iter([(p, stop.state) for stop in stops for p in stop.partitions])
    while part := dict(islice(included, max_partitions)):
        yield StopReplicaItem(part, joined_causes(items), items[-1].broker_list_version)
        yield len(part)
