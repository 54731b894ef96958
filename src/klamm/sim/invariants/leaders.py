"""Who leads a partition, and in which leader epoch."""

from collections.abc import Iterable
from uuid import UUID

from klamm.model.ids import TopicPartition
from klamm.sim.history import History
from klamm.sim.messages_told import states_told
from klamm.sim.trace import OrderSent, StateWritten


def leader_epoch_is_monotone(history: History, event: StateWritten) -> str | None:
    """Another leader, none among them, means a higher leader epoch; it never falls."""
    before, after = event.before, event.after
    if before is not None and after.leader_epoch < before.leader_epoch:
        return f"{event.partition}: leader epoch {before.leader_epoch} fell to {after.leader_epoch}"
    if before is not None and after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        return f"{event.partition}: leader {before.leader} became {after.leader} within epoch {after.leader_epoch}"
    return None


def one_leader_per_epoch(history: History, event: StateWritten | OrderSent) -> str | None:
    """Nobody ever hears of two leaders of one leader epoch."""
    for p, topic_id, leader, epoch in _leaders_named(history, event):
        known = history.leaders.get((p, topic_id, epoch), leader)
        if leader != known and leader >= 0:
            return f"{p}: leaders {known} and {leader} in leader epoch {epoch}"
    return None


def _leaders_named(
    history: History, event: StateWritten | OrderSent
) -> Iterable[tuple[TopicPartition, UUID | None, int, int]]:
    if isinstance(event, StateWritten):
        topic = history.topics.get(event.partition.topic)
        yield event.partition, topic.id if topic else None, event.after.leader, event.after.leader_epoch
    elif not event.again:
        for p, topic_id, state in states_told(event.message):
            topic = history.topics.get(p.topic)
            yield p, topic_id or (topic.id if topic else None), state.leader, state.leader_epoch


def leader_is_in_sync(history: History, event: StateWritten) -> str | None:
    """A leader is in the ISR."""
    state = event.after
    if state.has_leader and state.leader not in state.isr:
        return f"{event.partition}: leader {state.leader} is not in ISR {state.isr}"
    return None


def elections_are_clean(history: History, event: StateWritten) -> str | None:
    """A new leader was in the ISR before."""
    leader = event.after.leader
    if event.before is None or not event.after.has_leader or leader == event.before.leader:
        return None
    if leader not in event.before.isr:
        return f"{event.partition}: new leader {leader} was not in ISR {event.before.isr}"
    return None


def partitions_begin_at_zero(history: History, event: StateWritten) -> str | None:
    """A new partition has leader epoch 0, an ISR in the order of its replicas, and its first as leader."""
    if event.before is not None:
        return None
    state = event.after
    in_order = tuple(r for r in event.replicas if r in state.isr)
    if state.leader_epoch != 0 or state.isr != in_order or state.leader != in_order[0]:
        return f"{event.partition}: begins as {state} with replicas {event.replicas}"
    return None
