"""Verbs about growth and end of topics: deleted, made again at once, grown meanwhile, without a node for long."""

import asyncio
import contextlib
from typing import Final

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.runtime.randomness import Dice
from klamm.sim.stage import Draw, Stage, later, restart
from klamm.zk import znodes
from klamm.zk.store import TopicExists
from klamm.zk.znodes import MalformedZnode

_LOOK_S: Final = 0.05
_LONGEST_S: Final = 12.0
_LONG_AWAY_S: Final = (9.0, 14.0)
"""Longer than deletions wait for a broker that is gone."""


async def delete_topics(stage: Stage, draw: Draw) -> None:
    """An operator deletes some topics at once."""
    topics = draw("topics", lambda dice: [t for t in _topics(stage) if dice.random() < 0.3])
    if topics:
        stage.tell(f"topics {topics} are to be deleted")
        await stage.store.topic_requests.request_deletions(topics)


async def recreate_topic(stage: Stage, draw: Draw) -> None:
    """A topic is deleted, and made again in the first moment in which that is possible."""
    known = _topics(stage)
    if not known:
        return
    topic = draw("topic", lambda dice: dice.choice(known))
    replicas = draw("replicas", lambda dice: [_some_nodes(stage, dice) for _ in range(dice.randint(1, 3))])
    stage.tell(f"topic {topic} is to be deleted, and made again at once: {replicas}")
    await stage.store.topic_requests.request_deletions([topic])
    await _create_again(stage, topic, replicas)


async def grow_topic(stage: Stage, draw: Draw) -> None:
    """A topic gets more partitions; often one that is to be deleted."""
    known = _topics(stage)
    dying = [t for t in known if stage.ensemble.tree.get(znodes.delete_topic_path(t)) is not None]
    if not known:
        return
    topic = draw("topic", lambda dice: dice.choice(dying if dying and dice.random() < 0.7 else known))
    replicas = draw("replicas", lambda dice: [_some_nodes(stage, dice) for _ in range(dice.randint(1, 2))])
    deletes_first = draw("deletes_first", lambda dice: dice.random() < 0.3)
    if deletes_first:
        await stage.store.topic_requests.request_deletions([topic])
    try:
        read = await stage.store.topic_requests.read(topic)
    except MalformedZnode:
        return
    if read is None:
        return
    now, version = read
    first = max(now.partitions, default=-1) + 1
    added = dict(enumerate(replicas, first))
    stage.tell(f"topic {topic}{', which is to be deleted,' if deletes_first else ''} grows by {added}")
    await stage.store.topic_requests.add_partitions(topic, now, added, version)


async def delete_without_a_node(stage: Stage, draw: Draw) -> None:
    """A node dies and stays away for long; meanwhile topics are deleted, and one of them may be made again there."""
    number = draw("node", lambda dice: dice.choice(tuple(stage.nodes)))
    away_s = draw("away_s", lambda dice: dice.uniform(*_LONG_AWAY_S))
    topics = draw("topics", lambda dice: [t for t in _topics(stage) if dice.random() < 0.5])
    again = draw("again", lambda dice: [_some_nodes(stage, dice) for _ in range(dice.randint(0, 2))])
    node = stage.nodes[number]
    if not topics or not node.host.is_alive:
        return
    stage.tell(f"node {number} dies, for {away_s} s; topics {topics} are to be deleted; {topics[0]} again: {again}")
    stage.loop.kill(node.host)
    later(stage, away_s, restart, stage, number)
    await stage.store.topic_requests.request_deletions(topics)
    if again:
        await _create_again(stage, topics[0], again)


async def _create_again(stage: Stage, topic: str, replicas: list[list[int]]) -> None:
    """In the first moment in which the name is free, as the ensemble sees it; servers may know it later."""
    assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in enumerate(replicas)}
    taken = (znodes.delete_topic_path(topic), znodes.topic_path(topic))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST_S):
            while True:
                while any(stage.ensemble.tree.get(path) is not None for path in taken):
                    await stage.next_commit()
                try:
                    await stage.store.create_topic(topic, assignment, new_topic_id(stage.admin.randomness.bytes), {})
                except TopicExists:
                    await asyncio.sleep(_LOOK_S)
                    continue
                stage.tell(f"topic {topic} is there again")
                return


def _topics(stage: Stage) -> list[str]:
    """Those in the tree, in order of names."""
    parent = stage.ensemble.tree.get(znodes.TOPICS)
    return sorted(parent.children) if parent is not None else []


def _some_nodes(stage: Stage, dice: Dice) -> list[int]:
    return dice.sample(list(stage.nodes), dice.randint(1, min(3, len(stage.nodes))))
