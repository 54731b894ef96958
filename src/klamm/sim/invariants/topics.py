"""Topics: their ids, and their deletion."""

from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.sim.history.history import History
from klamm.sim.history.trace import RequestSent, StateWritten, TopicWritten, TransactionCommitted
from klamm.sim.invariants.views import Cluster, acting, newest
from klamm.sim.nodes.control_messages import partition_states
from klamm.sim.zookeeper.tree import DeleteChange
from klamm.zk import znodes


def topics_are_deleted_after_their_replicas(history: History, event: TopicWritten) -> str | None:
    """A topic's znode is deleted only after every replica on a registered broker was deleted."""
    if event.before is None or event.after is not None or event.session not in history.controllers.sessions:
        return None
    if event.topic not in history.topics.deletion_requests:
        return f"{event.topic} is deleted, which was not requested"
    term, views = history.controllers.active, history.broker_views
    for number, assignment in event.before.partitions.items():
        p = TopicPartition(event.topic, number)
        if history.states.first_at.get(p, -1) < event.before.czxid:
            continue  # it never came up: nobody was told to make a replica
        missing = [b for b in assignment.replicas if (p, b) not in history.requests.deleted]
        left = [b for b in missing if views.is_registered_throughout(term, b)]
        if left:
            return f"{p} is deleted, whose replicas on {left} were not: no StopReplica response confirms it"
    return None


def deletion_requests_are_removed_after_topics(history: History, event: TransactionCommitted) -> str | None:
    """A request to delete a topic is removed only when the topic is gone.

    A later request for it is not removed with it.
    """
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
    """A topic that is created, or gets an id later, has an id that no topic had before."""
    is_new = event.after is not None and (event.before is None or event.before.id != event.after.id)
    if is_new and event.after is not None and event.after.id in history.topics.ids:
        return f"{event.topic} gets the id of {history.topics.ids[event.after.id]}"
    return None


def topic_ids_are_immutable(history: History, event: TopicWritten | RequestSent) -> str | None:
    """A topic never changes its id, neither in its znode nor in control requests."""
    if isinstance(event, TopicWritten):
        if event.session not in history.controllers.sessions:
            return None  # an operator may write what he likes
        if event.before and event.after and event.before.id not in (None, event.after.id):
            return f"{event.topic}: id {event.before.id} became {event.after.id}"
        return None
    if history.requests.was_compared(event):
        return None
    for p, topic_id, _ in partition_states(event.message):
        if topic_id is not None and history.topics.ids.get(topic_id) != p.topic:
            return f"{p}: broker {event.target} is sent topic id {topic_id}, which the topic never had"
    return None


def topics_being_deleted_get_no_partitions(history: History, event: StateWritten) -> str | None:
    """No partition comes online that was added after its topic's deletion began.

    A topic that had never been online may be deleted with the partitions that the controller finds. A controller whose
    delete.topic.enable is false deletes no topic: it removes the request (processTopicDeletion), or repeats that.
    """
    p, term = event.partition, history.controllers.active
    marked = history.topics.deletion_requests.get(p.topic)
    if event.before is not None or marked is None or term is None or not term.settings.delete_topic_enable:
        return None
    known = history.controllers.deletion_scans.get(term.epoch, 0) > marked
    had = history.topics.partitions_to_delete.get(p.topic)
    if known and had is not None and p.partition not in had:
        return f"{p} comes up, added after the deletion of its topic was asked for"
    return None


def deleted_topics_have_no_replicas(cluster: Cluster) -> str | None:
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
    """No request to delete a topic is left, except where it waits for brokers that are not there.

    That is so because requests lack topic ids, or because a reassignment of the topic is not complete.
    """
    left = [
        t
        for t in cluster.history.topics.deletion_requests
        if t in cluster.history.topics.znodes and not (_waits_for_the_gone(cluster, t) or _waits_for_a_move(cluster, t))
    ]
    return f"still to be deleted: {left}" if left else None


def pending_deletions_finish(cluster: Cluster) -> str | None:
    """No record of replicas to be deleted is left for a broker that runs and has no failed log directory.

    Where the broker was assigned the replicas again, the record ends when it registers next.
    """
    topics = cluster.history.topics
    for broker in [broker for broker in cluster.running if not broker.replicas.failed]:
        for record in topics.pending_deletions.get(broker.number, {}).values():
            is_there = topics.id_of(record.topic) == record.topic_id
            replicas = [topics.replicas(TopicPartition(record.topic, n)) for n in record.partitions]
            if not is_there or not all(broker.number in each for each in replicas):
                return f"broker {broker.number} runs, and has not deleted {record}"
    return None


def _waits_for_the_gone(cluster: Cluster, topic: str) -> bool:
    """Whether the topic's deletion waits for dead brokers, because control requests have no topic ids."""
    term = next(iter(acting(cluster)), None)
    if term is None or term.settings.requests_carry_topic_ids:
        return False
    assigned, running = cluster.history.topics.znodes[topic].partitions.values(), {b.number for b in cluster.running}
    return any(b not in running for a in assigned for b in a.replicas)  # a registration may be somebody's nonsense


def _waits_for_a_move(cluster: Cluster, topic: str) -> bool:
    """Whether the topic's deletion waits for a reassignment, and that for an ISR member that is not registered.

    As in Kafka no controller takes a member out of the ISR of a topic that is to be deleted. While a follower that is
    cut off from ZooKeeper alone goes on fetching, its leader keeps it there, too, and every ISR with the new replica is
    refused with INELIGIBLE_REPLICA.
    """
    history = cluster.history
    moving = [n for n, a in history.topics.znodes[topic].partitions.items() if a.adding or a.removing]
    states = [newest(cluster, TopicPartition(topic, n)) for n in moving]
    return any(b not in history.registrations.current for state in states if state is not None for b in state.isr)
