"""Loading the groups of a partition that this broker leads now, and giving up those that it led.

Source: GroupMetadataManager.loadGroupsAndOffsets, removeGroupsAndOffsets (3.9).
"""

from collections.abc import Iterator

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decision_journal import RebalanceCause
from klamm.coordinator.group import Group
from klamm.coordinator.groups import OffsetsPartition
from klamm.coordinator.handlers import rebalance, removal
from klamm.coordinator.loaded_groups import LoadedGroups
from klamm.coordinator.ownership import Loading, PartitionOwnership
from klamm.coordinator.requests import JoinResult, SyncResult
from klamm.coordinator.states import DEAD
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, CoordinatorLog
from klamm.model.errors import ErrorCode
from klamm.runtime.time_slices import Slices


class Ownership(PartitionOwnership):
    def __init__(self, context: CoordinatorContext, offsets_log: CoordinatorLog, slices: Slices) -> None:
        size = context.settings.offsets_load_buffer_size
        super().__init__(OFFSETS_TOPIC, offsets_log, context.tasks, slices, size, context.journal)
        self._context = context

    def partition(self, number: int) -> OffsetsPartition:
        """Return the state of partition `number` of `__consumer_offsets` on this broker."""
        return self._context.groups.partition(number)

    async def load(self, number: int, loading: Loading) -> int:
        """Read partition `number` of `__consumer_offsets` and add its groups; returns their number.

        Stops if the partition is loaded again meanwhile, and adds none if this broker does not lead it any more.
        """
        loaded = LoadedGroups()
        await self.read_all(number, loading, loaded.add_batch)
        if not self.is_wanted(number, loading):
            return 0
        partition = self.partition(number)
        count = 0
        for group in loaded.take_groups(self._context.clock.now_ms()):
            await self._slices.checkpoint()
            if partition.loading is not loading:
                break
            await self._add(group, partition, loading)
            count += 1
        await self._remove_deleted(partition, loading)
        if partition.loading is loading:
            self._context.groups.end_loaded_transactions(number)
        return count

    async def _remove_deleted(self, partition: OffsetsPartition, loading: Loading) -> None:
        """Remove offsets of partitions that were deleted during the load; none are committed before it ends."""
        while partition.loading is loading and partition.deleted:
            gone, partition.deleted = partition.deleted, {}
            await removal.remove_offsets_from(self._context, list(partition.groups.values()), gone, self._slices)

    async def _add(self, group: Group, partition: OffsetsPartition, loading: Loading) -> None:
        """Add a loaded group and start a full session for each of its members, in time slices.

        Sessions of a group that is unloaded meanwhile are not started.
        """
        context = self._context
        if context.groups.add(group) is not group:
            return
        context.groups.open_for_producers(group)
        if len(group.members) > context.settings.group_max_size:
            reason = f"loaded with {len(group.members)} members, more than group.max.size"
            rebalance.prepare(context, group, RebalanceCause("group too large", reason))
        async for members in self._slices.over(list(group.members.values())):
            if partition.loading is not loading:
                return
            for member in members:
                context.sessions.restart(group, member)

    def unload(self, number: int) -> int:
        """Remove the groups of partition `number` of `__consumer_offsets` from memory; return their number."""
        partition = self.partition(number)
        groups, partition.groups = partition.groups, {}
        partition.ended.clear()
        partition.deleted.clear()
        count = len(groups)
        for group in groups.values():
            self._context.groups.close_for_producers(group)
            group.move(DEAD, self._context.clock.now_ms())
            group.stop_timers()
        self._context.spawn(self._free(groups))
        return count

    def drop_part(self, number: int) -> None:
        """Remove the groups that a failed load has added; keep which partitions were deleted during it.

        The log has the transaction markers that were written meanwhile, but no tombstones of deleted partitions.
        """
        partition = self.partition(number)
        deleted, partition.deleted = partition.deleted, {}
        self.unload(number)
        partition.deleted = deleted

    async def _free(self, groups: dict[str, Group]) -> None:
        """Free the memory of groups that are no longer served, some in each time slice.

        JoinGroup and SyncGroup requests that wait in them get NOT_COORDINATOR.
        """
        with self.long_work():
            for group in groups.values():
                await self._slices.checkpoint()
                await self._slices.run(_end_members(group))
            while groups:
                await self._slices.checkpoint()
                await self._slices.clear(groups.popitem()[1].offsets.committed)

    def observe_load(self, duration_ms: float) -> None:
        """Record, for the metrics, a loaded partition and how long it took."""
        self._context.counts.partition_loads.observe(duration_ms)


def _end_members(group: Group) -> Iterator[None]:
    """End each member's session in a dead group, and answer its requests with NOT_COORDINATOR; pause after each."""
    for member in list(group.members.values()):
        member.stop_session_timer()
        group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
        member.answer_sync(SyncResult(ErrorCode.NOT_COORDINATOR))
        yield
