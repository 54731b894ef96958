"""New topics, added partitions, deleted topics. Source: KafkaController.scala (3.9), processTopicChange and related."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klamm.controller.decisions.changes import added_partitions, diff_topics, is_another_topic
from klamm.controller.decisions.elections import elect_offline
from klamm.controller.events import PartitionModifications, TopicChange, TopicDeletion, ZkPartitionReassignment
from klamm.controller.handlers.partitions import bring_online
from klamm.controller.handlers.pending_deletions import delete_earlier_logs
from klamm.controller.handlers.replicas import replicas_new, replicas_online
from klamm.controller.loading import add_topics
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.steps import READ_TOPICS
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition, Topic
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.telemetry.journal import by_topic
from klamm.zk.errors import NoNode
from klamm.zk.fenced import ControllerMoved, chunks
from klamm.zk.store import Unreadable
from klamm.zk.znodes import TOPICS, TopicZnode

DELETED_BY_HAND: Final = (
    "another client deleted its znode: brokers serve the topic until they restart, and reject a new topic of that name"
)
"""The journal's reason for a topic whose znode was deleted without a deletion request."""


async def on_topic_change(term: TermContext, event: TopicChange) -> None:
    """Load new topics and create their partitions; remove topics whose znodes are gone."""
    listed = await term.store.list_topics(watch=True)
    for name in term.context.unreadable_topics.keys() - set(listed):
        del term.context.unreadable_topics[name]
    changes = diff_topics(term.context.topics, listed)
    await _remove_deleted_topics(term, changes.deleted)
    if changes.new or changes.deleted:
        term.journal.found(term.cause, new=changes.new, deleted=changes.deleted)
    loaded: list[Partition] = []
    try:
        await load_topics(term, changes.new, loaded)
    except ControllerMoved:
        raise
    except KlammError:
        await on_new_partitions(term, loaded)  # the retried event takes these topics for known ones
        raise
    await on_new_partitions(term, loaded)


async def _remove_deleted_topics(term: TermContext, gone: Collection[str]) -> None:
    """Remove topics from memory whose znodes were deleted by hand; as in Kafka, brokers get no request."""
    if deleted := [name for name in gone if name in term.context.topics_to_be_deleted]:
        await remove_deletion_requests(term, deleted)  # deleted by hand before this controller deleted them
    for name in gone:
        if name not in deleted:
            term.journal.refused(term.cause, "topic", DELETED_BY_HAND, topic=name)
        _remove_topic(term, name)


async def remove_deletion_requests(term: TermContext, topics: Iterable[str]) -> None:
    """Remove these topics' znodes in `/admin/delete_topics`; a refused removal is only journalled."""
    for path, why in (await term.store.topic_deletion.delete_requests(topics)).items():
        term.journal.refused(term.cause, path, why)


async def on_partition_modifications(term: TermContext, event: PartitionModifications) -> None:
    """Create added partitions; a topic that was recreated under its name is removed and loaded again."""
    name = event.topic
    found, unreadable = await term.store.read_topics([name], watch=True)
    _journal_unreadable(term, unreadable)
    if name in term.context.unreadable_topics:
        term.context.unreadable_topics.update(unreadable)
    znode = found.get(name)
    if znode is not None and name in term.context.unreadable_topics:
        term.timers.put(TopicDeletion())  # its deletion may have been requested since
        await on_new_partitions(term, await _add_topics(term, found))
        return
    if name not in term.context.topics or name in unreadable:
        return  # the event for the list of topics handles it
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
    """Remove a topic from memory; if it was being reassigned, check the old tools' znode again."""
    if not term.context.reassigning.keys().isdisjoint(term.context.topics[name].partitions.values()):
        term.timers.put(ZkPartitionReassignment())
    term.context.remove_topic(name)


async def _reject_new_partitions(term: TermContext, topic: Topic, added: Collection[int]) -> None:
    """Write the assignment without partitions added to a topic queued for deletion (KAFKA-6612)."""
    why = "the topic is being deleted: its new partitions are ignored"
    term.journal.refused(term.cause, "new partitions", why, partitions={topic.name: sorted(added)})
    try:
        await term.store.write_topic(topic.name, topic.id, {n: p.assignment for n, p in topic.partitions.items()})
    except NoNode:
        return  # deleted already; the event for the list of topics handles it
    term.journal.write(term.cause, "assignment", topic=topic.name)


async def on_new_partitions(term: TermContext, partitions: Collection[Partition]) -> None:
    """Move new partitions and replicas to New, elect first leaders, and move them to Online."""
    if not partitions:
        return
    try:
        await delete_earlier_logs(term, partitions)
    except KlammError:
        _forget_partitions(term, partitions)  # a later event finds them anew
        raise
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
        for broker, its in replicas.items():  # not New any more: a later election sends them LeaderAndIsr
            term.context.move_replicas(broker, its, ReplicaState.ONLINE)
        raise
    await replicas_online(term, replicas)


def _forget_partitions(term: TermContext, partitions: Iterable[Partition]) -> None:
    """Remove new partitions from memory, and topics that have no others."""
    topics = dict.fromkeys(p.topic for p in partitions)
    term.context.remove_partitions(partitions)
    for name in topics:
        if not term.context.topics[name].partitions:
            term.context.remove_topic(name)
            term.store.writer.add_refused(TOPICS)  # the event of a changed topic does not look for an unknown one


async def load_topics(
    term: TermContext,
    names: Sequence[str],
    loaded: list[Partition],
    replica_state: ReplicaState = ReplicaState.NON_EXISTENT,
) -> None:
    """Read topics, watch their znodes, and add them to the context; their NonExistent partitions go into `loaded`.

    Their replicas are in `replica_state`. After a failure `loaded` has those of the topics that are in the context.
    """
    for chunk in chunks(names, READ_TOPICS):
        found, unreadable = await term.store.read_topics(chunk, watch=True)
        _journal_unreadable(term, unreadable)
        term.context.unreadable_topics.update(unreadable)
        if any(_is_hidden(problem) for problem in unreadable.values()):
            term.store.writer.add_refused(TOPICS)  # no watch tells when the ACL is changed
        if not term.context.unreadable_topics.keys().isdisjoint(found):
            term.timers.put(TopicDeletion())  # the deletion of a topic that could not be read may have been requested
        loaded += await _add_topics(term, found, replica_state)


def _is_hidden(problem: Unreadable) -> bool:
    """Whether ZooKeeper does not let this node read the topic's znode, which is not watched then."""
    return not problem.mzxid


def _journal_unreadable(term: TermContext, unreadable: Mapping[str, Unreadable]) -> None:
    """Journal unreadable topic znodes, once per change of the znode."""
    for topic, problem in unreadable.items():
        if term.context.unreadable_topics.get(topic) != problem:
            term.journal.refused(term.cause, "topic", problem.why, topic=topic)


async def _add_topics(
    term: TermContext, found: Mapping[str, TopicZnode], replica_state: ReplicaState = ReplicaState.NON_EXISTENT
) -> list[Partition]:
    """Add topics with all replicas to the context; returns the partitions.

    Everything that ZooKeeper may refuse comes first, so that no topic is added without its replicas.
    """
    topic_ids = {name: await _topic_id(term, name, znode) for name, znode in found.items()}
    return await add_topics(term.context, term.slices, found, topic_ids, replica_state)


async def _topic_id(term: TermContext, name: str, znode: TopicZnode) -> uuid.UUID | None:
    """The topic's id; a topic without one gets a new id, which is written once (KAFKA-10545)."""
    if znode.topic_id is not None or not term.settings.uses_topic_ids:
        return znode.topic_id
    topic_id = new_topic_id(term.random_bytes)
    refused = await term.store.assignments.change({name: {}}, {name: topic_id})
    if name in refused:
        why = f"{refused[name]}; the topic is used without a topic id"
        term.journal.refused(term.cause, "topic id", why, topic=name)
        return None
    term.journal.write(term.cause, "topic id", topic=name)
    return topic_id
