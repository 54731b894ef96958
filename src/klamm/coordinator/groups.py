"""The groups of the partitions that this broker leads, and which partitions these are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from klamm.coordinator.group import Group
from klamm.coordinator.ownership import CoordinatedPartition
from klamm.coordinator.states import DEAD
from klamm.coordinator.topic_partitions import partition_for
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition


@dataclass(slots=True, eq=False)
class OffsetsPartition(CoordinatedPartition):
    groups: dict[str, Group] = field(default_factory=dict)
    ended: dict[int, bool] = field(default_factory=dict)
    """Producer ids whose transaction's marker was written during the load, and whether it commits."""
    deleted: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions that were deleted during the load."""


class Groups:
    def __init__(self, partition_count: int = 1) -> None:
        self.partition_count = partition_count
        """Set once, at the start: another count puts groups elsewhere."""
        self._partitions: dict[int, OffsetsPartition] = {}
        self._open_for: dict[int, dict[str, None]] = {}
        """Groups with offsets in an open transaction, by producer id."""

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that belongs to the group."""
        return partition_for(group_id, self.partition_count)

    def partition(self, number: int) -> OffsetsPartition:
        """Return this broker's state of partition `number` of `__consumer_offsets`, created where it is missing."""
        return self._partitions.setdefault(number, OffsetsPartition())

    @property
    def is_loading(self) -> bool:
        """Whether any partition of `__consumer_offsets` is being loaded."""
        return any(partition.loading for partition in self._partitions.values())

    def availability(self, group_id: str) -> ErrorCode:
        """COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR where this broker cannot serve the group; else NONE."""
        partition = self._partitions.get(self.partition_of(group_id))
        return ErrorCode.NOT_COORDINATOR if partition is None else partition.availability

    def get(self, group_id: str) -> Group | None:
        """Return the group; None where this broker does not have it."""
        partition = self._partitions.get(self.partition_of(group_id))
        return None if partition is None else partition.groups.get(group_id)

    def add(self, group: Group) -> Group:
        """Add the group and return it; if a group of that id exists, return that one."""
        return self.partition(self.partition_of(group.group_id)).groups.setdefault(group.group_id, group)

    def remove(self, group: Group) -> bool:
        """Remove this group; False where it was removed or replaced before."""
        groups = self.partition(self.partition_of(group.group_id)).groups
        if groups.get(group.group_id) is not group:
            return False
        del groups[group.group_id]
        self.close_for_producers(group)
        return True

    def note_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """Remember deleted partitions for the groups that are being loaded: not all of them are here yet."""
        gone = dict.fromkeys(partitions)
        for partition in self._partitions.values():
            if partition.loading is not None:
                partition.deleted |= gone

    def __iter__(self) -> Iterator[Group]:
        for partition in self._partitions.values():
            yield from partition.groups.values()

    def __len__(self) -> int:
        return sum(len(partition.groups) for partition in self._partitions.values())

    # ---- transactions

    def open_for_producers(self, group: Group) -> None:
        """Remember which producers have uncommitted transactional offsets in the group."""
        for producer_id in group.offsets.open_producers:
            self._open_for.setdefault(producer_id, {})[group.group_id] = None

    def close_for_producers(self, group: Group) -> None:
        """Forget that producers have uncommitted offsets in the group."""
        for producer_id in group.offsets.open_producers:
            self._close_for(producer_id, group.group_id)

    def close_unless_open(self, producer_id: int, group: Group) -> None:
        """Forget that the producer has uncommitted offsets in the group, unless it still has some.

        Called after a commit failed. A group that was removed was forgotten then; its successor may have some.
        """
        if self.get(group.group_id) is group and producer_id not in group.offsets.open_producers:
            self._close_for(producer_id, group.group_id)

    def end_transaction(self, producer_id: int, partitions: Iterable[int], *, is_commit: bool) -> None:
        """Commit or drop the producer's offsets, because its transaction's marker is in these partitions.

        A partition that is being loaded may have been read before its marker was written, and not all of its groups
        are here: they get the marker at the end of the load. The first marker counts: no later transaction of the
        producer has offsets there, since none are accepted during the load.
        """
        served = []
        for number in partitions:
            partition = self.partition(number)
            if partition.loading is None:
                served.append(number)
            else:
                partition.ended.setdefault(producer_id, is_commit)
        self._complete_transaction(producer_id, served, is_commit=is_commit)

    def end_loaded_transactions(self, number: int) -> None:
        """Commit or drop the loaded offsets of transactions whose markers were written during the load."""
        partition = self.partition(number)
        ended, partition.ended = partition.ended, {}
        for producer_id, is_commit in ended.items():
            self._complete_transaction(producer_id, (number,), is_commit=is_commit)

    def _complete_transaction(self, producer_id: int, partitions: Iterable[int], *, is_commit: bool) -> None:
        """Commit or drop the producer's offsets in the groups of these partitions."""
        for group in self._take_open_for(producer_id, partitions):
            if group.state is not DEAD:
                group.offsets.complete_transaction(producer_id, is_commit=is_commit)

    def _take_open_for(self, producer_id: int, partitions: Iterable[int]) -> list[Group]:
        """Return the groups in these partitions that have uncommitted offsets of the producer.

        They are no longer remembered as having some.
        """
        numbers = frozenset(partitions)
        names = [name for name in self._open_for.get(producer_id, ()) if self.partition_of(name) in numbers]
        for name in names:
            self._close_for(producer_id, name)
        return [group for name in names if (group := self.get(name)) is not None]

    def _close_for(self, producer_id: int, group_id: str) -> None:
        """Forget that the producer has uncommitted offsets in the group."""
        names = self._open_for.get(producer_id)
        if names is not None:
            names.pop(group_id, None)
            if not names:
                del self._open_for[producer_id]
