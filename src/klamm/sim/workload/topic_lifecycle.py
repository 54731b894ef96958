"""Verbs that create, grow and delete topics: recreation, growth during deletion, deletion with a dead broker."""

import asyncio
import contextlib
from typing import Final

from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.runtime.randomness import Rng
from klamm.sim.actions import ClusterUnderTest, Draw, call_after, restart
from klamm.sim.history.trace import TransactionCommitted
from klamm.zk import znodes
from klamm.zk.store import TopicExists
from klamm.zk.znodes import MalformedZnode

_POLL_INTERVAL_S: Final = 0.05
_MAX_S: Final = 12.0
_TWICE_WITHIN_S: Final = 1.2
_LONG_DOWNTIME_S: Final = (9.0, 14.0)
"""Longer than deletions wait for a broker that is gone."""


async def delete_topics(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An operator deletes some topics."""
    topics = draw("topics", lambda rng: [t for t in _topics(cluster) if rng.random() < 0.3])
    if topics:
        cluster.log(f"topics {topics} are to be deleted")
        await cluster.store.topic_requests.request_deletions(topics)


async def recreate_topic(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A topic is deleted, and created again as soon as that is possible."""
    known = _topics(cluster)
    if not known:
        return
    topic = draw("topic", lambda rng: rng.choice(known))
    replicas = draw("replicas", lambda rng: [_some_nodes(cluster, rng) for _ in range(rng.randint(1, 3))])
    cluster.log(f"topic {topic} is to be deleted, and created again at once: {replicas}")
    await cluster.store.topic_requests.request_deletions([topic])
    await _recreate_when_deleted(cluster, topic, replicas)


async def grow_topic(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A topic gets more partitions, often during its deletion."""
    known = _topics(cluster)
    topic_lifecycle = [t for t in known if cluster.ensemble.tree.get(znodes.delete_topic_path(t)) is not None]
    if not known:
        return
    topic = draw("topic", lambda rng: rng.choice(topic_lifecycle if topic_lifecycle and rng.random() < 0.7 else known))
    replicas = draw("replicas", lambda rng: [_some_nodes(cluster, rng) for _ in range(rng.randint(1, 2))])
    deletes_first = draw("deletes_first", lambda rng: rng.random() < 0.3)
    if deletes_first:
        await cluster.store.topic_requests.request_deletions([topic])
    try:
        read = await cluster.store.topic_requests.read(topic)
    except MalformedZnode:
        return
    if read is None:
        return
    now, version = read
    first = max(now.partitions, default=-1) + 1
    added = dict(enumerate(replicas, first))
    cluster.log(f"topic {topic}{', which is to be deleted,' if deletes_first else ''} grows by {added}")
    await cluster.store.topic_requests.add_partitions(topic, now, added, version)


async def grow_topic_twice(cluster: ClusterUnderTest, rng: Rng) -> None:
    """A topic that stays gets more partitions, and once more within the time in which a mirror reads it again."""
    known = [t for t in _topics(cluster) if cluster.ensemble.tree.get(znodes.delete_topic_path(t)) is None]
    if not known:
        return
    topic, gap_s = rng.choice(known), _TWICE_WITHIN_S * rng.random()
    for pause_s in (gap_s, 0.0):
        with contextlib.suppress(KlammError):
            if (read := await cluster.store.topic_requests.read(topic)) is not None:
                now, version = read
                added = {max(now.partitions, default=-1) + 1: _some_nodes(cluster, rng)}
                cluster.log(f"topic {topic} grows by {added}, and again after {gap_s} s")
                await cluster.store.topic_requests.add_partitions(topic, now, added, version)
        await asyncio.sleep(pause_s)


async def delete_without_a_node(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Topics are deleted while a node is dead for long; one of them may be recreated on the dead node."""
    number = draw("node", lambda rng: rng.choice(tuple(cluster.nodes)))
    away_s = draw("away_s", lambda rng: rng.uniform(*_LONG_DOWNTIME_S))
    topics = draw("topics", lambda rng: [t for t in _topics(cluster) if rng.random() < 0.5])
    again = draw("again", lambda rng: [_some_nodes(cluster, rng) for _ in range(rng.randint(0, 2))])
    node = cluster.nodes[number]
    if not topics or not node.host.is_alive:
        return
    cluster.log(f"node {number} dies, for {away_s} s; topics {topics} are to be deleted; {topics[0]} again: {again}")
    cluster.loop.kill(node.host)
    call_after(cluster, away_s, restart, cluster, number)
    await cluster.store.topic_requests.request_deletions(topics)
    if again:
        await _recreate_when_deleted(cluster, topics[0], again)


async def _recreate_when_deleted(cluster: ClusterUnderTest, topic: str, replicas: list[list[int]]) -> None:
    """Create the topic as soon as its znodes are gone from the ensemble; servers may see the deletion later."""
    assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in enumerate(replicas)}
    taken = (znodes.delete_topic_path(topic), znodes.topic_path(topic))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MAX_S):
            while True:
                while any(cluster.ensemble.tree.get(path) is not None for path in taken):
                    await cluster.next_event(TransactionCommitted)
                try:
                    await cluster.store.create_topic(
                        topic, assignment, new_topic_id(cluster.admin.randomness.bytes), {}
                    )
                except TopicExists:
                    await asyncio.sleep(_POLL_INTERVAL_S)
                    continue
                cluster.log(f"topic {topic} exists again")
                return


def _topics(cluster: ClusterUnderTest) -> list[str]:
    """The names of all topics in ZooKeeper, sorted."""
    parent = cluster.ensemble.tree.get(znodes.TOPICS)
    return sorted(parent.children) if parent is not None else []


def _some_nodes(cluster: ClusterUnderTest, rng: Rng) -> list[int]:
    """One to three random nodes."""
    return rng.sample(list(cluster.nodes), rng.randint(1, min(3, len(cluster.nodes))))
