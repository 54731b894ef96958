"""LeaveGroup. Source: GroupCoordinator.handleLeaveGroup (3.9)."""

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decisions.members import check_leave
from klamm.coordinator.group import Group
from klamm.coordinator.handlers import rebalance
from klamm.coordinator.requests import LeavingMember
from klamm.coordinator.states import DEAD
from klamm.model.errors import ErrorCode

log = structlog.get_logger("groups")


class LeaveResult(NamedTuple):
    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()
    """In the order of the request; empty where the request failed as a whole."""


def leave_group(context: CoordinatorContext, group_id: str, leaving: Sequence[LeavingMember]) -> LeaveResult:
    """Handle LeaveGroup: remove the members at once, without waiting for their sessions to expire."""
    if error := context.availability(group_id):
        return LeaveResult(error)
    group = context.groups.get(group_id)
    if group is None:
        return LeaveResult(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leaving))
    if group.state is DEAD:
        return LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return LeaveResult(ErrorCode.NONE, tuple(_leave(context, group, member) for member in leaving))


def _leave(context: CoordinatorContext, group: Group, leaving: LeavingMember) -> ErrorCode:
    """Remove one member, or its unused member id, from the group; return the error code."""
    error, member_id = check_leave(group, leaving)
    if error:
        return error
    member = group.members.get(member_id)
    if member is None:
        rebalance.remove_pending(context, group, member_id)
    else:
        reason = f"member {member_id} left; client reason: {leaving.reason or 'not provided'}"
        log.info("member left", group=group.group_id, member=member_id, reason=leaving.reason)
        rebalance.remove_member(context, group, member, "member left", reason)
    return ErrorCode.NONE
