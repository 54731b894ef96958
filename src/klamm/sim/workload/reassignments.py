"""Verbs for reassignments, elections, and controlled shutdowns of several nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.actions import ClusterUnderTest, Draw, call_after, restart
from klamm.sim.nodes.broker import Node
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_preferred_election, encode_reassignment
from klamm.zk.errors import NodeExists
from klamm.zk.znodes import MalformedZnode

_MAX_REPLICAS: Final = 3
_INVALID_SHARE: Final = 0.15
"""So many requests have a list of replicas that is empty, repeats a broker, or names one that there cannot be."""
_SHUTDOWN_LIMIT_S: Final = 8.0
_MAX_DOWNTIME_S: Final = 5.0
_TO_ANOTHER: Final = 2
_MAX_POLLS: Final = 20
_RETRY_INTERVAL_S: Final = 0.25


async def reassign(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An operator reassigns partitions by API, overrides running reassignments, or cancels them."""
    targets = draw("targets", lambda rng: _draw_new_replicas(cluster, rng, may_cancel=True))
    wanted = {_topic_partition(p): None if t is None else tuple(map(BrokerId, t)) for p, t in targets.items()}
    node = acting_controller(cluster)
    if node is None or not wanted:
        return
    cluster.log(f"node {node.broker.number} is asked to move {targets}")
    answer = await await_on_node(cluster, node, node.broker.controller.alter_reassignments, wanted)
    if answer is not None:
        refused = {str(p): refusal.error.name for p, refusal in answer.refused.items()}
        cluster.log(f"the answer to the move: {answer.error.name} {refused}")


async def reassign_by_znode(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An operator reassigns partitions by the `/admin/reassign_partitions` znode, which cannot cancel."""
    targets = draw("targets", lambda rng: _draw_new_replicas(cluster, rng, may_cancel=False))
    if not targets:
        return
    wanted = {_topic_partition(p): tuple(map(BrokerId, t)) for p, t in targets.items() if t is not None}
    cluster.log(f"a tool writes {znodes.REASSIGN_PARTITIONS}: {targets}")
    await _create_znode_unless_present(cluster, znodes.REASSIGN_PARTITIONS, encode_reassignment(wanted))


async def drop_leader_from_reassignment(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An adding replica becomes leader during a slow reassignment, which is then overridden or cancelled without it."""
    name = draw("partition", lambda rng: rng.choice(_partitions(cluster) or [""]))
    away = [n for n in cluster.nodes if name and n not in cluster.history.topics.replicas(_topic_partition(name))]
    if len(away) < _TO_ANOTHER:
        return
    leader, slow = draw("others", lambda rng: rng.sample(away, _TO_ANOTHER))
    cancels = draw("cancels", lambda rng: rng.random() < 0.5)
    for node in cluster.nodes.values():
        node.broker.lagging[BrokerId(slow)] = None
    cluster.log(
        f"{name} moves to {[leader, slow]}, of which node {slow} lags; {leader} is to lead, and is dropped then"
    )
    try:
        await _alter_reassignment(cluster, name, [leader, slow])
        for _ in range(_MAX_POLLS):
            state = cluster.history.states.versions.get(_topic_partition(name), [None])[-1]
            if state is None or state.leader == leader:
                break
            if leader in state.isr and (acting := acting_controller(cluster)) is not None:
                elect = acting.broker.controller.elect_leaders
                await await_on_node(cluster, acting, elect, [_topic_partition(name)], unclean=False)
            await asyncio.sleep(_RETRY_INTERVAL_S)
        await _alter_reassignment(cluster, name, None if cancels else [slow])
    finally:
        for node in cluster.nodes.values():
            node.broker.lagging.pop(BrokerId(slow), None)


async def _alter_reassignment(cluster: ClusterUnderTest, name: str, target: list[int] | None) -> None:
    """Set or cancel the reassignment of one partition."""
    if (node := acting_controller(cluster)) is not None:
        wanted = {_topic_partition(name): None if target is None else tuple(map(BrokerId, target))}
        answer = await await_on_node(cluster, node, node.broker.controller.alter_reassignments, wanted)
        cluster.log(f"the answer to the move of {name} to {target}: {answer}")


async def elect_preferred(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An operator requests preferred leader elections, by API or by znode."""
    chosen = draw("partitions", lambda rng: [p for p in _partitions(cluster) if rng.random() < 0.5])
    by_znode = draw("by_znode", lambda rng: rng.random() < 0.5)
    keys = [_topic_partition(p) for p in chosen]
    if by_znode:
        cluster.log(f"a tool writes {znodes.PREFERRED_ELECTION}: {chosen}")
        await _create_znode_unless_present(cluster, znodes.PREFERRED_ELECTION, encode_preferred_election(keys))
    elif (node := acting_controller(cluster)) is not None:
        cluster.log(f"node {node.broker.number} is asked for preferred elections of {chosen}")
        await await_on_node(cluster, node, node.broker.controller.elect_leaders, keys, unclean=False)


async def elect_unclean(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An operator requests unclean leader elections."""
    chosen = draw("partitions", lambda rng: [p for p in _partitions(cluster) if rng.random() < 0.3])
    if (node := acting_controller(cluster)) is not None and chosen:
        cluster.log(f"node {node.broker.number} is asked for unclean elections of {chosen}")
        keys = [_topic_partition(p) for p in chosen]
        answer = await await_on_node(cluster, node, node.broker.controller.elect_leaders, keys, unclean=True)
        if answer is not None:
            cluster.log(f"the answer to the elections: {answer}")


async def shut_down_together(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Several nodes do a controlled shutdown at the same time."""
    numbers = draw("nodes", lambda rng: rng.sample(list(cluster.nodes), min(2, len(cluster.nodes))))
    back_s = draw("back_s", lambda rng: _MAX_DOWNTIME_S * rng.random())
    leaving = {
        n: cluster.nodes[n] for n in numbers if cluster.nodes[n].host.is_alive and cluster.nodes[n].broker.is_ready
    }
    if not leaving:
        return
    cluster.log(
        f"nodes {list(leaving)} shut down in a controlled way at the same time, and start again {back_s} s later"
    )
    tasks = [cluster.loop.spawn(node.host, node.broker.shut_down(), "shut-down") for node in leaving.values()]
    await asyncio.wait(tasks, timeout=_SHUTDOWN_LIMIT_S)
    for number, node in leaving.items():
        if cluster.nodes[number] is node:
            cluster.loop.kill(node.host)
            call_after(cluster, back_s, restart, cluster, number)


def acting_controller(cluster: ClusterUnderTest) -> Node | None:
    """The running node whose controller is active; None if there is none."""
    return next((n for n in cluster.nodes.values() if n.host.is_alive and n.broker.controller.is_active), None)


async def await_on_node(
    cluster: ClusterUnderTest, node: Node, request: Callable[..., Awaitable[Any]], *args: Any, **options: Any
) -> Any:
    """Call `request` on the node's host and await it; return None if the node dies or does not answer in time."""

    async def ask() -> Any:
        """Make the request and return its result."""
        return await request(*args, **options)

    task = cluster.loop.spawn(node.host, ask(), "admin-request")
    await asyncio.wait([task], timeout=_SHUTDOWN_LIMIT_S)
    return task.result() if task.done() and not task.cancelled() else None


async def _create_znode_unless_present(cluster: ClusterUnderTest, path: str, payload: bytes) -> None:
    """Create a request znode; log if it exists already."""
    try:
        await cluster.store.client.create(path, payload)
    except NodeExists:
        cluster.log(f"{path} already exists")


def _topic_partition(name: str) -> TopicPartition:
    """Parse `topic-0`."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def _partitions(cluster: ClusterUnderTest) -> list[str]:
    """The names of all partitions in ZooKeeper, such as `t1-0`."""
    parent = cluster.ensemble.tree.get(znodes.TOPICS)
    names: list[str] = []
    for topic in sorted(parent.children) if parent is not None else ():
        node = cluster.ensemble.tree.get(znodes.topic_path(topic))
        try:
            names += [f"{topic}-{n}" for n in znodes.decode_topic(topic, node.data if node else None).partitions]
        except MalformedZnode:
            continue
    return names


def _draw_new_replicas(cluster: ClusterUnderTest, rng: Rng, may_cancel: bool) -> dict[str, list[int] | None]:
    """Random new replicas for some partitions; None cancels a reassignment."""
    found: dict[str, list[int] | None] = {}
    for name in _partitions(cluster):
        if rng.random() < 0.6:
            cancels = may_cancel and rng.random() < 0.25
            count = rng.randint(1, min(_MAX_REPLICAS, len(cluster.nodes)))
            found[name] = None if cancels else rng.sample(list(cluster.nodes), count)
    if found and rng.random() < _INVALID_SHARE:
        number = rng.choice(list(cluster.nodes))
        found[rng.choice(list(found))] = rng.choice(([], [number, number], [-1, number], [0, number]))
    return found
