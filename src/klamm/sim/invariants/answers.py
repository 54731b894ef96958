"""What callers are answered is true: what was accepted happened, what was refused did not, with Kafka's error."""

from klamm.controller.events import AllocateProducerIds, ReplicaLeaderElection
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded
from klamm.sim.invariants.views import Cluster
from klamm.zk import znodes


def producer_ids_are_given_once(history: History, event: EventEnded) -> str | None:
    """No producer id is in two blocks, and a request with another broker epoch than the registered gets no block."""
    asked, term = event.event, event.term
    if not isinstance(asked, AllocateProducerIds) or term is None:
        return None
    answer, epochs = asked.reply.result(), history.broker_views.epochs(term, asked.broker)
    if answer.error is ErrorCode.STALE_BROKER_EPOCH and epochs <= {asked.broker_epoch, -1}:
        return f"broker {asked.broker}, epoch {asked.broker_epoch} of {epochs}, is answered {answer}"
    if answer.error is ErrorCode.BROKER_ID_NOT_REGISTERED and -1 not in epochs:
        return f"broker {asked.broker}, epoch {asked.broker_epoch} of {epochs}, is answered {answer}"
    if answer.error is not ErrorCode.NONE:
        return None
    if asked.broker_epoch not in epochs:
        return f"broker {asked.broker}, epoch {asked.broker_epoch} of {epochs}, gets {answer}"
    for first, (length, broker) in history.answers.producer_id_blocks.items():
        if first < answer.first + answer.length and answer.first < first + length:
            return f"broker {asked.broker} gets {answer}, of which broker {broker} has {length} from {first} on"
    return None


def election_answers_match_zookeeper(history: History, event: EventEnded) -> str | None:
    """The answer to a requested election has, for each partition, its leader in ZooKeeper or the reason for none."""
    asked, term = event.event, event.term
    if not isinstance(asked, ReplicaLeaderElection) or asked.partitions is None or event.has_failed:
        return None
    if term is None or term.epoch != history.controllers.epoch:
        return None
    answer = asked.reply.result()
    for p in asked.partitions:
        if (p in answer.leaders) is (p in answer.refused):
            return f"{p}: the election is answered {answer.leaders.get(p)} and {answer.refused.get(p)}"
        newest, replicas = history.states.newest(p), history.topics.replicas(p)
        if p in answer.leaders and (newest is None or newest.leader != answer.leaders[p]):
            return f"{p}: {answer.leaders[p]} is said to be elected, ZooKeeper has {newest}"
        if newest is None or not replicas or p.topic in history.topics.deletion_requests:
            continue
        is_led = _is_led_as_asked(history, event, p)
        error = answer.refused[p].error if p in answer.refused else ErrorCode.NONE
        if is_led is False and error in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            return f"{p}: the election is answered {error.name}, ZooKeeper has {newest} of {replicas}"
        if is_led is True and error in (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ):
            return f"{p}: the election is answered {error.name}, ZooKeeper has {newest} of {replicas}"
    return None


def _is_led_as_asked(history: History, event: EventEnded, p: TopicPartition) -> bool | None:
    """Whether the preferred replica leads; for an unclean election, whether any online replica leads."""
    asked, newest = event.event, history.states.newest(p)
    assert isinstance(asked, ReplicaLeaderElection)
    assert newest is not None
    if not asked.unclean:
        return newest.leader == history.topics.replicas(p)[0]
    return history.broker_views.is_online(event.term, p, newest.leader) if newest.has_leader else False


def deleted_topics_leave_no_znodes(cluster: Cluster) -> str | None:
    """A topic that a controller deleted has no znode, request or config of that time left in ZooKeeper."""
    for topic, deleted_at in cluster.history.answers.deleted_at.items():
        for path in (znodes.topic_path(topic), znodes.topic_config_path(topic), znodes.delete_topic_path(topic)):
            node = cluster.tree.get(path)
            if node is not None and node.czxid < deleted_at:
                return f"{topic} was deleted at zxid {deleted_at}, and {path} is there since {node.czxid}"
    return None
