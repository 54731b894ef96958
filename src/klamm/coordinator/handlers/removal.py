"""Removing offsets and groups: expired, deleted, or of topics that are gone.

Source: GroupMetadataManager.cleanupGroupMetadata (3.9).
"""

from collections.abc import Container, Iterable, Sequence

import structlog

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decisions.expiry import expired_offsets
from klamm.coordinator.group import Group
from klamm.coordinator.states import DEAD, EMPTY
from klamm.model.ids import TopicPartition
from klamm.runtime.time_slices import Slices

log = structlog.get_logger("groups")


async def remove_offsets(context: CoordinatorContext, group: Group, partitions: Sequence[TopicPartition]) -> int:
    """Remove offsets of these partitions, including commits under way; returns how many are in the log."""
    return await _finish_removal(context, group, group.offsets.remove(partitions))


async def _finish_removal(context: CoordinatorContext, group: Group, removed: Sequence[TopicPartition]) -> int:
    """Write tombstones for the removed offsets; returns how many there were.

    A group without members is removed with its last offset.
    """
    if group.state is EMPTY and group.offsets.is_empty:
        group.move(DEAD, context.clock.now_ms())
    is_stored = await _store_removal(context, group, removed)
    return len(removed) if is_stored else 0


async def remove_group(context: CoordinatorContext, group: Group) -> None:
    """Remove an empty group and all its offsets, including commits under way."""
    group.move(DEAD, context.clock.now_ms())
    await _store_removal(context, group, group.offsets.remove(group.offsets.all_partitions()))


async def _store_removal(context: CoordinatorContext, group: Group, removed: Sequence[TopicPartition]) -> bool:
    """Write tombstones for the offsets and, if it has a record, for the group; False where that fails."""
    partition = context.groups.partition_of(group.group_id)
    with_group = group.state is DEAD and context.groups.remove(group) and group.generation > 0
    if group.state is DEAD:
        group.stop_timers()
        log.info("group removed", group=group.group_id, generation=group.generation)
        context.journal.group_step(group, "group removed", generation=group.generation)
    return await context.topic.store_removal(group.group_id, partition, removed, with_group=with_group)


async def expire_offsets(context: CoordinatorContext, slices: Slices) -> None:
    """Remove expired offsets from all groups."""
    now_ms, retention_ms = context.clock.now_ms(), context.settings.offsets_retention_ms
    async for group in slices.each(list(context.groups)):
        if group.state is not DEAD:
            expired = expired_offsets(group, now_ms, retention_ms)
            if expired or (group.state is EMPTY and group.offsets.is_empty):
                removed = group.offsets.expire(expired)
                context.journal.offsets_removed(group, "offsets.retention.minutes is over", removed)
                context.counts.offset_expirations += await _finish_removal(context, group, removed)


async def remove_deleted_partitions(
    context: CoordinatorContext, deleted: Iterable[TopicPartition], slices: Slices
) -> None:
    """Remove the offsets of deleted partitions, since a new topic of the same name begins at 0."""
    gone = frozenset(deleted)
    context.groups.note_deleted(gone)
    await remove_offsets_from(context, list(context.groups), gone, slices)


async def remove_offsets_from(
    context: CoordinatorContext, groups: Iterable[Group], gone: Container[TopicPartition], slices: Slices
) -> None:
    """Remove the offsets of deleted partitions from these groups."""
    async for group in slices.each(groups):
        if group.state is not DEAD and (found := group.offsets.among(gone)):
            context.journal.offsets_removed(group, "the partitions were deleted", found)
            count = await remove_offsets(context, group, found)
            log.info("offsets of deleted topics removed", group=group.group_id, count=count)
