"""A static member that comes back without its member id (KIP-345).

Source: GroupCoordinator.updateStaticMemberAndRebalance (3.9). A stable group whose protocol stays continues as it is,
so a consumer that restarts within its session timeout causes no rebalance.
"""

import asyncio
from typing import NamedTuple

import structlog

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decision_journal import RebalanceCause
from klamm.coordinator.group import Group
from klamm.coordinator.handlers import rebalance
from klamm.coordinator.member import Member
from klamm.coordinator.requests import UNKNOWN_MEMBER, JoinRequest, JoinResult, Protocols
from klamm.coordinator.states import COMPLETING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode

log = structlog.get_logger("groups")


class Before(NamedTuple):
    """The member as it was, in case its new id cannot be stored."""

    member_id: str
    protocols: Protocols
    rebalance_timeout_ms: int
    session_timeout_ms: int
    leader_id: str


def replace(
    context: CoordinatorContext, group: Group, request: JoinRequest, reason: str
) -> "asyncio.Future[JoinResult]":
    """Give a static member a new member id, which fences the user of the old one; returns its JoinGroup response."""
    assert request.instance_id is not None
    before = _before(group, request.instance_id)
    member = group.replace_static(request.instance_id, context.new_member_id(request.instance_id))
    log.info(
        "a static member joined again and has a new member id",
        group=group.group_id,
        old=before.member_id,
        new=member.member_id,
    )
    context.sessions.restart(group, member)
    group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    reply = group.await_join(member)
    cause = RebalanceCause("static member replaced", f"static member {request.instance_id} joined; {reason}", member)
    if group.state is COMPLETING_REBALANCE:
        rebalance.prepare(context, group, cause)
    elif group.state is STABLE and group.next_protocol() != group.protocol_name:
        changed = cause._replace(what="protocol changed", reason=f"the protocol changes: {cause.reason}")
        rebalance.maybe_prepare(context, group, changed)
    elif group.state is STABLE:
        context.journal.replaced(group, member, before.member_id)
        context.spawn(_store_and_answer(context, group, request, member, before))
    return reply


def _before(group: Group, instance_id: str) -> Before:
    """Return the static member's id, protocols, timeouts and leadership before it is replaced."""
    member = group.members[group.static_members[instance_id]]
    timeouts = member.rebalance_timeout_ms, member.session_timeout_ms
    return Before(member.member_id, member.protocols, *timeouts, group.leader_id or "")


async def _store_and_answer(
    context: CoordinatorContext, group: Group, request: JoinRequest, member: Member, before: Before
) -> None:
    """Store the new id, and answer with the current generation."""
    generation, new_member_id = group.generation, member.member_id

    def is_current() -> bool:
        """Whether the group is in the same generation, with the member under its new id."""
        is_same = group.state is STABLE and group.generation == generation
        return is_same and group.members.get(new_member_id) is member

    error = await context.topic.store_group(group, context.groups.partition_of(group.group_id), None, is_current)
    if not is_current():
        return  # a rebalance answers it, or whoever replaced it has
    if error:
        _undo(context, group, member, before, error)
    else:
        group.answer_join(member, _result(group, member, request, before))
        context.sessions.restart(group, member)


def _result(group: Group, member: Member, request: JoinRequest, before: Before) -> JoinResult:
    """The JoinGroup response to a static member that replaced its earlier process, without a rebalance.

    A leader whose version has `skip_assignment` does not assign again.

    The others get the replaced leader's id, which no member has, so that none of them computes an assignment.
    """
    result = group.join_result(member)
    if request.can_skip_assignment:
        return result._replace(skip_assignment=group.leader_id == member.member_id)
    return result._replace(leader=before.leader_id, members=())


def _undo(context: CoordinatorContext, group: Group, member: Member, before: Before, error: ErrorCode) -> None:
    """Give the static member its old member id again, because the new one could not be stored.

    The client joins again.
    """
    assert member.instance_id is not None
    result = JoinResult(
        error, UNKNOWN_MEMBER, group.generation, group.protocol_type, group.protocol_name, before.leader_id
    )
    group.answer_join(member, result)
    group.replace_static(member.instance_id, before.member_id)
    group.update(member, before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms)
    context.sessions.restart(group, member)
