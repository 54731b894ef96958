"""What controllers tell brokers, and in which order."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

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


def _sent_states(history: History, event: RequestSent) -> Iterator[tuple[TopicPartition, int, Any]]:
    """Each state of a control request that has not been compared yet, with its partition and the version it names."""
    if history.requests.was_compared(event):
        return
    for p, _, s in partition_states(event.message):
        if s.leader != _LEADERS_GONE:
            yield p, s.zk_version if isinstance(event.message, UpdateMetadataRequest) else s.partition_epoch, s


def requests_carry_written_states(history: History, event: RequestSent) -> str | None:
    """Leader, leader epoch and ISR in a control request were stored in the znode version that it names."""
    for p, version, s in _sent_states(history, event):
        sent_state = s.leader, s.leader_epoch, tuple(s.isr)
        lives = [v[version] for v in history.states.incarnations_of(p) if version < len(v)]
        if lives and not any(sent_state == (was.leader, was.leader_epoch, was.isr) for was in lives):
            return f"{p}: broker {event.target} is sent {s}, but version {version} was {lives[0]}"
    return None


def requests_follow_writes(history: History, event: RequestSent) -> str | None:
    """A control request is sent after the state in it was written to ZooKeeper."""
    for p, version, _ in _sent_states(history, event):
        if not any(version < len(versions) for versions in history.states.incarnations_of(p)):
            return f"{p}: broker {event.target} is sent version {version}, which does not exist"
    return None


def one_request_per_broker_at_a_time(history: History, event: RequestSent) -> str | None:
    """A broker gets the next control request only after it answered the last, or its connection was lost."""
    return f"broker {event.target} has {event.in_flight} control requests unanswered" if event.in_flight else None


def requests_keep_their_order(history: History, event: RequestSent) -> str | None:
    """Control requests about a partition are sent in the order in which they were queued, and no StopReplica is lost.

    Except where the request itself, or the one before it, is a StopReplica with the same effect.
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
    """Within a term, the versions of a partition's state that a broker gets never decrease."""
    if event.again or not isinstance(event.message, UpdateMetadataRequest):
        return None
    for p, topic_id, s in partition_states(event.message):
        sent_state = history.requests.announced_versions.get(
            (event.message.controller_epoch, event.target, p, topic_id), -1
        )
        if s.leader != _LEADERS_GONE and s.zk_version < sent_state:
            return f"{p}: broker {event.target} is sent version {s.zk_version} after {sent_state}"
    return None


def only_outdated_stop_replica_is_fenced(history: History, event: RequestAnswered) -> str | None:
    """A broker fences StopReplica only if its leader epoch is older than that of the replica."""
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


def accepted_leader_and_isr_is_applied(history: History, event: LeaderAndIsrApplied) -> str | None:
    """A broker that accepts LeaderAndIsr hosts the replica from then on, whoever leads it."""
    if missing := [p for p in event.accepted if p not in event.roles]:
        return f"broker {event.broker} accepts LeaderAndIsr for {missing}, and does not host them"
    return None


def first_leader_and_isr_is_complete(history: History, event: RequestReceived) -> str | None:
    """The first LeaderAndIsr to a registered broker has all of its partitions, and UpdateMetadata came before it."""
    if event.refusal or not isinstance(event.message, LeaderAndIsrRequest):
        return None
    contact = event.broker, event.message.broker_epoch, event.message.controller_epoch
    before = history.requests.accepted.get(contact, ())
    if LeaderAndIsrRequest.__name__ in before:
        return None
    if UpdateMetadataRequest.__name__ not in before:
        return f"broker {event.broker} gets LeaderAndIsr before UpdateMetadata, in epoch {contact[2]}"
    since = max(event.message.broker_epoch, history.controllers.elected_at.get(event.message.controller_epoch, 0))
    sent_state = {p for p, _, _ in partition_states(event.message)}
    for p, created in history.states.created_at.items():
        if (
            created < since
            and event.broker in history.topics.replicas(p)
            and p not in sent_state
            and not _may_be_left_out(history, p, event.broker, since)
        ):
            return f"broker {event.broker} is not sent {p} in its first LeaderAndIsr of epoch {contact[2]}"
    return None


def old_and_new_leaders_get_requests(history: History, event: EventEnded) -> str | None:
    """At the end of an event, the old and the new leaders of the partitions it changed have been sent the change.

    A broker in controlled shutdown is only sent the elections that its own shutdown caused, as in Kafka. A broker that
    came while ZooKeeper refused a write gets its requests when the controller retries. Once `/controller` is gone the
    next controller sends them: as in Kafka this one handles queued events until it learns that its session has ended.
    An old leader whose log directory failed has stopped by itself: as in Kafka an election is sent to online replicas.
    """
    term, controllers = event.term, history.controllers
    if term is None or controllers.epoch != term.epoch or controllers.has_ended(term):
        return None
    if event.is_cut_short or event.has_failed or not controllers.has_controller_znode:
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
            if views.has_failed(term, p, broker) is not False:
                continue
            if p.topic in history.topics.znodes and p.topic not in history.topics.deletion_requests:
                return f"{p}: broker {broker} is not sent leader epoch {leader_epoch}, decided in {term}"
    return None


def stop_replica_carries_the_leader_epoch(history: History, event: RequestQueued) -> str | None:
    """StopReplica carries a leader epoch that the replica may have; none only if the partition never had one."""
    if not isinstance(event.item, StopReplicaItem) or event.term.epoch != history.controllers.epoch:
        return None
    began_at = history.controllers.began_at.get((event.term.broker, event.term.incarnation), 0)
    for p, stop in event.item.stops.items():
        created = history.states.created_at.get(p.key)
        if stop.leader_epoch == NO_EPOCH and created is not None and created < began_at:
            return f"{p}: broker {event.target} is sent StopReplica without a leader epoch"
    return None


def _may_be_left_out(history: History, p: TopicPartition, broker: BrokerId, since: int) -> bool:
    """Whether the request may omit the partition.

    Its topic is to be deleted, or it is being reassigned to the broker, or came after zxid `since`: another request
    follows.
    """
    topic = history.topics.znodes.get(p.topic)
    found = topic.partitions.get(p.partition) if topic else None
    if p.topic in history.topics.deletion_requests or found is None or broker in found.adding:
        return True
    return history.assignments.added_at.get((p, broker), 0) > since
