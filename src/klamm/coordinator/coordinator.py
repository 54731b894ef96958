"""The group coordinator of one broker. Source: GroupCoordinator.scala (3.9)."""

import asyncio
from collections.abc import Iterable, Sequence

import structlog

from klamm.coordinator.context import CoordinatorContext, Counts
from klamm.coordinator.decision_journal import DecisionJournal
from klamm.coordinator.group import Group
from klamm.coordinator.groups import Groups
from klamm.coordinator.handlers import admin, joining, leaving, offsets, rebalance, removal, syncing
from klamm.coordinator.handlers.ownership import Ownership
from klamm.coordinator.offsets_topic import OffsetsTopic
from klamm.coordinator.requests import JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.states import GroupState
from klamm.coordinator.topic_partitions import CoordinatorLog
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.replication.leadership import LeadershipChange
from klamm.runtime.time_slices import Slices
from klamm.runtime.world import World

log = structlog.get_logger("groups")


class GroupCoordinator:
    """`start` it, tell it which partitions of `__consumer_offsets` this broker leads, pass it requests, `close` it."""

    def __init__(
        self,
        world: World,
        settings: GroupSettings,
        offsets_log: CoordinatorLog,
        slices: Slices,
        journal: DecisionJournal | None = None,
    ) -> None:
        self._settings = settings
        self._slices = slices
        topic = OffsetsTopic(offsets_log, settings, world.clock, slices)
        journal = journal or DecisionJournal()
        self._context = CoordinatorContext(settings, Groups(), topic, world.clock, world.randomness, journal, slices)
        self._context.sessions.on_expired = self._on_session_expired
        self._context.sessions.on_pending_expired = self._on_pending_expired
        self._ownership = Ownership(self._context, offsets_log, slices)
        self._expiry: asyncio.Task[None] | None = None

    # ---- life

    def start(self, partition_count: int) -> None:
        """Begin to serve groups. `partition_count` is that of `__consumer_offsets`, or what it will be created with."""
        self._context.groups.partition_count = partition_count
        self._context.is_active = True
        self._expiry = asyncio.get_running_loop().create_task(self._expire_offsets(), name="offset-expiry")

    async def close(self) -> None:
        """Refuse requests from now on, and stop everything that is under way."""
        self._context.is_active = False
        for group in self._context.groups:
            group.stop_timers()
            for member in group.members.values():
                member.stop_session_timer()
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        await self._context.close()

    async def _expire_offsets(self) -> None:
        """Remove expired offsets at every `offsets.retention.check.interval.ms`."""
        while True:
            try:
                await removal.expire_offsets(self._context, self._slices)
            except (KlammError, OSError) as error:
                log.error(
                    "cannot remove expired offsets of groups; trying again after offsets.retention.check.interval.ms",
                    reason=str(error),
                )
            except Exception:
                log.exception(
                    "unexpected error while expired offsets of groups are removed; trying again after "
                    "offsets.retention.check.interval.ms",
                    action="Report this as a bug in klamm, with the stack trace.",
                )
            await asyncio.sleep(self._settings.offsets_retention_check_interval_ms / 1000)

    # ---- the partitions of the offsets topic

    def on_leadership_change(self, change: LeadershipChange) -> None:
        """Load the groups of partitions that this broker begins to lead, and unload those it no longer leads."""
        self._ownership.on_leadership_change(change)

    def on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> "asyncio.Task[None] | None":
        """Remove the committed offsets of partitions that are deleted; returns a task where that takes longer.

        Offsets that are committed for a new topic of that name before the task has ended may be removed, too.
        """
        if deleted := list(partitions):
            return self._context.spawn(removal.remove_deleted_partitions(self._context, deleted, self._slices))
        return None

    def on_transaction_completed(self, producer_id: int, partitions: Iterable[int], is_commit: bool) -> None:
        """Commit or drop the producer's offsets, because the transaction's marker was written to these partitions."""
        self._context.groups.end_transaction(producer_id, partitions, is_commit=is_commit)

    def availability(self, group_id: str) -> ErrorCode:
        """The error if no request for the group can be served here now; NONE where it can."""
        return self._context.availability(group_id)

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that belongs to the group."""
        return self._context.groups.partition_of(group_id)

    # ---- members

    def _on_session_expired(self, group: Group, member_id: str) -> None:
        """Remove a member whose session expired from the group, and start a rebalance."""
        log.info("member's session expired", group=group.group_id, member=member_id)
        member = group.members[member_id]
        reason = f"no heartbeat came from {member_id} for {member.session_timeout_ms} ms"
        rebalance.remove_member(self._context, group, member, "session timeout", reason)

    def _on_pending_expired(self, group: Group, member_id: str) -> None:
        """Remove a member id that no client used to join in time."""
        log.info("unused member id removed: no client joined with it in time", group=group.group_id, member=member_id)
        self._context.journal.group_step(group, "unused member id removed", member=member_id)
        rebalance.remove_pending(self._context, group, member_id)

    async def join_group(self, request: JoinRequest) -> JoinResult:
        """Add the member to the group, and answer when the rebalance is complete."""
        return await joining.join_group(self._context, request)

    async def sync_group(self, request: SyncRequest) -> SyncResult:
        """Return the member's assignment, once the leader of the group has sent it."""
        return await syncing.sync_group(self._context, request)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Extend the member's session; the error tells whether the member must rejoin."""
        return syncing.heartbeat(self._context, group_id, member_id, instance_id, generation)

    def leave_group(self, group_id: str, members: Sequence[LeavingMember]) -> leaving.LeaveResult:
        """Remove the members from the group; the result has an error for each."""
        return leaving.leave_group(self._context, group_id, members)

    # ---- offsets

    async def commit_offsets(self, request: offsets.CommitRequest) -> offsets.Errors:
        """Store the offsets in `__consumer_offsets`; return an error code for each partition."""
        return await offsets.commit_offsets(self._context, request)

    async def commit_transactional_offsets(self, request: offsets.TransactionalCommitRequest) -> offsets.Errors:
        """Store offsets that become committed when the producer's transaction commits.

        Returns the error of each partition.
        """
        return await offsets.commit_transactional_offsets(self._context, request)

    async def confirm_coordinator(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Return, for each group, the error if its committed offsets must not be read here; await it before reading."""
        return await offsets.confirm_coordinator(self._context, group_ids)

    def committed_partitions(self, group_id: str) -> tuple[ErrorCode, list[TopicPartition]]:
        """Return an error for the group, and the partitions for which it has a committed offset."""
        return offsets.committed_partitions(self._context, group_id)

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> tuple[ErrorCode, dict[TopicPartition, offsets.FetchedOffset]]:
        """Return an error for the group, and the committed offsets; `partitions` None means all of the group.

        With `require_stable`, a partition with an offset of an open transaction gets UNSTABLE_OFFSET_COMMIT.
        """
        return offsets.fetch_offsets(self._context, group_id, partitions, require_stable=require_stable)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, offsets.Errors]:
        """Delete committed offsets of the group; return an error for the group and one for each partition."""
        return await offsets.delete_offsets(self._context, group_id, partitions)

    # ---- administration

    async def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> tuple[ErrorCode, list[admin.ListedGroup]]:
        """Return the groups that this broker coordinates, filtered by state and type; an empty filter passes all.

        The error is COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded.
        """
        return await admin.list_groups(self._context, states, types)

    def describe_group(self, group_id: str) -> admin.DescribedGroup:
        """Return state, protocol and members of the group, or its error."""
        return admin.describe_group(self._context, group_id)

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, ErrorCode]:
        """Delete each group that is empty; return an error code for each group id."""
        return await admin.delete_groups(self._context, group_ids)

    # ---- metrics

    @property
    def counts(self) -> Counts:
        """The counters for the metrics: commits, rebalances, loads and others."""
        return self._context.counts

    def count_groups(self) -> dict[GroupState, int]:
        """Return the number of groups in each state."""
        counted = dict.fromkeys(GroupState, 0)
        for group in self._context.groups:
            counted[group.state] += 1
        return counted

    def count_offsets(self) -> int:
        """Return the number of committed offsets of all groups."""
        return sum(len(group.offsets) for group in self._context.groups)
