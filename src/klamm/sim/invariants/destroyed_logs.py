"""What brokers destroy when a controller tells them to: judged where it happens, by topic id and leader epochs.

StopReplica names topics, not ids, and is fenced by the epochs that the broker knows by then: of its controller, of its
own registration, and of the leader (`ReplicaManager.stopReplicas`, 3.9). So a late request may destroy what its sender
did not mean; it may not destroy a log that counts.
"""

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.sim.history.history import History
from klamm.sim.history.trace import LogsDestroyed
from klamm.sim.invariants.reassignment import isrs_that_were_decided_on


def only_unneeded_logs_are_destroyed(history: History, event: LogsDestroyed) -> str | None:
    """A broker deletes only logs of deleted topics, and of replicas that a reassignment removed from it."""
    for p, held in event.logs.items():
        topic = history.topics.znodes.get(p.topic)
        found = topic.partitions.get(p.partition) if topic else None
        if topic is None or found is None or p.topic in history.topics.deletion_requests:
            continue
        if held not in (ZERO_ID, topic.id):
            continue  # an earlier topic's
        if why := _why_it_counts(history, event, p, found):
            return f"{p}: broker {event.broker} destroys the log of topic {held}, although {why}"
    return None


def _why_it_counts(history: History, event: LogsDestroyed, p: TopicPartition, found: ReplicaAssignment) -> str | None:
    """Why the cluster still needs the log; None if it does not."""
    broker, told_in = event.broker, history.replicas.told_epoch(p, event.broker)
    if broker not in found.replicas or told_in < 0:
        return None  # what it was never told of under this topic, somebody else left there
    if told_in <= history.assignments.dropped_in.get((p, broker), -1):
        return None  # a reassignment removed it; a replica assigned there since then is a new one
    state = history.states.newest(p)
    if state is not None and broker in state.isr:
        return f"it is in ISR {state.isr} of leader epoch {state.leader_epoch}, and was told so in {told_in}"
    if history.topics.may_have_earlier_log(p, broker):
        return None  # it may be the earlier topic's; outside of the ISR it is copied again
    if _is_done_with(history, event, p, broker):
        return None
    return f"it is one of {found}, and was told so in leader epoch {told_in}"


def _is_done_with(history: History, event: LogsDestroyed, p: TopicPartition, broker: BrokerId) -> bool:
    """Whether a reassignment no longer needs this replica, now or in the term of the controller that sent the request.

    The next controller may have cancelled the reassignment, and this broker may not know that controller yet.
    """
    controllers, found = history.controllers, history.assignments
    since = (
        history.at.zxid
        if event.controller_epoch == controllers.epoch
        else controllers.elected_at[event.controller_epoch]
    )
    return any(
        broker in assignment.removing and set(assignment.target) <= set(isr)
        for assignment in found.since(p, since)
        for isr in isrs_that_were_decided_on(history, p, len(assignment.removing))
    )
