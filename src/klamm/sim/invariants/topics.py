"""Topics: their ids, their deletion, and what a broker may be told to destroy."""

from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.sim.history.history import History
from klamm.sim.history.requests import queue_of
from klamm.sim.history.trace import RequestSent, StateWritten, TopicWritten, TransactionCommitted
from klamm.sim.invariants.views import Cluster, acting
from klamm.sim.nodes.control_messages import partition_states, stop_states
from klamm.sim.zookeeper.tree import DeleteChange
from klamm.zk import znodes


def only_replicas_pending_deletion_are_deleted(history: History, event: RequestSent) -> str | None:
    """A replica is deleted only where its topic is going or gone, or where it belongs to its partition no more."""
    if event.again or event.message.controller_epoch != history.controllers.epoch:
        return None  # brokers refuse an older controller, which cannot know better
    for stop in stop_states(event.message):
        if stop.delete and (why := _why_replica_must_stay(history, stop.partition, event)):
            return f"{stop.partition}: broker {event.target} is told to delete it, although {why}"
    return None


def _why_replica_must_stay(history: History, p: TopicPartition, event: RequestSent) -> str | None:
    """Why the replica must not be deleted by this request; None if it may be."""
    broker, broker_epoch = event.target, event.message.broker_epoch
    topic = history.topics.znodes.get(p.topic)
    found = topic.partitions.get(p.partition) if topic else None
    if found is None or p.topic in history.topics.deletion_requests or broker not in found.replicas:
        return None
    holds_another = (p, broker, broker_epoch) in history.requests.inconsistent_ids
    heard_of_none = (p, broker, broker_epoch) not in history.requests.announced
    if (holds_another or heard_of_none) and any(
        c.topic == p.topic and p.partition in c.partitions for c in history.topics.pending_deletions[broker].values()
    ):
        return None  # its log can only be that of an earlier topic, and a record says that this one was deleted
    if p in history.assignments.of_deleted and not any(told[:2] == (p, broker) for told in history.requests.announced):
        return None  # never told of this topic, it can only hold the one of this name that somebody deleted by hand
    states = history.states.versions.get(p)
    isr = states[-1].isr if states else ()
    if broker in found.removing and set(found.target) <= set(isr):
        return None
    came_back = history.assignments.added_at.get((p, broker), 0) > history.controllers.elected_at.get(
        event.message.controller_epoch, 0
    )
    if broker in found.adding and broker not in isr:
        return None
    if (broker in found.adding or came_back) and _leader_and_isr_follows(history, p, event):
        return None  # dropped, and wanted again before it heard of that: the order to begin anew waits behind this one
    return f"it is one of {found}, and nobody asked for the topic's deletion"


def _leader_and_isr_follows(history: History, p: TopicPartition, event: RequestSent) -> bool:
    """Whether a LeaderAndIsr that creates the replica again is queued behind this request."""
    return any(not order.is_stop for order in history.requests.waiting.get(queue_of(event, p), ()))


def topics_go_after_their_replicas(history: History, event: TopicWritten) -> str | None:
    """A topic's znode goes once every replica on a registered broker was deleted."""
    if event.before is None or event.after is not None or event.session not in history.controllers.sessions:
        return None
    if event.topic not in history.topics.deletion_requests:
        return f"{event.topic} is deleted, which nobody asked for"
    term, views = history.controllers.active, history.broker_views
    for number, assignment in event.before.partitions.items():
        p = TopicPartition(event.topic, number)
        if history.states.first_at.get(p, -1) < event.before.czxid:
            continue  # it never came up: nobody was told to make a replica
        missing = [b for b in assignment.replicas if (p, b) not in history.requests.deleted]
        left = [b for b in missing if views.is_registered_throughout(term, b)]
        if left:
            return f"{p} is deleted, whose replicas on {left} were not: nobody answered for them"
    return None


def requests_go_after_topics(history: History, event: TransactionCommitted) -> str | None:
    """The request to delete a topic is taken away when the topic is gone; one made anew since is not what was meant."""
    if event.session not in history.controllers.sessions:
        return None
    gone = {c.path for c in event.changes if isinstance(c, DeleteChange)}
    for path in gone:
        topic = path.removeprefix(znodes.DELETE_TOPICS + "/")
        seen = None if topic == path or znodes.topic_path(topic) in gone else history.topics.znodes.get(topic)
        if seen is None or seen.czxid > history.topics.deletion_requests[topic]:
            continue
        if history.controllers.active is None or history.controllers.active.settings.delete_topic_enable:
            return f"{path} is removed, and the topic is there"
    return None


def topic_ids_are_never_reused(history: History, event: TopicWritten) -> str | None:
    """A topic that is created has an id that no topic had before."""
    if event.before is None and event.after is not None and event.after.id in history.topics.ids:
        return f"{event.topic} is created with the id of {history.topics.ids[event.after.id]}"
    return None


def topic_ids_are_immutable(history: History, event: TopicWritten | RequestSent) -> str | None:
    """A topic keeps its id for life, in its znode and in every order."""
    if isinstance(event, TopicWritten):
        if event.session not in history.controllers.sessions:
            return None  # an operator may write what he likes
        if event.before and event.after and event.before.id not in (None, event.after.id):
            return f"{event.topic}: id {event.before.id} became {event.after.id}"
        return None
    if event.again:
        return None
    for p, topic_id, _ in partition_states(event.message):
        if topic_id is not None and history.topics.ids.get(topic_id) != p.topic:
            return f"{p}: broker {event.target} is told of id {topic_id}, which it never had"
    return None


def the_dying_do_not_grow(history: History, event: StateWritten) -> str | None:
    """No partition comes online that was added after its topic's deletion began.

    A topic that had never been online may be deleted with the partitions that the controller finds.
    """
    p, term = event.partition, history.controllers.active
    marked = history.topics.deletion_requests.get(p.topic)
    if event.before is not None or marked is None or term is None:
        return None
    known = history.controllers.deletion_scans.get(term.epoch, 0) > marked
    had = history.topics.partitions_to_delete.get(p.topic)
    if known and had is not None and p.partition not in had:
        return f"{p} comes up, added after the deletion of its topic was asked for"
    return None


def no_topic_is_resurrected(cluster: Cluster) -> str | None:
    """No broker hosts a replica of a deleted topic, or of an earlier topic of the same name."""
    topics = cluster.history.topics.znodes
    for broker in cluster.running:
        for p in broker.replicas.hosted:
            topic = topics.get(p.topic)
            held = broker.replicas.logs.get(p)
            if topic is None:
                return f"broker {broker.number} hosts {p}, whose topic is gone"
            if topic.id is not None and held not in (None, ZERO_ID, topic.id):
                return f"broker {broker.number} hosts {p} with id {held}, the topic's is {topic.id}"
    return None


def deletions_finish(cluster: Cluster) -> str | None:
    """No request to delete a topic is left; but while orders carry no topic ids, gone brokers are waited for."""
    left = [
        t
        for t in cluster.history.topics.deletion_requests
        if t in cluster.history.topics.znodes and not _waits_for_the_gone(cluster, t)
    ]
    return f"still to be deleted: {left}" if left else None


def _waits_for_the_gone(cluster: Cluster, topic: str) -> bool:
    term = next(iter(acting(cluster)), None)
    if term is None or term.settings.requests_carry_topic_ids:
        return False
    assigned, running = cluster.history.topics.znodes[topic].partitions.values(), {b.number for b in cluster.running}
    return any(b not in running for a in assigned for b in a.replicas)  # a registration may be somebody's nonsense
