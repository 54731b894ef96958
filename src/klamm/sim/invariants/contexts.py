"""What a new controller has read equals ZooKeeper, field by field, whether it read it now or kept a mirror of it."""

import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields
from typing import Any, Final

from klamm.controller.context import ControllerContext
from klamm.controller.settings import ControllerSettings
from klamm.controller.state_encoder import StateEncoder
from klamm.controller.states import INITIAL_REPLICA_STATE, PartitionState
from klamm.controller.topic import Partition, Topic
from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import ContextRead
from klamm.sim.invariants.views import Cluster
from klamm.sim.zookeeper.tree import Tree, Znode
from klamm.zk import znodes
from klamm.zk.znodes import MalformedZnode, TopicZnode

_NEWEST: Final = sys.maxsize
"""A zxid after all changes."""
_NOT_COMPARED: Final = frozenset({"observer", "broker_list_version"})


def new_controllers_have_read_everything(history: History, event: ContextRead) -> str | None:
    """The context of a new controller equals one read from scratch, field by field, also where it is a standby's.

    What changed since its election is left out: such a change may be in it or not.
    """
    context = event.memory.context
    expected = describe(read_from_scratch(history.tree, context, event.since, event.memory.settings))
    for name, value in describe(context).items():
        if value != expected[name]:
            return f"{event.term} begins with {name} = {difference(value, expected[name])}"
    return None


def standbys_follow_zookeeper(cluster: Cluster) -> str | None:
    """The mirror of a standby at rest equals one read from scratch, field by field, and has no change left to read."""
    for broker in cluster.running:
        standby = broker.controller.standby
        if standby is None or not standby.is_current or (mirror := standby.mirror) is None or mirror.is_taken:
            continue
        if mirror.changed_count or mirror.lag_s:
            return f"the mirror of broker {broker.number} has {mirror.changed_count} changes to read, {mirror.lag_s} s"
        scratch = _mirror_from_scratch(cluster.tree, mirror.context, broker.controller_settings)
        kept, expected = describe(mirror.context), describe(scratch)
        for name, value in kept.items():
            if value != expected[name]:
                return f"the mirror of broker {broker.number} has {name} {difference(value, expected[name])}"
        zxids = {name: cluster.tree.get(znodes.topic_path(name)) for name in mirror.context.topics}
        if mirror.mzxids != (stored := {name: node.mzxid for name, node in zxids.items() if node is not None}):
            return f"the mirror of broker {broker.number} has the zxids {difference(mirror.mzxids, stored)}"
    return None


def _mirror_from_scratch(tree: Tree, context: ControllerContext, settings: ControllerSettings) -> ControllerContext:
    """The context of a mirror that these znodes give: topics that a controller has to give an id are left out."""
    scratch = read_from_scratch(tree, context, _NEWEST, settings)
    if settings.uses_topic_ids:
        for topic in [topic for topic in scratch.topics.values() if _lacks_id(tree, topic.name)]:
            scratch.remove_topic(topic.name)
    return scratch


def _lacks_id(tree: Tree, name: str) -> bool:
    """Whether the topic's znode has no id."""
    node = tree.get(znodes.topic_path(name))
    return node is not None and znodes.decode_topic(name, node.data).topic_id is None


def read_from_scratch(
    tree: Tree, context: ControllerContext, since: int, settings: ControllerSettings
) -> ControllerContext:
    """The context that these znodes give; what changed after the zxid `since` is taken from the given context.

    Where that has encoded states already, they are encoded from scratch.
    """
    encoder = StateEncoder(settings)
    scratch = ControllerContext(context.epoch)
    scratch.finalized = context.finalized
    scratch.unreadable_topics = context.unreadable_topics
    scratch.add_brokers(context.registered.values())
    for name, topic in _topics(tree, context, since):
        added = scratch.add_topic(name, topic.topic_id, topic.czxid)
        for number, assignment in topic.partitions.items():
            known = context.partition(name, number)
            partition = scratch.make_partition(added, number, assignment)
            for broker in assignment.replicas:
                scratch.list_replicas(broker, (partition,), INITIAL_REPLICA_STATE)
            state = _state(tree, partition.key, known.leadership if known else None, since)
            partition.written_at = known.written_at if known else 0
            if state is not None:
                scratch.put_leadership(partition, state)
                partition.state = PartitionState.ONLINE
                partition.encoded = encoder.common(partition) if known and known.encoded else b""
                node = tree.get(znodes.state_path(partition.key))
                if node is not None and node.mzxid <= since:
                    partition.written_at = node.mzxid
    return scratch


def describe(context: ControllerContext) -> dict[str, Any]:
    """All fields of a context as values that can be compared with those of another context."""
    return {f.name: _plain(getattr(context, f.name)) for f in fields(context) if f.name not in _NOT_COMPARED}


def _plain(value: Any) -> Any:
    """Return the value with names instead of Topic and Partition objects, and without empty dicts in dicts."""
    match value:
        case Partition():
            return str(value)
        case Topic():
            return value.name, value.id, value.czxid, {n: _of_partition(p) for n, p in value.partitions.items()}
        case Mapping():
            return {_plain(k): _plain(v) for k, v in value.items() if v != {}}
        case Set():
            return sorted(value)
    return value


def _of_partition(p: Partition) -> tuple[Any, ...]:
    """Return the values of all fields of the partition, to be compared."""
    return tuple(getattr(p, f.name) for f in fields(p))


def _topics(tree: Tree, context: ControllerContext, since: int) -> Iterator[tuple[str, TopicZnode]]:
    """The topics in ZooKeeper; those that appeared, changed or vanished lately are as in the context."""
    parent = tree.get(znodes.TOPICS)
    stored = parent.children if parent is not None else {}
    for name in sorted({*stored, *context.topics}):
        node = tree.get(znodes.topic_path(name))
        is_new = node.mzxid > since if node is not None else parent is None or parent.pzxid > since
        if is_new:
            if (known := context.topics.get(name)) is not None:
                yield name, _znode_of(known)
        elif node is not None and (znode := _decoded(name, node, context)) is not None:
            yield name, znode


def _decoded(name: str, node: Znode, context: ControllerContext) -> TopicZnode | None:
    """The content of a topic's znode, with the id that the controller gave it; None if it is malformed."""
    try:
        znode = znodes.decode_topic(name, node.data)._replace(czxid=node.czxid, mzxid=node.mzxid)
    except MalformedZnode:
        return None
    known = context.topics.get(name)
    return znode if znode.topic_id is not None or known is None else znode._replace(topic_id=known.id)


def _znode_of(topic: Topic) -> TopicZnode:
    """The znode that this topic would have been read from."""
    return TopicZnode(topic.id, {n: p.assignment for n, p in topic.partitions.items()}, topic.czxid)


def _state(tree: Tree, p: TopicPartition, known: LeaderAndIsr | None, since: int) -> LeaderAndIsr | None:
    """The state of a partition in ZooKeeper; the known one if it appeared, changed or vanished lately."""
    path = znodes.state_path(p)
    parents: Sequence[str] = (znodes.partition_path(p), znodes.partitions_path(p.topic), znodes.topic_path(p.topic))
    node = tree.get(path)
    if node is not None:
        try:
            return known if node.mzxid > since else znodes.decode_state(p, node.data, node.version)
        except MalformedZnode:
            return None
    above = next((found for parent in parents if (found := tree.get(parent)) is not None), None)
    return known if above is None or above.pzxid > since else None


def difference(value: Any, expected: Any) -> str:
    """Return the text for two different values; of two dicts it has only the keys that differ."""
    if isinstance(value, dict) and isinstance(expected, dict):
        keys = [k for k in {**value, **expected} if value.get(k) != expected.get(k)]
        value, expected = {k: value.get(k) for k in keys}, {k: expected.get(k) for k in keys}
    return f"{value}, expected {expected}"
