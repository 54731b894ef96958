"""What controllers tell brokers, and in which order."""

from itertools import islice

from klamm.controller.control_requests import StopReplicaItem
from klamm.controller.events import ControlledShutdown
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import NO_EPOCH
from klamm.sim.history.history import History
from klamm.sim.history.requests import place_of, queue_of, queued_of
from klamm.sim.history.trace import (
    EventEnded,
    LeaderAndIsrApplied,
    RequestAnswered,
    RequestQueued,
    RequestReceived,
    RequestSent,
)
from klamm.sim.nodes.control_messages import partition_states, stop_states
from klamm.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

_LEADERS_GONE = -2
"""Leader of a partition whose topic is being deleted, in UpdateMetadata."""


def orders_tell_what_was_written(history: History, event: RequestSent) -> str | None:
    """Leader, leader epoch and ISR of an order are what the state znode held in the version that it names."""
    if history.requests.was_compared(event):
        return None
    for p, _, s in partition_states(event.message):
        if s.leader == _LEADERS_GONE:
            continue
        version = s.zk_version if isinstance(event.message, UpdateMetadataRequest) else s.partition_epoch
        told = s.leader, s.leader_epoch, tuple(s.isr)
        lives = [v[version] for v in history.states.incarnations_of(p) if version < len(v)]
        if lives and not any(told == (was.leader, was.leader_epoch, was.isr) for was in lives):
            return f"{p}: broker {event.target} is told {s}, version {version} was {lives[0]}"
    return None


def orders_follow_writes(history: History, event: RequestSent) -> str | None:
    """An order goes out after what it announces was written."""
    if history.requests.was_compared(event):
        return None
    for p, _, s in partition_states(event.message):
        if s.leader == _LEADERS_GONE:
            continue
        version = s.zk_version if isinstance(event.message, UpdateMetadataRequest) else s.partition_epoch
        if not any(version < len(versions) for versions in history.states.incarnations_of(p)):
            return f"{p}: broker {event.target} is told of version {version}, which does not exist"
    return None


def one_order_at_a_time(history: History, event: RequestSent) -> str | None:
    """A broker gets the next order once it has answered the last, or its connection is gone."""
    return f"broker {event.target} has {event.in_flight} orders unanswered" if event.in_flight else None


def orders_keep_their_turn(history: History, event: RequestSent) -> str | None:
    """For each partition orders leave in the order in which they were queued; no end of a replica is left out.

    Unless the order itself, or the one before it, is an end that brings about the same.
    """
    if event.again:
        return None
    for p, sent in queued_of(event.message):
        queue = queue_of(event, p)
        waiting = history.requests.waiting.get(queue, ())
        place = place_of(waiting, sent)
        if place is None:
            return f"{p}: {sent} goes to broker {event.target}; what waits is {list(waiting)}"
        last = history.requests.last_sent.get(queue, sent)
        for queued in islice(waiting, place):
            if queued.is_stop and not (sent.covers(queued) or last.covers(queued)):
                return f"{p}: {sent} goes to broker {event.target} before {queued}"
    return None


def metadata_does_not_go_back(history: History, event: RequestSent) -> str | None:
    """Within a term a broker is told of each partition's versions in their order."""
    if event.again or not isinstance(event.message, UpdateMetadataRequest):
        return None
    for p, topic_id, s in partition_states(event.message):
        told = history.requests.announced_versions.get((event.message.controller_epoch, event.target, p, topic_id), -1)
        if s.leader != _LEADERS_GONE and s.zk_version < told:
            return f"{p}: broker {event.target} is told of version {s.zk_version} after {told}"
    return None


def only_older_stops_are_fenced(history: History, event: RequestAnswered) -> str | None:
    """A broker refuses to stop a replica only in a leader epoch older than the one that the replica is in."""
    if not isinstance(event.message, StopReplicaRequest):
        return None
    codes = {(e.topic_name, e.partition_index): e.error_code for e in event.response.partition_errors}
    for stop in stop_states(event.message):
        _, role = history.replicas.roles.get((stop.partition, event.target), (0, None))
        if codes.get((stop.partition.topic, stop.partition.partition)) != ErrorCode.FENCED_LEADER_EPOCH or role is None:
            continue
        if 0 <= role.leader_epoch <= stop.leader_epoch:
            return f"{stop.partition}: broker {event.target} is in {role.leader_epoch}, and refuses {stop}"
    return None


def accepted_orders_are_carried_out(history: History, event: LeaderAndIsrApplied) -> str | None:
    """A broker that accepts an order hosts the replica from then on, whoever leads it, and be it nobody."""
    if missing := [p for p in event.accepted if p not in event.roles]:
        return f"broker {event.broker} accepts orders for {missing}, and does not host them"
    return None


def first_contact_is_whole(history: History, event: RequestReceived) -> str | None:
    """The first LeaderAndIsr for a registration names all its partitions, and metadata came before."""
    if event.refusal or not isinstance(event.message, LeaderAndIsrRequest):
        return None
    contact = event.broker, event.message.broker_epoch, event.message.controller_epoch
    before = history.requests.accepted.get(contact, ())
    if LeaderAndIsrRequest.__name__ in before:
        return None
    if UpdateMetadataRequest.__name__ not in before:
        return f"broker {event.broker} hears of leaders before it hears of brokers, in epoch {contact[2]}"
    since = max(event.message.broker_epoch, history.controllers.elected_at.get(event.message.controller_epoch, 0))
    told = {p for p, _, _ in partition_states(event.message)}
    for p, created in history.states.created_at.items():
        if (
            created < since
            and event.broker in history.topics.replicas(p)
            and p not in told
            and not _may_be_left_out(history, p, event.broker, since)
        ):
            return f"broker {event.broker} is not told of {p} in its first LeaderAndIsr of epoch {contact[2]}"
    return None


def leaders_are_told(history: History, event: EventEnded) -> str | None:
    """At the end of an event, whoever leads by it, or leads no more, has been told so.

    One that leaves is told where its own departure moved the leader; of other elections it hears no more, as in Kafka.
    One that came while ZooKeeper refused a write is told when the controller tries that again.
    """
    term = event.term
    if term is None or history.controllers.epoch != term.epoch or history.controllers.has_ended(term):
        return None
    if event.is_cut_short or event.has_failed:
        return None  # its session ended in the middle, or the node stopped: the next controller tells
    views = history.broker_views
    for broker, partitions in history.requests.unannounced.items():
        if not partitions:
            continue
        leaves_now = isinstance(event.event, ControlledShutdown) and event.event.broker == broker
        if not views.is_registered_throughout(term, broker, views.handled_since(term, event.event)):
            continue
        if views.is_leaving(term, broker) is not False and not leaves_now:
            continue
        for p, leader_epoch in partitions.items():
            if p.topic in history.topics.znodes and p.topic not in history.topics.deletion_requests:
                return f"{p}: broker {broker} is not told of leader epoch {leader_epoch}, decided in {term}"
    return None


def stops_carry_epochs(history: History, event: RequestQueued) -> str | None:
    """A stop carries the leader epoch that the replica may hold; none only where the partition never had one."""
    if not isinstance(event.item, StopReplicaItem) or event.term.epoch != history.controllers.epoch:
        return None
    began_at = history.controllers.began_at.get((event.term.broker, event.term.incarnation), 0)
    for p, stop in event.item.stops.items():
        created = history.states.created_at.get(p.key)
        if stop.leader_epoch == NO_EPOCH and created is not None and created < began_at:
            return f"{p}: broker {event.target} is to stop it, whatever its leader epoch"
    return None


def _may_be_left_out(history: History, p: TopicPartition, broker: BrokerId, since: int) -> bool:
    """Its topic is to be deleted, or it is on its way there, or came `since` this zxid: what it is told follows."""
    topic = history.topics.znodes.get(p.topic)
    found = topic.partitions.get(p.partition) if topic else None
    if p.topic in history.topics.deletion_requests or found is None or broker in found.adding:
        return True
    return history.assignments.added_at.get((p, broker), 0) > since
