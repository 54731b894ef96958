"""Whether a request comes from a member of the group. Source: GroupCoordinator.validateCurrentMember (3.9)."""

from klamm.coordinator.group import Group
from klamm.coordinator.requests import UNKNOWN_MEMBER, LeavingMember, SyncRequest
from klamm.coordinator.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Check the member id of a request; returns the error, or NONE.

    FENCED_INSTANCE_ID means that another member has the instance id now, UNKNOWN_MEMBER_ID that the group has no such
    member.
    """
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def check_generation(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Check that a current member sent the request in the current generation; returns the error, or NONE."""
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error := check_member(group, member_id, instance_id):
        return error
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def check_heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Check a Heartbeat; returns the error, or NONE.

    REBALANCE_IN_PROGRESS tells the member to join again; its session is extended all the same.
    """
    if error := check_generation(group, member_id, instance_id, generation):
        return error
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE


def check_sync(group: Group, request: SyncRequest) -> ErrorCode:
    """Check a SyncGroup; NONE where it can be answered now, or once the leader has sent its assignment."""
    if error := check_generation(group, request.member_id, request.instance_id, request.generation):
        return error
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE if group.state in (COMPLETING_REBALANCE, STABLE) else ErrorCode.UNKNOWN_MEMBER_ID


def check_leave(group: Group, leaving: LeavingMember) -> tuple[ErrorCode, str]:
    """Check a member that leaves: the error, and the member id to remove.

    An instance id without a member id names a static member.
    """
    if leaving.member_id == UNKNOWN_MEMBER:
        member_id = group.static_members.get(leaving.instance_id or "")
        return (ErrorCode.UNKNOWN_MEMBER_ID, "") if member_id is None else (ErrorCode.NONE, member_id)
    if leaving.member_id in group.pending_members:
        return ErrorCode.NONE, leaving.member_id
    return check_member(group, leaving.member_id, leaving.instance_id), leaving.member_id


def check_transactional_commit(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Check a TxnOffsetCommit; returns the error, or NONE.

    Producers of older versions send neither member nor generation.
    """
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    is_anonymous = generation < 0 and member_id == UNKNOWN_MEMBER and instance_id is None
    if is_anonymous or (generation < 0 and group.state is EMPTY):
        return ErrorCode.NONE
    return check_generation(group, member_id, instance_id, generation)


def check_offset_commit(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Check an OffsetCommit; returns the error, or NONE.

    A client that only stores offsets sends no generation; that is valid while the group has no members.
    """
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id != UNKNOWN_MEMBER or instance_id is not None:
        if error := check_generation(group, member_id, instance_id, generation):
            return error
    elif group.state is not EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is COMPLETING_REBALANCE else ErrorCode.NONE
