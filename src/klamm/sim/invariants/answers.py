"""What callers are answered is true: what was accepted happened, what was refused did not, with Kafka's error."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from klamm.controller.decisions.features import FeatureUpdate, UpgradeType
from klamm.controller.events import (
    AllocateProducerIds,
    ApiPartitionReassignment,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    UpdateFeatures,
)
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded
from klamm.sim.invariants.rebalancing import can_be_preferred_leader
from klamm.sim.invariants.views import Cluster
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_features
from klamm.zk.registrations import decode_registration

_FIRST_WITH_FEATURES: Final = (2, 7, 0)
"""The first protocol version in which features are written."""


def producer_ids_are_given_once(history: History, event: EventEnded) -> str | None:
    """No producer id is in two blocks, and a request with another broker epoch than the registered gets no block."""
    requested, term = event.event, event.term
    if not isinstance(requested, AllocateProducerIds) or term is None:
        return None
    answer, epochs = requested.reply.result(), history.broker_views.epochs(term, requested.broker)
    if answer.error is ErrorCode.STALE_BROKER_EPOCH and epochs <= {requested.broker_epoch, -1}:
        return f"broker {requested.broker}, epoch {requested.broker_epoch} of {epochs}, is answered {answer}"
    if answer.error is ErrorCode.BROKER_ID_NOT_REGISTERED and -1 not in epochs:
        return f"broker {requested.broker}, epoch {requested.broker_epoch} of {epochs}, is answered {answer}"
    if answer.error is not ErrorCode.NONE:
        return None
    if requested.broker_epoch not in epochs:
        return f"broker {requested.broker}, epoch {requested.broker_epoch} of {epochs}, gets {answer}"
    for first, (length, broker) in history.answers.producer_id_blocks.items():
        if first < answer.first + answer.length and answer.first < first + length:
            return f"broker {requested.broker} gets {answer}, of which broker {broker} has {length} from {first} on"
    return None


def election_answers_match_zookeeper(history: History, event: EventEnded) -> str | None:
    """The answer to a requested election has, for each partition, its leader in ZooKeeper or the reason for none."""
    requested, term = event.event, event.term
    if not isinstance(requested, ReplicaLeaderElection) or requested.partitions is None or event.has_failed:
        return None
    if term is None or term.epoch != history.controllers.epoch:
        return None
    answer = requested.reply.result()
    for p in requested.partitions:
        if (p in answer.leaders) is (p in answer.refused):
            return f"{p}: the election is answered {answer.leaders.get(p)} and {answer.refused.get(p)}"
        newest, replicas = history.states.newest(p), history.topics.replicas(p)
        if p in answer.leaders and (newest is None or newest.leader != answer.leaders[p]):
            return f"{p}: {answer.leaders[p]} is said to be elected, ZooKeeper has {newest}"
        if newest is None or not replicas or p.topic in history.topics.deletion_requests:
            continue
        is_led = _is_led_as_requested(history, event, p)
        error = answer.refused[p].error if p in answer.refused else ErrorCode.NONE
        if error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE and _could_be_elected(history, event, p):
            return f"{p}: the election is answered {error.name}, although {replicas[0]} could lead {newest}"
        if is_led is False and error in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            return f"{p}: the election is answered {error.name}, ZooKeeper has {newest} of {replicas}"
        if is_led is True and error in (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ):
            return f"{p}: the election is answered {error.name}, ZooKeeper has {newest} of {replicas}"
    return None


def _could_be_elected(history: History, event: EventEnded, p: TopicPartition) -> bool:
    """Whether the preferred replica was live and in sync all the time that the request was handled.

    Where leaders write ISRs, that time begins with what the controller's ZooKeeper session had seen: as Kafka's, the
    controller reads the states without `sync`, and its server may lag behind the leader's write.
    """
    controllers = history.controllers
    seen = controllers.seen_at if history.at.leaders_write_isrs else controllers.began_at
    since = seen.get((event.broker, event.incarnation), 0)
    return controllers.has_controller_znode and can_be_preferred_leader(history, event, p, since)


def _is_led_as_requested(history: History, event: EventEnded, p: TopicPartition) -> bool | None:
    """Whether the preferred replica leads; for an unclean election, whether any online replica leads."""
    requested, newest = event.event, history.states.newest(p)
    assert isinstance(requested, ReplicaLeaderElection)
    assert newest is not None
    if not requested.unclean:
        return newest.leader == history.topics.replicas(p)[0]
    return history.broker_views.is_online(event.term, p, newest.leader) if newest.has_leader else False


def reassignment_answers_match_zookeeper(history: History, event: EventEnded) -> str | None:
    """A reassignment request is refused or in ZooKeeper, with Kafka's reasons; a list has what is in progress."""
    requested, term = event.event, event.term
    if term is None or event.has_failed or event.is_cut_short or term.epoch != history.controllers.epoch:
        return None
    if isinstance(requested, ApiPartitionReassignment):
        refused = {p: refusal.error for p, refusal in requested.reply.result().refused.items()}
        for p, target in requested.targets.items():
            if (wrong := _wrong_move(history, event, p, target, refused.get(p))) is not None:
                return f"{p}: the move to {target} is answered {refused.get(p)}, {wrong}"
    if isinstance(requested, ListPartitionReassignments):
        listed = requested.reply.result().assignments
        for p in history.states.versions if requested.partitions is None else requested.partitions:
            found = _assignment(history, p)
            if found is None or p.topic in history.topics.deletion_requests:
                continue
            if listed.get(p) != (found if found.is_being_reassigned else None):
                return f"{p}: the list of reassignments has {listed.get(p)}, assigned is {found}"
    return None


def feature_answers_match_zookeeper(history: History, event: EventEnded) -> str | None:
    """UpdateFeatures is refused only for one of Kafka's reasons, and what is accepted is in `/feature`."""
    requested, term = event.event, event.term
    if not isinstance(requested, UpdateFeatures) or term is None or event.has_failed or event.is_cut_short:
        return None
    answer = requested.reply.result()
    has_features = term.settings.ibp >= _FIRST_WITH_FEATURES
    if answer.error is not (ErrorCode.NONE if has_features else ErrorCode.INVALID_REQUEST):
        return f"a change of features is answered {answer}, with the protocol {term.settings.ibp}"
    began = history.controllers.began_at.get((event.broker, event.incarnation), 0)
    before = [_levels(content) for content in history.registrations.finalized_since(began)] or [{}]
    for update in requested.updates if has_features else ():
        error, why = answer.results.get(update.feature, (None, None))
        may_refuse = not _is_supported(history, event, update, began) or any(
            _may_refuse(update, each) for each in before
        )
        if error is ErrorCode.INVALID_REQUEST and not may_refuse:
            return f"{update} is refused because {why}; levels were {before}"
        is_newest = answer.epoch is not None and _version(history) == answer.epoch
        if error is ErrorCode.NONE and is_newest and before[-1].get(update.feature) != _wanted(update):
            return f"{update} is accepted; levels are {before[-1]}"
        if error is None:
            return f"{update} has no answer: {answer}"
    return None


def _levels(content: bytes | None) -> Mapping[str, int]:
    """The finalized levels in a content of `/feature`; none where there is none, or nobody can read it."""
    try:
        return decode_features(content).levels if content is not None else {}
    except znodes.MalformedZnode:
        return {}


def _version(history: History) -> int:
    """The version of `/feature`."""
    node = history.tree.get(znodes.FEATURE)
    return node.version if node is not None else -1


def _wanted(update: FeatureUpdate) -> int | None:
    """The level that a feature is to have; None where it is to be deleted."""
    return update.level if update.level >= 1 else None


def _may_refuse(update: FeatureUpdate, levels: Mapping[str, int]) -> bool:
    """Whether Kafka refuses this update of these levels, where all nodes support the level."""
    known = levels.get(update.feature)
    if update.level < 1:
        return update.upgrade_type != UpgradeType.SAFE_DOWNGRADE or known is None
    if known is None or update.level > known:
        return known is not None and update.upgrade_type != UpgradeType.UPGRADE
    return known == update.level or update.upgrade_type != UpgradeType.SAFE_DOWNGRADE


def _is_supported(history: History, event: EventEnded, update: FeatureUpdate, since: int) -> bool:
    """Whether the controller and every broker that was registered meanwhile support this level."""
    assert event.term is not None
    ranges = [event.term.settings.supported_features]
    for broker in history.registrations.contents:
        for content in history.registrations.contents_since(broker, since):
            with contextlib.suppress(znodes.MalformedZnode):
                ranges += [decode_registration(broker, content, 0).features] if content is not None else []
    found = [supported.get(update.feature) for supported in ranges]
    return all(one is not None and one.min_version <= update.level <= one.max_version for one in found)


def _assignment(history: History, p: TopicPartition) -> ReplicaAssignment | None:
    """The assignment in the topic's znode; None where there is none."""
    topic = history.topics.znodes.get(p.topic)
    return topic.partitions.get(p.partition) if topic else None


def _wrong_move(
    history: History, event: EventEnded, p: TopicPartition, target: Sequence[BrokerId] | None, error: ErrorCode | None
) -> str | None:
    """Why this is not the answer to a requested move; None where it may be."""
    found = _assignment(history, p)
    if found is None or p.topic in history.topics.deletion_requests:
        return None  # the controller may not know yet that it is gone
    is_invalid = target is not None and (not target or len(set(target)) < len(target) or min(target) < 0)
    if is_invalid and error is not ErrorCode.INVALID_REPLICA_ASSIGNMENT:
        return "although the list is invalid"
    if error is None:
        is_done = not found.is_being_reassigned if target is None else found.target == tuple(target)
        return None if is_done else f"assigned is {found}"
    if error is ErrorCode.UNKNOWN_SERVER_ERROR:
        return None if _may_fail_to_begin(history, event, p, target, found) else f"assigned is {found}, no write failed"
    if error is not ErrorCode.INVALID_REPLICA_ASSIGNMENT:
        is_none = error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        return f"assigned is {found}" if is_none and (found.is_being_reassigned or target is not None) else None
    views = history.broker_views
    if not is_invalid and all(b in found.origin or views.is_live(event.term, b) is True for b in target or ()):
        return f"although the brokers live, assigned is {found}"
    return None


def _may_fail_to_begin(
    history: History, event: EventEnded, p: TopicPartition, target: Sequence[BrokerId] | None, found: ReplicaAssignment
) -> bool:
    """Whether a requested move may fail: ZooKeeper refused a write, or no replica that stays can lead.

    Where leaders write ISRs, they may be faster.
    """
    newest = history.states.newest(p)
    if history.at.leaders_write_isrs or event.broker in history.controllers.refused or newest is None:
        return True
    staying = {*found.origin, *(target or ())}
    views = history.broker_views
    return not any(b in staying and views.is_live(event.term, b) is True for b in newest.isr)


def deleted_topics_leave_no_znodes(cluster: Cluster) -> str | None:
    """A topic that a controller deleted has no znode, request or config of that time left in ZooKeeper."""
    for topic, deleted_at in cluster.history.answers.deleted_at.items():
        for path in (znodes.topic_path(topic), znodes.topic_config_path(topic), znodes.delete_topic_path(topic)):
            node = cluster.tree.get(path)
            if node is not None and node.czxid < deleted_at:
                return f"{topic} was deleted at zxid {deleted_at}, and {path} is there since {node.czxid}"
    return None
