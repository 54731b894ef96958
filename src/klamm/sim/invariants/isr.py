"""In-sync replicas: who may be one, whom leaders count as one, and who has to leave."""

from collections.abc import Iterator

from klamm.controller.events import BrokerChange, ResumeAfterFailure
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import (
    EventEnded,
    LeaderAndIsrApplied,
    ReplicaRole,
    ReplicaRolesChanged,
    StateWritten,
    Term,
)


def isr_is_never_empty(history: History, event: StateWritten) -> str | None:
    """The ISR always has a member, even if the partition has no leader."""
    return None if event.after.isr else f"{event.partition}: empty ISR"


def isr_is_within_replicas(history: History, event: StateWritten) -> str | None:
    """The ISR has only replicas of the partition, each once."""
    isr = event.after.isr
    if not set(isr) <= set(event.replicas) or len(set(isr)) != len(isr):
        return f"{event.partition}: ISR {isr} is not within replicas {event.replicas}"
    return None


def leaders_count_all_members(
    history: History, event: StateWritten | LeaderAndIsrApplied | ReplicaRolesChanged
) -> str | None:
    """A leader counts every ISR member of its leader epoch as in sync, also while AlterPartition is under way."""
    for p, broker, role in _roles(history, event):
        state = event.after if isinstance(event, StateWritten) else _state_of(history, p, role)
        if state is None or role.leader != broker:
            continue
        if (state.leader, state.leader_epoch) != (broker, role.leader_epoch):
            continue
        if uncounted := set(state.isr) - role.members:
            return f"{p}: leader {broker} counts {sorted(role.members)} as in sync, and not {uncounted} of {state}"
    return None


def _roles(
    history: History, event: StateWritten | LeaderAndIsrApplied | ReplicaRolesChanged
) -> Iterator[tuple[TopicPartition, BrokerId, ReplicaRole]]:
    """The roles of the leader's newest process, and the roles that changed in this event."""
    if isinstance(event, StateWritten):
        key = event.partition, event.after.leader
        _, role = history.replicas.roles.get(key, (0, None))
        topic = history.topics.znodes.get(event.partition.topic)
        if role is not None and topic is not None and role.topic_id == topic.id:
            yield *key, role
    else:
        yield from ((p, event.broker, role) for p, role in event.roles.items())


def _state_of(history: History, p: TopicPartition, role: ReplicaRole) -> LeaderAndIsr | None:
    """The newest state of the topic that the replica belongs to, not of another of that name; None where unknown."""
    topic, versions = history.topics.znodes.get(p.topic), history.states.versions.get(p)
    return versions[-1] if versions and topic is not None and topic.id == role.topic_id else None


def refused_isr_changes_wait_for_leader_and_isr(history: History, event: LeaderAndIsrApplied) -> str | None:
    """A leader whose ISR change was refused may propose another one once it has a newer LeaderAndIsr."""
    for p, role in event.roles.items():
        before, after = event.epochs[p]
        if role.is_refused and before < after:
            return f"{p}: leader {event.broker} was refused in leader epoch {before}, and asks for nothing in {after}"
    return None


def new_isr_members_have_followed(history: History, event: StateWritten) -> str | None:
    """A broker enters an ISR only after it followed that leader in that leader epoch."""
    before, after = event.before, event.after
    if before is None or before.leader_epoch != after.leader_epoch:
        return None
    for broker in set(after.isr) - set(before.isr):
        if (event.partition, broker, after.leader, after.leader_epoch) not in history.replicas.followed:
            return f"{event.partition}: {broker} enters ISR {after.isr} without having followed {after.leader} in it"
    return None


def dead_brokers_leave_isrs(history: History, event: EventEnded) -> str | None:
    """After a failover or a change of brokers, no ISR has a dead member beside live ones.

    Where ZooKeeper refused a write, or failed, this is true after the retry.
    """
    looked = event.term is None or isinstance(event.event, BrokerChange | ResumeAfterFailure)
    controllers = history.controllers
    if event.is_cut_short or event.has_failed or event.broker in controllers.refused | controllers.unretried:
        return None
    if not looked:
        return None
    term = history.controllers.active  # where there was none when the event began, it has brought it about
    if term is None or (term.broker, term.incarnation) != (event.broker, event.incarnation):
        return None
    if history.controllers.has_ended(term):
        return None
    for p, versions in history.states.versions.items():
        state = versions[-1]
        if len(state.isr) == 1 or p.topic in history.topics.deletion_requests:
            continue
        if dead := [b for b in state.isr if _must_be_removed(history, event, term, p, b)]:
            return f"{p}: {dead} are not registered, and {term} leaves them in ISR {state.isr}"
    return None


def _must_be_removed(history: History, event: EventEnded, term: Term, p: TopicPartition, member: BrokerId) -> bool:
    """Whether the controller had to remove this member from the ISR, because it was dead when the controller read.

    In an old protocol the leader may add it again afterwards, which the controller cannot prevent.
    """
    views = history.broker_views
    if views.is_registered(term, member, views.handled_since(term, event.event)) is not False:
        return False
    if not history.at.leaders_write_isrs:
        return True
    began_at = history.controllers.began_at[event.broker, event.incarnation]
    is_news = not isinstance(event.event, BrokerChange) or views.was_registered_when_read(term, member)
    return is_news and history.states.isr_entries[p, member] <= began_at
