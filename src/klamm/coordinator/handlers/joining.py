"""JoinGroup. Source: GroupCoordinator.handleJoinGroup (3.9)."""

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decision_journal import RebalanceCause
from klamm.coordinator.decisions.joining import JoinDecision, JoinStep, decide_join
from klamm.coordinator.group import Group
from klamm.coordinator.handlers import rebalance, static_members
from klamm.coordinator.member import Member
from klamm.coordinator.requests import UNKNOWN_MEMBER, JoinRequest, JoinResult
from klamm.coordinator.sessions import NEW_MEMBER_TIMEOUT_MS
from klamm.coordinator.states import COMPLETING_REBALANCE, PREPARING_REBALANCE
from klamm.model.errors import ErrorCode


async def join_group(context: CoordinatorContext, request: JoinRequest) -> JoinResult:
    """Handle JoinGroup: the answer comes when the rebalance is complete, or at once where none is needed."""
    if error := _check_request(context, request):
        return JoinResult(error, request.member_id)
    group = context.groups.get(request.group_id)
    if group is None:
        if request.member_id != UNKNOWN_MEMBER:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        group = context.groups.add(Group(request.group_id, context.clock.now_ms()))
    decision = decide_join(group, request, context.settings.group_max_size)
    reason = f"client reason: {request.reason or 'not provided'}"
    match decision.step:
        case JoinStep.REFUSE:
            return _refuse(context, group, request, decision)
        case JoinStep.GIVE_MEMBER_ID:
            return _give_member_id(context, group, request)
        case JoinStep.REPEAT:
            return _repeat(group, group.members[request.member_id])
        case JoinStep.ADD:
            member = _add(context, group, request)
            reply = group.await_join(member)
            rebalance.maybe_prepare(context, group, _cause("member joined", member, reason))
        case JoinStep.UPDATE:
            member = group.members[request.member_id]
            group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
            reply = group.await_join(member)
            rebalance.maybe_prepare(context, group, _cause("member joined again", member, reason))
        case JoinStep.REPLACE_STATIC:
            reply = static_members.replace(context, group, request, reason)
    rebalance.complete_if_all_joined(context, group)
    return await reply


def _cause(what: str, member: Member, reason: str) -> RebalanceCause:
    """The cause of a rebalance that a member's JoinGroup brings about."""
    return RebalanceCause(what, f"{what}: {member.member_id}; {reason}", member)


def _check_request(context: CoordinatorContext, request: JoinRequest) -> ErrorCode:
    """Return the error of a join that does not depend on the group's state, or NONE.

    That is the coordinator's availability, or INVALID_SESSION_TIMEOUT.
    """
    if error := context.availability(request.group_id):
        return error
    settings = context.settings
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    is_valid = shortest <= request.session_timeout_ms <= longest
    return ErrorCode.NONE if is_valid else ErrorCode.INVALID_SESSION_TIMEOUT


def _refuse(context: CoordinatorContext, group: Group, request: JoinRequest, decision: JoinDecision) -> JoinResult:
    """Return the error of a refused join.

    Where the group is full, the member is also removed from it, so that the rebalance does not wait for it.
    """
    if decision.error is not ErrorCode.GROUP_MAX_SIZE_REACHED:
        return JoinResult(decision.error, request.member_id)
    group.remove(request.member_id)
    rebalance.complete_if_all_joined(context, group)
    return JoinResult(decision.error, UNKNOWN_MEMBER)


def _give_member_id(context: CoordinatorContext, group: Group, request: JoinRequest) -> JoinResult:
    """Return MEMBER_ID_REQUIRED with a new member id, which is valid for the session timeout."""
    member_id = context.new_member_id(request.client_id)
    context.sessions.await_pending(group, member_id, request.session_timeout_ms)
    return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _repeat(group: Group, member: Member) -> JoinResult:
    """Answer with the current generation again: the first answer was lost, or nothing changed for this member."""
    result = group.join_result(member)
    return result if group.state is COMPLETING_REBALANCE else result._replace(members=())


def _add(context: CoordinatorContext, group: Group, request: JoinRequest) -> Member:
    """Create a member from the request, add it to the group, start its session, and return it."""
    member_id = request.member_id or context.new_member_id(request.instance_id or request.client_id)
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        request.protocols,
        is_new=True,
    )
    if group.state is PREPARING_REBALANCE and group.generation == 0:
        group.new_member_added = True
    group.add(member)
    context.sessions.restart(group, member, NEW_MEMBER_TIMEOUT_MS)
    return member
