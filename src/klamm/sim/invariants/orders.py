"""What controllers tell brokers."""

from klamm.model.ids import TopicPartition
from klamm.sim.history import History
from klamm.sim.trace import OrderReceived
from klamm.wire.messages import LeaderAndIsrRequest


def orders_tell_what_was_written(history: History, event: OrderReceived) -> str | None:
    """Leader, leader epoch and ISR of an order were in the znode at the version it names, before it was sent."""
    if not isinstance(event.message, LeaderAndIsrRequest):
        return None
    for topic in event.message.topic_states:
        for s in topic.partition_states:
            p = TopicPartition(topic.topic_name, s.partition_index)
            versions = history.states.get(p, [])
            if s.partition_epoch >= len(versions):
                return f"{p}: broker {event.broker} is told of version {s.partition_epoch}, which does not exist"
            was = versions[s.partition_epoch]
            if (s.leader, s.leader_epoch, tuple(s.isr)) != (was.leader, was.leader_epoch, was.isr):
                return f"{p}: broker {event.broker} is told {s}, version {s.partition_epoch} was {was}"
    return None
