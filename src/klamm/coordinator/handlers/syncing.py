"""SyncGroup and Heartbeat. Source: GroupCoordinator.handleSyncGroup, handleHeartbeat (3.9)."""

import asyncio
from collections.abc import Mapping

import structlog

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decision_journal import MAX_LISTED, RebalanceCause
from klamm.coordinator.decisions.members import check_heartbeat, check_sync
from klamm.coordinator.group import Group
from klamm.coordinator.handlers import rebalance
from klamm.coordinator.requests import SyncRequest, SyncResult
from klamm.coordinator.states import COMPLETING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode

log = structlog.get_logger("groups")


async def sync_group(context: CoordinatorContext, request: SyncRequest) -> SyncResult:
    """Handle SyncGroup: return the member's assignment, once the leader has sent it and it is stored."""
    if error := context.availability(request.group_id):
        is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error)  # so that the member joins again
    group = context.groups.get(request.group_id)
    if group is None:
        return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
    if error := check_sync(group, request):
        return SyncResult(error)
    member = group.members[request.member_id]
    rebalance.received_sync(group, member.member_id)
    if group.state is STABLE:
        context.sessions.restart(group, member)
        return SyncResult(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name)
    member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # one that was sent twice
    reply: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
    member.sync_reply = reply
    if group.leader_id == member.member_id:
        context.spawn(_store_assignment(context, group, request.assignments))
    return await reply


async def _store_assignment(context: CoordinatorContext, group: Group, sent: Mapping[str, bytes]) -> None:
    """Store the leader's assignment, then answer all members; members that it left out get an empty one."""
    generation = group.generation
    assignments = {member_id: sent.get(member_id, b"") for member_id in group.members}
    if missing := [member_id for member_id in group.members if member_id not in sent]:
        log.warning(
            "the group leader sent no assignment for some members: they get an empty one",
            group=group.group_id,
            members=missing[:MAX_LISTED],
            count=len(missing),
        )
    context.counts.completed_rebalances += 1

    def is_current() -> bool:
        """Whether the members of this generation still wait for the assignment."""
        return group.state is COMPLETING_REBALANCE and group.generation == generation

    partition = context.groups.partition_of(group.group_id)
    error = await context.topic.store_group(group, partition, assignments, is_current)
    if not is_current():
        return
    if error:
        rebalance.reset_assignment(context, group, error)
        reason = f"the assignment could not be stored: {error.name}"
        rebalance.maybe_prepare(context, group, RebalanceCause("assignment not stored", reason))
    else:
        group.move(STABLE, context.clock.now_ms())
        rebalance.set_assignment(context, group, assignments)


def heartbeat(
    context: CoordinatorContext, group_id: str, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Handle Heartbeat: extend the member's session. REBALANCE_IN_PROGRESS tells the member to join again."""
    if error := context.availability(group_id):
        return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
    group = context.groups.get(group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = check_heartbeat(group, member_id, instance_id, generation)
    if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        context.sessions.restart(group, group.members[member_id])
    return error
