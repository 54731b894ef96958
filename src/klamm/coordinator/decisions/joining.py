"""What a JoinGroup means for a group. Source: GroupCoordinator.handleJoinGroup (3.9)."""

from enum import StrEnum
from typing import NamedTuple

from klamm.coordinator.decisions.members import check_member
from klamm.coordinator.group import Group
from klamm.coordinator.requests import UNKNOWN_MEMBER, JoinRequest
from klamm.coordinator.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode


class JoinStep(StrEnum):
    REFUSE = "refuse"
    GIVE_MEMBER_ID = "give a member id"  # the client joins again with it
    ADD = "add the member and rebalance"
    REPLACE_STATIC = "replace a static member"
    UPDATE = "update the member and rebalance"
    REPEAT = "repeat the current generation"


class JoinDecision(NamedTuple):
    step: JoinStep
    error: ErrorCode = ErrorCode.NONE


def decide_join(group: Group, request: JoinRequest, max_size: int) -> JoinDecision:
    """Decide the next step for a JoinGroup request, in Kafka's order of checks."""
    if not has_room(group, request.member_id or group.static_members.get(request.instance_id or "", ""), max_size):
        return _refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if group.state is DEAD:
        return _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not group.supports(request.protocol_type, request.protocols):
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id == UNKNOWN_MEMBER:
        return _decide_new_member(group, request)
    if request.member_id in group.pending_members:
        # Kafka's coordinator fails here: a static member is never asked to come back with a member id
        is_static = request.instance_id is not None
        return _refuse(ErrorCode.UNKNOWN_SERVER_ERROR) if is_static else JoinDecision(JoinStep.ADD)
    if error := check_member(group, request.member_id, request.instance_id):
        return _refuse(error)
    return _decide_known_member(group, request)


def has_room(group: Group, member_id: str, max_size: int) -> bool:
    """Whether `group.max.size` allows the member to join, or it is a member already.

    A static member that comes back without its member id is one, and takes no other's place.
    """
    if group.state in (EMPTY, DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING_REBALANCE:
        return (member is not None and member.awaits_join) or group.awaiting_join < max_size
    return member is not None or len(group.members) < max_size


def _decide_new_member(group: Group, request: JoinRequest) -> JoinDecision:
    """Decide about a join without a member id.

    A known static member is replaced, a new static one is added. A dynamic member is added, or first gets a member id
    where the request's version requires it.
    """
    if request.instance_id is not None:
        is_known = request.instance_id in group.static_members
        return JoinDecision(JoinStep.REPLACE_STATIC if is_known else JoinStep.ADD)
    return JoinDecision(JoinStep.GIVE_MEMBER_ID if request.requires_known_member_id else JoinStep.ADD)


def _decide_known_member(group: Group, request: JoinRequest) -> JoinDecision:
    """Decide about a member that joins again.

    A rebalance is under way or starts when its protocols changed or the leader of a stable group joins; otherwise the
    current generation is repeated.
    """
    is_unchanged = group.members[request.member_id].protocols == request.protocols
    if group.state is PREPARING_REBALANCE:
        return JoinDecision(JoinStep.UPDATE)
    if group.state is COMPLETING_REBALANCE:
        return JoinDecision(JoinStep.REPEAT if is_unchanged else JoinStep.UPDATE)
    assert group.state is STABLE  # only these states have members
    is_leader = group.leader_id == request.member_id
    return JoinDecision(JoinStep.REPEAT if is_unchanged and not is_leader else JoinStep.UPDATE)


def _refuse(error: ErrorCode) -> JoinDecision:
    """Return the decision to refuse the join with this error."""
    return JoinDecision(JoinStep.REFUSE, error)
