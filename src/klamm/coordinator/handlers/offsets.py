"""Committing, fetching and deleting offsets. Source: GroupCoordinator.scala, GroupMetadataManager.scala (3.9)."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klamm.coordinator.committed_offsets import Offset, Offsets
from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decisions.members import check_offset_commit, check_transactional_commit
from klamm.coordinator.group import Group
from klamm.coordinator.handlers import removal
from klamm.coordinator.requests import NO_GENERATION, ProducerIdAndEpoch
from klamm.coordinator.states import DEAD, EMPTY
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

NO_OFFSET: Final = Offset(-1)


class CommitRequest(NamedTuple):
    group_id: str
    offsets: Offsets
    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION


class TransactionalCommitRequest(NamedTuple):
    producer: ProducerIdAndEpoch
    commit: CommitRequest


class FetchedOffset(NamedTuple):
    offset: Offset = NO_OFFSET
    error: ErrorCode = ErrorCode.NONE


NOTHING_COMMITTED: Final = FetchedOffset()
Errors = dict[TopicPartition, ErrorCode]


async def commit_offsets(context: CoordinatorContext, request: CommitRequest) -> Errors:
    """Store the offsets; returns the error of each partition once the replicas have the record."""
    if error := context.availability(request.group_id, allows_empty=True):
        return dict.fromkeys(request.offsets, error)
    group = context.groups.get(request.group_id)
    if group is None:
        if request.generation >= 0:
            return dict.fromkeys(request.offsets, ErrorCode.ILLEGAL_GENERATION)
        group = context.groups.add(Group(request.group_id, context.clock.now_ms()))
    if error := check_offset_commit(group, request.member_id, request.instance_id, request.generation):
        return dict.fromkeys(request.offsets, error)
    if (member := group.members.get(request.member_id)) is not None:
        context.sessions.restart(group, member)
    return await _store(context, group, request.offsets)


async def commit_transactional_offsets(context: CoordinatorContext, request: TransactionalCommitRequest) -> Errors:
    """Store the offsets as part of the producer's transaction; they are committed when it is."""
    producer, commit = request
    if error := context.availability(commit.group_id):
        return dict.fromkeys(commit.offsets, error)
    group = context.groups.get(commit.group_id) or Group(commit.group_id, context.clock.now_ms())
    if error := check_transactional_commit(group, commit.member_id, commit.instance_id, commit.generation):
        return dict.fromkeys(commit.offsets, error)
    return await _store(context, context.groups.add(group), commit.offsets, producer)


def is_metadata_too_large(metadata: str, limit: int) -> bool:
    """Whether the metadata of a commit is longer than `offset.metadata.max.bytes`, in UTF-16 units as Java counts."""
    if 2 * len(metadata) <= limit:
        return False
    return len(metadata.encode("utf-16-be", "surrogatepass")) // 2 > limit


async def _store(
    context: CoordinatorContext, group: Group, offsets: Offsets, producer: ProducerIdAndEpoch | None = None
) -> Errors:
    """Store the offsets whose metadata is not too large; they are visible once the record is replicated.

    With `producer`, they become visible when its transaction commits.
    """
    limit = context.settings.offset_metadata_max_bytes
    accepted = {p: offset for p, offset in offsets.items() if not is_metadata_too_large(offset.metadata, limit)}
    errors: Errors = dict.fromkeys(offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    partition = context.groups.partition_of(group.group_id)
    if context.topic.has_too_many(group.group_id, partition, len(accepted)):
        errors.update(dict.fromkeys(accepted, ErrorCode.INVALID_COMMIT_OFFSET_SIZE))
    elif accepted:

        async def store() -> None:
            """Append the accepted offsets to `__consumer_offsets`, and set each partition's result in `errors`."""
            if producer is None:
                error = await _append(context, group, accepted)
            else:
                error = await _append_transactional(context, group, accepted, producer)
            errors.update(dict.fromkeys(accepted, error))

        if (task := context.spawn(store())) is not None:
            await task
    return errors


async def _append(context: CoordinatorContext, group: Group, offsets: Offsets) -> ErrorCode:
    """Append the offsets to `__consumer_offsets`; once they are replicated, they are the group's committed offsets.

    Returns the error; after one, the earlier offsets stay in force.
    """
    group.offsets.prepare(offsets)
    partition = context.groups.partition_of(group.group_id)
    try:
        error, base_offset = await context.topic.store_offsets(group.group_id, partition, offsets)
    except BaseException:
        group.offsets.fail(offsets)
        raise
    if error:
        group.offsets.fail(offsets)
    elif group.state is not DEAD:
        group.offsets.complete(offsets, base_offset)
        context.counts.offset_commits += len(offsets)
    return error


async def _append_transactional(
    context: CoordinatorContext, group: Group, offsets: Offsets, producer: ProducerIdAndEpoch
) -> ErrorCode:
    """Append offsets of an open transaction to `__consumer_offsets`; they are committed when the transaction is.

    Returns the error.
    """
    producer_id = producer.producer_id
    group.offsets.prepare_transactional(producer_id, offsets)
    context.groups.open_for_producers(group)
    partition = context.groups.partition_of(group.group_id)
    error, base_offset = ErrorCode.UNKNOWN_SERVER_ERROR, -1
    try:
        error, base_offset = await context.topic.store_offsets(group.group_id, partition, offsets, producer)
    finally:
        if error or group.state is DEAD:
            group.offsets.fail_transactional(producer_id, offsets)
            context.groups.close_unless_open(producer_id, group)
        else:
            group.offsets.complete_transactional(producer_id, offsets, base_offset)
            context.counts.offset_commits += len(offsets)
    return error


async def confirm_coordinator(context: CoordinatorContext, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
    """The error of each group whose committed offsets must not be read here; NONE where they may.

    A coordinator that was replaced and does not know it has old offsets: it answers only where it could store new ones.
    """
    errors = {group_id: context.availability(group_id, allows_empty=True) for group_id in group_ids}
    numbers = {group_id: context.groups.partition_of(group_id) for group_id, error in errors.items() if not error}
    asked = sorted(set(numbers.values()))
    if len(asked) == 1:
        confirmed = {asked[0]: await context.topic.confirm_leadership(asked[0])}
    else:
        confirmed = dict(zip(asked, await asyncio.gather(*map(context.topic.confirm_leadership, asked)), strict=True))
    refused = {group_id: ErrorCode.NOT_COORDINATOR for group_id, number in numbers.items() if not confirmed[number]}
    return errors | refused


def committed_partitions(context: CoordinatorContext, group_id: str) -> tuple[ErrorCode, list[TopicPartition]]:
    """The error for the group, and the partitions for which it has a committed offset."""
    if error := context.availability(group_id, allows_empty=True):
        return error, []
    group = context.groups.get(group_id)
    return ErrorCode.NONE, [] if group is None or group.state is DEAD else list(group.offsets.committed)


def fetch_offsets(
    context: CoordinatorContext, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
    """The committed offsets of these partitions, or of all (None) for which the group has one."""
    if error := context.availability(group_id, allows_empty=True):
        return error, {}
    group = context.groups.get(group_id)
    if group is None or group.state is DEAD:
        return ErrorCode.NONE, dict.fromkeys(partitions or (), FetchedOffset())
    requested: Iterable[TopicPartition] = group.offsets.committed if partitions is None else partitions
    return ErrorCode.NONE, {partition: _fetched(group, partition, require_stable) for partition in requested}


def _fetched(group: Group, partition: TopicPartition, require_stable: bool) -> FetchedOffset:
    """Return the committed offset of the partition, or NO_OFFSET.

    With `require_stable`, UNSTABLE_OFFSET_COMMIT where an open transaction has an offset of the partition.
    """
    if require_stable and group.offsets.is_unstable(partition):
        return FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return FetchedOffset(group.offsets.get(partition) or NO_OFFSET)


async def delete_offsets(
    context: CoordinatorContext, group_id: str, partitions: Sequence[TopicPartition]
) -> tuple[ErrorCode, Errors]:
    """Delete offsets of a group; if it has members, only those of topics that no member reads."""
    if error := context.availability(group_id):
        return error, {}
    group = context.groups.get(group_id)
    if group is None or group.state is DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND, {}
    if group.state is not EMPTY and not group.is_consumer_group:
        return ErrorCode.NON_EMPTY_GROUP, {}
    is_read = [group.state is not EMPTY and group.is_subscribed_to(partition.topic) for partition in partitions]
    errors = {
        partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if read else ErrorCode.NONE
        for partition, read in zip(partitions, is_read, strict=True)
    }
    deletable = [partition for partition, error in errors.items() if not error]
    if deletable:
        context.counts.offset_deletions += await removal.remove_offsets(context, group, deletable)
    return ErrorCode.NONE, errors
