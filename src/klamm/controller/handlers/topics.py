"""New topics, more partitions, topics gone. Source: KafkaController.scala (3.9), processTopicChange and its kin."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klamm.controller.batch_sizes import READ_TOPICS
from klamm.controller.context import Partition, Topic
from klamm.controller.decisions.elections import elect_offline
from klamm.controller.decisions.topic_changes import added_partitions, diff_topics, is_another_topic
from klamm.controller.events import PartitionModifications, TopicChange, TopicDeletion, ZkPartitionReassignment
from klamm.controller.handlers.partitions import bring_online
from klamm.controller.handlers.replicas import replicas_new, replicas_online
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.telemetry.journal import by_topic
from klamm.zk.errors import NoNode, WriteRefused
from klamm.zk.fenced import chunks
from klamm.zk.store import Unreadable
from klamm.zk.znodes import TopicZnode

DELETED_BY_HAND: Final = (
    "somebody deleted its znode: until they restart, brokers serve it on and take no other of its name"
)


async def on_topic_change(term: TermContext, event: TopicChange) -> None:
    listed = await term.store.list_topics(watch=True)
    for name in term.context.unreadable_topics.keys() - set(listed):
        del term.context.unreadable_topics[name]
    changes = diff_topics(term.context.topics, listed)
    await _remove_deleted_topics(term, changes.deleted)
    if changes.new or changes.deleted:
        term.journal.found(term.cause, new=changes.new, deleted=changes.deleted)
    await on_new_partitions(term, await load_topics(term, changes.new))


async def _remove_deleted_topics(term: TermContext, gone: Collection[str]) -> None:
    """Topics whose znodes somebody deleted by hand; as with Kafka, brokers hear nothing of it."""
    if deleted := [name for name in gone if name in term.context.topics_to_be_deleted]:
        await remove_deletion_requests(term, deleted)  # somebody was faster
    for name in gone:
        if name not in deleted:
            term.journal.refused(term.cause, "topic", DELETED_BY_HAND, topic=name)
        _remove_topic(term, name)


async def remove_deletion_requests(term: TermContext, topics: Iterable[str]) -> None:
    """One that ZooKeeper refuses to remove is journalled: neither other deletions nor a failover wait for it."""
    for path, why in (await term.store.topic_deletion.delete_requests(topics)).items():
        term.journal.refused(term.cause, path, why)


async def on_partition_modifications(term: TermContext, event: PartitionModifications) -> None:
    """Partitions added to a topic we know. A topic deleted and created anew under its name starts afresh."""
    name = event.topic
    found, unreadable = await term.store.read_topics([name], watch=True)
    _journal_unreadable(term, unreadable)
    if name in term.context.unreadable_topics:
        term.context.unreadable_topics.update(unreadable)
    znode = found.get(name)
    if znode is not None and name in term.context.unreadable_topics:
        term.timers.put(TopicDeletion())  # which may be asked for since
        await on_new_partitions(term, await _add_topics(term, found))
        return
    if name not in term.context.topics or name in unreadable:
        return  # the list of topics tells of it
    if znode is None:
        await _remove_deleted_topics(
            term, [name]
        )  # by the time topics are listed there may be another one of that name
        term.journal.found(term.cause, new=[], deleted=[name])
        return
    if is_another_topic(term.context.topics[name], znode):
        term.journal.found(term.cause, new=[name], deleted=[name])
        if name in term.context.topics_to_be_deleted:
            term.timers.put(TopicDeletion())  # the request is still there: it is the new topic's now
        _remove_topic(term, name)
        await on_new_partitions(term, await _add_topics(term, found))
        return
    topic = term.context.topics[name]
    added = added_partitions(topic, znode.partitions)
    if added and name in term.context.topics_to_be_deleted:
        await _reject_new_partitions(term, topic, added)
        return
    await on_new_partitions(term, [term.context.add_partition(topic, n, a) for n, a in added.items()])


def _remove_topic(term: TermContext, name: str) -> None:
    """What was on its way will not arrive: the old tools' request is looked at again."""
    if not term.context.reassigning.keys().isdisjoint(term.context.topics[name].partitions.values()):
        term.timers.put(ZkPartitionReassignment())
    term.context.remove_topic(name)


async def _reject_new_partitions(term: TermContext, topic: Topic, added: Collection[int]) -> None:
    """A topic that is to be deleted does not grow: its new partitions would survive it (KAFKA-6612)."""
    why = "the topic is being deleted"
    term.journal.refused(term.cause, "new partitions", why, partitions={topic.name: sorted(added)})
    try:
        await term.store.write_topic(topic.name, topic.id, {n: p.assignment for n, p in topic.partitions.items()})
    except NoNode:
        return  # gone already; the list of topics tells of it
    term.journal.write(term.cause, "assignment", topic=topic.name)


async def on_new_partitions(term: TermContext, partitions: Collection[Partition]) -> None:
    """NonExistent to New to Online, replicas alongside."""
    if not partitions:
        return
    term.journal.line(term.cause, "new-partitions", partitions=by_topic(partitions))
    term.context.move(partitions, PartitionState.NEW)
    replicas: dict[BrokerId, list[Partition]] = {}
    for p in partitions:
        for broker in p.replicas:
            replicas.setdefault(broker, []).append(p)
    await replicas_new(term, replicas)
    try:
        await bring_online(term, partitions, elect_offline)
    except KlammError:
        for broker, its in replicas.items():  # no longer new: whoever elects later tells them all
            term.context.move_replicas(broker, its, ReplicaState.ONLINE)
        raise
    await replicas_online(term, replicas)


async def load_topics(term: TermContext, names: Sequence[str]) -> list[Partition]:
    """Read topics (their znodes are watched from here on) and remember them; their partitions, all NonExistent."""
    partitions: list[Partition] = []
    for chunk in chunks(names, READ_TOPICS):
        found, unreadable = await term.store.read_topics(chunk, watch=True)
        _journal_unreadable(term, unreadable)
        term.context.unreadable_topics.update(unreadable)
        partitions += await _add_topics(term, found)
    return partitions


def _journal_unreadable(term: TermContext, unreadable: Mapping[str, Unreadable]) -> None:
    """Once for each change of a znode: such a topic is read again whenever topics come or go."""
    for topic, problem in unreadable.items():
        if term.context.unreadable_topics.get(topic) != problem:
            term.journal.refused(term.cause, "topic", problem.why, topic=topic)


async def _add_topics(term: TermContext, found: Mapping[str, TopicZnode]) -> list[Partition]:
    """Whatever ZooKeeper refuses, a topic enters memory with all of its replicas, or not at all."""
    topic_ids = {name: await _topic_id(term, name, znode) for name, znode in found.items()}
    partitions: list[Partition] = []
    for name, znode in found.items():
        await term.slices.checkpoint(len(znode.partitions))
        topic = term.context.add_topic(name, topic_ids[name], znode.czxid)
        partitions += [term.context.make_partition(topic, n, a) for n, a in znode.partitions.items()]
    await _list_replicas(term, partitions)
    return partitions


async def _list_replicas(term: TermContext, partitions: Iterable[Partition]) -> None:
    """One broker after the other: they hold about as much each, and their lists would all grow in the same moment."""
    held: dict[BrokerId, list[Partition]] = {}
    for p in partitions:
        for broker in p.replicas:
            held.setdefault(broker, []).append(p)
    for broker, its in held.items():
        await term.slices.checkpoint(len(its))
        term.context.list_replicas(broker, its)


async def _topic_id(term: TermContext, name: str, znode: TopicZnode) -> uuid.UUID | None:
    """The topic's id; a topic from before there were ids gets one, once (KAFKA-10545)."""
    if znode.topic_id is not None or not term.settings.uses_topic_ids:
        return znode.topic_id
    topic_id = new_topic_id(term.random_bytes)
    try:
        await term.store.write_topic(name, topic_id, znode.partitions)
    except NoNode:
        return None  # deleted meanwhile; the list of topics tells of it
    except WriteRefused as error:
        term.journal.refused(term.cause, "topic id", f"{error}; it goes on without one", topic=name)
        return None
    term.journal.write(term.cause, "topic id", topic=name)
    return topic_id
