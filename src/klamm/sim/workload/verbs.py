"""The table of verbs: what operators and brokers do while faults happen. To add one, put its coroutine into `VERBS`.

A verb makes its random decisions with the `Draw`, logs what it does, and does it. Verbs run concurrently. Errors that
clients of a faulty cluster expect (KlammError, timeout) are logged; any other error is a violation.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from klamm.broker.replica_placement import place_replicas
from klamm.controller.decisions.shutdown_verdict import PartitionFacts, assess_shutdown
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import new_topic_id
from klamm.runtime.randomness import Rng
from klamm.sim.actions import ClusterUnderTest, Draw, call_after, restart
from klamm.sim.nodes.broker import Node
from klamm.sim.workload import configs, controller_requests, external_changes, reassignments, topic_lifecycle, upgrades
from klamm.zk import znodes
from klamm.zk.errors import NodeExists
from klamm.zk.znodes import topic_path

Verb = Callable[[ClusterUnderTest, Draw], Awaitable[None]]

VERB_TIMEOUT_S: Final = 15.0
"""How long a verb may take; whoever carried it out then gives up."""
_TOPICS: Final = tuple(f"t{n}" for n in range(1, 13))
"""Few names, so that they meet again."""
_UNKNOWN_BROKER: Final = 77
"""A broker that is not there."""
_SHUTDOWN_LIMIT_S: Final = 8.0
_MIN_ISR: Final = 2
_MAX_DOWNTIME_S: Final = 5.0
_MAX_EXIT_DELAY_S: Final = 4.0


async def create_topic(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Create a topic, with replicas placed as the broker's API places them."""
    unused = [t for t in _TOPICS if cluster.ensemble.tree.get(topic_path(t)) is None]
    if not unused:
        return
    topic = draw("topic", lambda rng: unused[0])
    replicas = draw("replicas", lambda rng: _draw_assignment(cluster, rng))
    assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in enumerate(replicas)}
    cluster.log(f"topic {topic} is created: {replicas}")
    await cluster.store.create_topic(topic, assignment, new_topic_id(cluster.admin.randomness.bytes), {})


def _draw_assignment(cluster: ClusterUnderTest, rng: Rng) -> list[list[int]]:
    """Random replicas of each partition of a new topic."""
    brokers = dict.fromkeys(BrokerId(n) for n in cluster.nodes)
    partitions, replicas = cluster.topic_size
    placed = place_replicas(brokers, rng.randint(1, partitions), rng.randint(1, min(replicas, len(brokers))), rng)
    return [[int(b) for b in placed[n]] for n in range(len(placed))]


async def create_irregular_topic(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Create a topic with missing partition numbers, unknown brokers, or different numbers of replicas."""
    unused = [t for t in _TOPICS if cluster.ensemble.tree.get(topic_path(t)) is None]
    if not unused:
        return
    topic = draw("topic", lambda rng: unused[-1])
    partitions = draw("partitions", lambda rng: _irregular_partitions(cluster, rng))
    assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in partitions}
    cluster.log(f"topic {topic} is created by hand: {partitions}")
    await cluster.store.create_topic(topic, assignment, new_topic_id(cluster.admin.randomness.bytes), {})


def _irregular_partitions(cluster: ClusterUnderTest, rng: Rng) -> list[list[Any]]:
    """Random partition numbers and replicas, with gaps and an unknown broker: `[number, replicas]` each."""
    brokers = [*cluster.nodes, _UNKNOWN_BROKER]
    numbers = sorted(rng.sample(range(6), rng.randint(1, 3)))
    return [[n, rng.sample(brokers, rng.randint(1, len(brokers)))] for n in numbers]


async def controlled_shutdown_and_restart(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A node does a controlled shutdown, exits perhaps late, and restarts.

    Its ZooKeeper session may expire meanwhile: at the begin of the shutdown, or just before the session is closed.
    """
    number = draw("node", lambda rng: rng.choice(list(cluster.nodes)))
    back_s = draw("back_s", lambda rng: _MAX_DOWNTIME_S * rng.random())
    session_ends = draw("session_ends", lambda rng: rng.choice(("", "", "leaving", "closing")))
    lingers_s = draw("lingers_s", lambda rng: rng.choice((0.0, _MAX_EXIT_DELAY_S)) * rng.random())
    node = cluster.nodes[number]
    if not node.host.is_alive or not node.broker.is_ready:
        return
    cluster.log(
        f"node {number} shuts down in a controlled way, and starts again {back_s} s "
        f"later{session_ends and f'; expires {session_ends}'}"
    )
    cluster.log(f"before node {number} stops: {_describe_shutdown_verdict(cluster, number)}")
    if session_ends == "leaving":
        _end_session(cluster, node)
    elif session_ends == "closing":
        node.broker.on_closing = partial(_end_session, cluster, node)
    leaving = cluster.loop.spawn(node.host, node.broker.shut_down(), "shut-down")
    done, _ = await asyncio.wait([leaving], timeout=_SHUTDOWN_LIMIT_S)
    if cluster.nodes[number] is node:
        cluster.log(
            f"node {number} has left, its leaders {'moved' if done and leaving.result() else 'did not all move'}"
        )
        call_after(cluster, lingers_s, _end_process, cluster, number, node, back_s)


def _end_session(cluster: ClusterUnderTest, node: Node) -> None:
    """End the node's ZooKeeper session."""
    if node.session and cluster.ensemble.has_quorum:
        cluster.ensemble.end_session(node.session)


def _end_process(cluster: ClusterUnderTest, number: int, node: Node, back_s: float) -> None:
    """Kill the process of a node that completed its shutdown, and start another later."""
    if cluster.nodes[number] is node:
        cluster.loop.kill(node.host)
        call_after(cluster, back_s, restart, cluster, number)


def _describe_shutdown_verdict(cluster: ClusterUnderTest, number: int) -> str:
    """What `klamm node stop` would tell the operator before the shutdown: leaders to move, partitions at risk."""
    states = ((p, versions[-1]) for p, versions in cluster.history.states.versions.items())
    facts = [
        PartitionFacts(p, now.leader, tuple(cluster.history.topics.replicas(p)), now.isr, _MIN_ISR) for p, now in states
    ]
    found = assess_shutdown(BrokerId(number), frozenset(cluster.history.registrations.current), facts)
    at_risk = {str(p): why for p, why in (found.leaderless | found.below_min_isr).items()}
    return f"{len(found.moves)} leaders are to move, {'nothing is' if found.is_safe else at_risk} at risk"


async def follower_lags_and_catches_up(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A follower lags, so that leaders remove it from their ISRs, and then catches up."""
    number = BrokerId(draw("node", lambda rng: rng.choice(list(cluster.nodes))))
    seen_by = draw("seen_by", lambda rng: [n for n in cluster.nodes if n != number and rng.random() < 0.7])
    for_s = draw("for_s", lambda rng: 5 * rng.random())
    cluster.log(f"nodes {seen_by} see node {number} lag for {for_s} s")
    leaders = [cluster.nodes[n].broker for n in seen_by]
    for leader in leaders:
        leader.lagging[number] = None
    await asyncio.sleep(for_s)
    for leader in leaders:
        leader.lagging.pop(number, None)


async def fail_log_dir(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A log directory with some of the replicas fails; a new process of the node finds them intact."""
    number = draw("node", lambda rng: rng.choice(list(cluster.nodes)))
    node = cluster.nodes[number]
    if not node.host.is_alive:
        return
    hosted = sorted(node.broker.replicas.hosted)
    lost = draw("replicas", lambda rng: [(p.topic, p.partition) for p in hosted if rng.random() < 0.5])
    back_s = draw("back_s", lambda rng: _MAX_DOWNTIME_S * rng.random())
    cluster.log(f"a log directory of node {number} fails with {lost}")
    partitions = [TopicPartition(topic, partition) for topic, partition in lost]
    cluster.loop.call_on(node.host, cluster.loop.time(), node.broker.fail_log_dir, partitions)
    await asyncio.sleep(back_s)
    if cluster.nodes[number] is node:
        cluster.log(f"node {number} is killed and started with a new disk controller")
        cluster.loop.kill(node.host)
        cluster.start(number)


MALFORMED: Final[dict[str, tuple[str, bytes]]] = {
    "reassignment, no JSON": (znodes.REASSIGN_PARTITIONS, b"{"),
    "reassignment, empty": (znodes.REASSIGN_PARTITIONS, b""),
    "reassignment of an unknown topic": (
        znodes.REASSIGN_PARTITIONS,
        b'{"version":1,"partitions":[{"topic":"nope","partition":0,"replicas":[1]}]}',
    ),
    "reassignment to nobody": (
        znodes.REASSIGN_PARTITIONS,
        b'{"version":1,"partitions":[{"topic":"t1","partition":0,"replicas":[]}]}',
    ),
    "reassignment to one broker twice": (
        znodes.REASSIGN_PARTITIONS,
        b'{"version":1,"partitions":[{"topic":"t1","partition":0,"replicas":[1,1]}]}',
    ),
    "reassignment to a foreign broker": (
        znodes.REASSIGN_PARTITIONS,
        b'{"version":1,"partitions":[{"topic":"t1","partition":0,"replicas":[1,77]}]}',
    ),
    "reassignment with an unknown field": (znodes.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[],"why":"?"}'),
    "election, no JSON": (znodes.PREFERRED_ELECTION, b"please"),
    "election in an unknown topic": (
        znodes.PREFERRED_ELECTION,
        b'{"version":1,"partitions":[{"topic":"nope","partition":0},{"topic":"t1","partition":99}]}',
    ),
    "ISR change, no JSON": (f"{znodes.ISR_CHANGES}/isr_change_", b"\xff"),
    "ISR change of an unknown topic": (
        f"{znodes.ISR_CHANGES}/isr_change_",
        b'{"version":1,"partitions":[{"topic":"nope","partition":0}]}',
    ),
    "ISR change that did not happen": (
        f"{znodes.ISR_CHANGES}/isr_change_",
        b'{"version":1,"partitions":[{"topic":"t1","partition":0}]}',
    ),
    "config change, no JSON": (f"{znodes.CONFIG_CHANGES}/config_change_", b"{"),
    "config change of a foreign topic": (
        f"{znodes.CONFIG_CHANGES}/config_change_",
        b'{"version":2,"entity_path":"topics/nope"}',
    ),
    "log directory event, no JSON": (f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}", b"[1"),
    "log directory event of a foreign broker": (
        f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}",
        b'{"version":1,"broker":77,"event":1}',
    ),
    "log directory event without reason": (
        f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}",
        b'{"version":1,"broker":1,"event":1}',
    ),
    "deletion of an unknown topic": (znodes.delete_topic_path("nope"), b""),
    "a broker that is no number": (f"{znodes.BROKER_IDS}/one", b"{}"),
    "a registration that nobody can read": (znodes.broker_path(_UNKNOWN_BROKER), b"{"),
    "features, no JSON": (znodes.FEATURE, b"{"),
    "pending deletions, no JSON": (f"{znodes.PENDING_DELETIONS}/{_UNKNOWN_BROKER}/scrap", b"{"),
    "a topic that nobody can read": (topic_path("scrap"), b'{"partitions":{"zero":'),
    "a topic without partitions": (topic_path("void"), b'{"version":3,"partitions":{}}'),
}
"""What people and tools have left in ZooKeeper: path and payload; paths that end in `_` get a number."""

_WRITTEN_ONCE: Final = "a topic without partitions"
"""It may have grown since; to empty a topic that lives is to destroy it."""


async def write_malformed_znode(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Somebody writes a malformed or unexpected znode."""
    what = draw("what", lambda rng: rng.choice(tuple(MALFORMED)))
    path, payload = MALFORMED[what]
    cluster.log(f"a tool writes {path}: {what}")
    try:
        if parent := path.rpartition("/")[0]:
            await cluster.store.client.ensure_path(parent)
        await cluster.store.client.create(path, payload, sequential=path.endswith("_"))
    except NodeExists:
        if what != _WRITTEN_ONCE:
            await cluster.store.client.set(path, payload)


VERBS: Final[dict[str, Verb]] = {
    "create topic": create_topic,
    "create irregular topic": create_irregular_topic,
    "controlled shutdown": controlled_shutdown_and_restart,
    "follower lags and catches up": follower_lags_and_catches_up,
    "fail log dir": fail_log_dir,
    "write malformed znode": write_malformed_znode,
    "reassign": reassignments.reassign,
    "remove leader by reassignment": reassignments.drop_leader_from_reassignment,
    "reassign by znode": reassignments.reassign_by_znode,
    "elect preferred": reassignments.elect_preferred,
    "elect unclean": reassignments.elect_unclean,
    "allow unclean": configs.allow_unclean,
    "change config": configs.change_config,
    "query controller": controller_requests.query_controller,
    "send invalid AlterPartition": controller_requests.send_invalid_alter_partition,
    "allow unclean by default": controller_requests.allow_unclean_by_default,
    "shut down together": reassignments.shut_down_together,
    "delete topics": topic_lifecycle.delete_topics,
    "recreate topic": topic_lifecycle.recreate_topic,
    "grow topic": topic_lifecycle.grow_topic,
    "delete without a node": topic_lifecycle.delete_without_a_node,
    "issue tokens": external_changes.issue_tokens,
    "update feature": controller_requests.update_feature,
    "hand over": controller_requests.hand_over,
    "run out of memory": controller_requests.run_out_of_memory,
    "roll protocol": upgrades.roll_protocol,
}
SCRIPTED_VERBS: Final[dict[str, Verb]] = {
    "foreign broker": external_changes.foreign_broker,
    "finalize feature": external_changes.finalize_feature,
    "repair unreadable topic": external_changes.repair_unreadable_topic,
    "recreate topic in ZooKeeper": external_changes.recreate_topic_in_zookeeper,
    "delete znodes": external_changes.delete_znodes,
    "forbid by ACL": external_changes.forbid_by_acl,
}
"""Verbs that operations use and no seed draws: what they leave for a while would be in the way of all others."""
