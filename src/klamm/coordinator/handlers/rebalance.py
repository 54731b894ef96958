"""Rebalances: from the first change of a group to its next generation. Source: GroupCoordinator, DelayedJoin (3.9)."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.decision_journal import MAX_LISTED, RebalanceCause
from klamm.coordinator.group import Group
from klamm.coordinator.member import Member
from klamm.coordinator.records import subscribed_topics
from klamm.coordinator.requests import UNKNOWN_MEMBER, JoinedMember, JoinResult, SyncResult
from klamm.coordinator.states import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE, can_move
from klamm.model.errors import ErrorCode

LATE_JOIN_S: Final = 10.0
"""After so long the journal tells for whom a rebalance waits."""
ANSWERS_AT_ONCE: Final = 500
"""The JoinGroup requests of more members are answered in time slices: one takes 11 microseconds."""
log = structlog.get_logger("groups")


def maybe_prepare(context: CoordinatorContext, group: Group, cause: RebalanceCause) -> None:
    """Start a rebalance, unless one is being prepared already."""
    if can_move(group.state, PREPARING_REBALANCE):
        prepare(context, group, cause)


def prepare(context: CoordinatorContext, group: Group, cause: RebalanceCause) -> None:
    """Start a rebalance and wait for the members to join; an empty group first waits for more members."""
    if group.state is COMPLETING_REBALANCE:
        reset_assignment(context, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    group.stop_sync_timer()
    was_empty = group.state is EMPTY
    group.move(PREPARING_REBALANCE, context.clock.now_ms())
    log.info("rebalance begins", group=group.group_id, generation=group.generation, reason=cause.reason)
    context.journal.rebalance(group, cause)
    if was_empty:
        delay_ms = context.settings.group_initial_rebalance_delay_ms
        group.in_initial_delay = True
        _delay(context, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    else:
        _await_joins(context, group)
        complete_if_all_joined(context, group)


def _delay(context: CoordinatorContext, group: Group, delay_ms: int, remaining_ms: int) -> None:
    """Wait `delay_ms` for more members to join an empty group."""
    loop = asyncio.get_running_loop()
    group.join_timer = loop.call_later(delay_ms / 1000, _on_delay_over, context, group, delay_ms, remaining_ms)


def _on_delay_over(context: CoordinatorContext, group: Group, delay_ms: int, remaining_ms: int) -> None:
    """Wait again if members joined during the delay, else complete the join phase.

    All delays together last at most the rebalance timeout.
    """
    if group.new_member_added and remaining_ms:
        group.new_member_added = False
        delay = min(context.settings.group_initial_rebalance_delay_ms, remaining_ms)
        _delay(context, group, delay, max(remaining_ms - delay_ms, 0))
    else:
        complete(context, group)


def _await_joins(context: CoordinatorContext, group: Group) -> None:
    """Start the timer that ends the join phase after the group's rebalance timeout."""
    loop = asyncio.get_running_loop()
    timeout_s = group.rebalance_timeout_ms / 1000
    group.join_timer = loop.call_later(timeout_s, complete, context, group)
    delay_s = min(LATE_JOIN_S, timeout_s / 2)
    group.late_timer = loop.call_later(delay_s, _report_late_members, context, group)


def _report_late_members(context: CoordinatorContext, group: Group) -> None:
    """Write to the journal which members the rebalance is still waiting for."""
    group.late_timer = None
    missing = (m for m in group.members.values() if not m.awaits_join)
    context.journal.waiting(group, ((m, context.sessions.silence_ms(m)) for m in missing))


def complete_if_all_joined(context: CoordinatorContext, group: Group) -> None:
    """Complete the rebalance that is being prepared once every member has joined."""
    if group.state is PREPARING_REBALANCE and not group.in_initial_delay and group.has_all_members_joined:
        complete(context, group)


def complete(context: CoordinatorContext, group: Group) -> None:
    """End the join phase: the members that joined form the next generation, the others are removed."""
    group.stop_join_timer()
    if group.state is DEAD:
        return
    _remove_late_members(context, group)
    if not group.elect_joined_leader() and group.members:
        log.info(
            "no member joined in time; waiting another rebalance timeout for the static members", group=group.group_id
        )
        _await_joins(context, group)
        return
    group.start_generation(context.clock.now_ms())
    if group.state is EMPTY:
        _read_subscriptions(group)
        log.info("group is empty", group=group.group_id, generation=group.generation)
        context.journal.group_step(group, "empty", generation=group.generation)
        context.spawn(_store_empty(context, group))
    else:
        _answer_joins(context, group)


def _remove_late_members(context: CoordinatorContext, group: Group) -> None:
    """Remove the dynamic members that did not join the rebalance in time."""
    late = [m for m in group.members.values() if not m.awaits_join and not m.is_static]
    if not late:
        return
    log.info(
        "members removed from their group: they did not join the rebalance in time",
        group=group.group_id,
        members=[member.member_id for member in late[:MAX_LISTED]],
        count=len(late),
    )
    why = f"it did not join within {group.rebalance_timeout_ms} ms"
    for member in late:
        group.remove(member.member_id)

    def journal_lines() -> Iterator[None]:
        """Write that each of them was removed."""
        for member in late:
            context.journal.removed(group, member, why)
            yield

    context.spawn(context.slices.run(journal_lines()))


def _read_subscriptions(group: Group) -> None:
    """Read which topics the members of a group subscribe to, at once."""
    for _ in group.read_subscriptions(subscribed_topics):
        pass


def _answer_joins(context: CoordinatorContext, group: Group) -> None:
    """Answer the JoinGroup of each member of the new generation, and wait for their SyncGroup requests."""
    log.info("generation began", group=group.group_id, generation=group.generation, members=len(group.members))
    context.journal.generation(group)
    group.pending_sync.update(dict.fromkeys(group.members))
    loop = asyncio.get_running_loop()
    timeout_s = group.rebalance_timeout_ms / 1000
    group.sync_timer = loop.call_later(timeout_s, _on_sync_timeout, context, group, group.generation)
    members = list(group.members.values())
    if len(members) <= ANSWERS_AT_ONCE:
        _read_subscriptions(group)
        for member in members:
            _answer_join(context, group, member)
    else:
        context.spawn(_answer_joins_in_slices(context, group, members))


def _answer_join(
    context: CoordinatorContext, group: Group, member: Member, for_leader: Sequence[JoinedMember] | None = None
) -> None:
    """Answer the JoinGroup of one member of the new generation; `for_leader` is the leader's list of members."""
    group.answer_join(member, group.join_result(member, for_leader))
    context.sessions.restart(group, member)
    member.is_new = False


async def _answer_joins_in_slices(context: CoordinatorContext, group: Group, members: list[Member]) -> None:
    """Answer the JoinGroup of many members in time slices: of 10,000 it takes 0.1 s.

    Where another rebalance begins meanwhile, the requests of the others wait for that one.
    """
    generation = group.generation
    await context.slices.run(group.read_subscriptions(subscribed_topics))
    for_leader = await context.slices.list_of(group.members_for_leader())
    async for piece in context.slices.over(members):
        if not group.is_in_generation(generation):
            return
        for member in piece:
            if group.members.get(member.member_id) is member and member.awaits_join:
                _answer_join(context, group, member, for_leader)


async def _store_empty(context: CoordinatorContext, group: Group) -> None:
    """Store a group without members; if that fails, the record of the earlier generation stays in the log."""
    generation = group.generation

    def is_current() -> bool:
        """Whether the group is still without members."""
        return group.state is EMPTY and group.generation == generation

    await context.topic.store_group(group, context.groups.partition_of(group.group_id), {}, is_current)


# ---- after the joins


def received_sync(group: Group, member_id: str) -> None:
    """Record that the member has sent SyncGroup in this generation."""
    group.pending_sync.pop(member_id, None)
    if not group.pending_sync:
        group.stop_sync_timer()


def _on_sync_timeout(context: CoordinatorContext, group: Group, generation: int) -> None:
    """Remove the members that joined this generation and sent no SyncGroup in time (KAFKA-12890)."""
    group.sync_timer = None
    is_current = generation == group.generation and group.state in (COMPLETING_REBALANCE, STABLE)
    missing = list(group.pending_sync)
    if not is_current or not missing:
        return
    late = group.members[missing[0]]
    for member_id in missing:
        # a static member that has just joined again waits for its new id to be stored
        group.answer_join(group.members[member_id], JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
        group.remove(member_id)
    prepare(context, group, RebalanceCause("sync timeout", f"no SyncGroup came from {', '.join(missing)}", late))


def set_assignment(context: CoordinatorContext, group: Group, assignments: dict[str, bytes]) -> None:
    """Set each member's part of the leader's assignment, which is stored, and answer waiting SyncGroup requests."""
    for member in group.members.values():
        member.assignment = assignments[member.member_id]
    context.journal.assigned(group)
    _answer_syncs(context, group, ErrorCode.NONE)


def reset_assignment(context: CoordinatorContext, group: Group, error: ErrorCode) -> None:
    """Clear the assignments of all members; waiting SyncGroup requests get the error."""
    for member in group.members.values():
        member.assignment = b""
    _answer_syncs(context, group, error)


def _answer_syncs(context: CoordinatorContext, group: Group, error: ErrorCode) -> None:
    """Answer all waiting SyncGroup requests, with the member's assignment or with the error."""
    names = (None, None) if error else (group.protocol_type, group.protocol_name)
    waiting = [(m, m.sync_reply, m.assignment) for m in group.members.values() if m.sync_reply is not None]

    def answers() -> Iterator[None]:
        """Answer one request after the other with what was decided, whatever has happened to the group since."""
        for member, reply, assignment in waiting:
            if member.sync_reply is reply:  # else it has another answer, such as FENCED_INSTANCE_ID
                member.answer_sync(SyncResult(error, assignment, *names))
                context.sessions.restart(group, member)
            yield

    if len(waiting) <= ANSWERS_AT_ONCE:
        for _ in answers():
            pass
    else:
        context.spawn(context.slices.run(answers()))


# ---- members that go


def remove_member(context: CoordinatorContext, group: Group, member: Member, what: str, reason: str) -> None:
    """Remove a member that left or whose session expired, and rebalance the group."""
    group.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
    member.answer_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
    if group.state is PREPARING_REBALANCE:
        context.journal.removed(group, member, reason)  # else it is the cause of the rebalance that begins
    group.remove(member.member_id)
    maybe_prepare(context, group, RebalanceCause(what, reason, member))
    complete_if_all_joined(context, group)


def remove_pending(context: CoordinatorContext, group: Group, member_id: str) -> None:
    """Remove a member id that no client used to join, and complete a rebalance that waited only for it."""
    group.remove(member_id)
    complete_if_all_joined(context, group)
