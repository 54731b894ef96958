"""Puts topics and partition states that were read from ZooKeeper into a context.

A new controller does it for its term, and a standby for its mirror (`mirror.py`): both have the same context therefore.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from klamm.controller.context import ControllerContext
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.topic import Partition, Topic
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.runtime.time_slices import Slices
from klamm.zk.partition_states import StatesRead
from klamm.zk.znodes import TopicZnode


async def add_topics(
    context: ControllerContext,
    slices: Slices,
    found: Mapping[str, TopicZnode],
    ids: Mapping[str, uuid.UUID | None],
    replica_state: ReplicaState,
) -> list[Partition]:
    """Add these topics with all replicas in this state, and the topic ids by name; returns their partitions."""
    partitions: list[Partition] = []
    for name, znode in found.items():
        await slices.checkpoint(len(znode.partitions))
        topic = context.add_topic(name, ids[name], znode.czxid)
        partitions += [context.make_partition(topic, n, a) for n, a in znode.partitions.items()]
    await _list_replicas(context, slices, partitions, replica_state)
    return partitions


async def add_partitions(
    context: ControllerContext,
    slices: Slices,
    topic: Topic,
    added: Mapping[int, ReplicaAssignment],
    replica_state: ReplicaState,
) -> list[Partition]:
    """Add these partitions of a topic with their replicas in this state; returns them."""
    partitions = [context.make_partition(topic, n, a) for n, a in added.items()]
    await _list_replicas(context, slices, partitions, replica_state)
    return partitions


async def put_states(context: ControllerContext, slices: Slices, read: StatesRead[Partition]) -> None:
    """Set the leaders and ISRs that were read, and when they were written.

    The partitions are Online, as most are in a new term; it moves those that have no live leader.
    """
    await slices.checkpoint(len(read.found))
    for p, state in read.found.items():
        context.put_leadership(p, state)
        p.state = PartitionState.ONLINE
        p.written_at = read.written_at[p]


async def remove_topics(context: ControllerContext, slices: Slices, names: Collection[str]) -> None:
    """Remove topics with their partitions, in pieces, so that the loop is not blocked."""
    for name in names:
        async for piece in slices.over(list(context.topics[name].partitions.values())):
            context.remove_partitions(piece)
        context.remove_topic(name)


async def free_context(context: ControllerContext, slices: Slices) -> None:
    """Free the topics and partitions of a context that is not used any more, in pieces.

    Freeing them at once would block the loop.
    """
    listed: tuple[dict[Any, Any], ...] = (
        *context.led_by.values(),
        *context.in_state.values(),
        *context.offline_dirs.values(),
        *(context.reassigning, context.to_complete, context.half_deleted, context.last_sent_assignments),
        *context.replica_states.values(),
        *(topic.partitions for topic in context.topics.values()),
    )
    for partitions in listed:
        await slices.clear(partitions)
    slices.close()


async def _list_replicas(
    context: ControllerContext, slices: Slices, partitions: Iterable[Partition], state: ReplicaState
) -> None:
    """Add the replicas of these partitions to the context, one broker at a time, so that the loop is not blocked."""
    held: dict[BrokerId, list[Partition]] = {}
    for p in partitions:
        for broker in p.replicas:
            held.setdefault(broker, []).append(p)
    for broker, its in held.items():
        await slices.checkpoint(len(its))
        context.list_replicas(broker, its, state)
