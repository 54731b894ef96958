"""What operators and brokers do while faults happen. Each verb is a coroutine; to add one, put it into `VERBS`.

A verb draws what it decides, each decision under a name, tells the story, and acts. It runs beside other verbs. What a
cluster in trouble answers (KlammError, no answer in time) is part of the story; any other error is a finding.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from klamm.broker.replica_placement import place_replicas
from klamm.controller.decisions.shutdown_verdict import PartitionFacts, judge_stop
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import new_topic_id
from klamm.runtime.randomness import Dice
from klamm.sim import asking, by_hand, dying, moving
from klamm.sim.brokers import Node
from klamm.sim.stage import Draw, Stage, later, restart
from klamm.zk import znodes
from klamm.zk.errors import NodeExists
from klamm.zk.znodes import topic_path

Verb = Callable[[Stage, Draw], Awaitable[None]]

PATIENCE_S: Final = 15.0
"""How long a verb may take; whoever carried it out then gives up."""
_TOPICS: Final = tuple(f"t{n}" for n in range(1, 13))
"""Few names, so that they meet again."""
_NOBODY: Final = 77
"""A broker that is not there."""
_LEAVING_S: Final = 8.0
_MIN_ISR: Final = 2
_AWAY_S: Final = 5.0
_LINGERS_S: Final = 4.0


async def create_topic(stage: Stage, draw: Draw) -> None:
    """A new topic, its replicas placed as the broker's API places them."""
    unused = [t for t in _TOPICS if stage.ensemble.tree.get(topic_path(t)) is None]
    if not unused:
        return
    topic = draw("topic", lambda dice: unused[0])
    replicas = draw("replicas", lambda dice: _place(stage, dice))
    assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in enumerate(replicas)}
    stage.tell(f"topic {topic} is created: {replicas}")
    await stage.store.create_topic(topic, assignment, new_topic_id(stage.admin.randomness.bytes), {})


def _place(stage: Stage, dice: Dice) -> list[list[int]]:
    """Replicas of each partition."""
    brokers = dict.fromkeys(BrokerId(n) for n in stage.nodes)
    partitions, replicas = stage.topic_size
    placed = place_replicas(brokers, dice.randint(1, partitions), dice.randint(1, min(replicas, len(brokers))), dice)
    return [[int(b) for b in placed[n]] for n in range(len(placed))]


async def create_odd_topic(stage: Stage, draw: Draw) -> None:
    """Written by hand: partitions missing, replicas on brokers that do not exist, lists of different lengths."""
    unused = [t for t in _TOPICS if stage.ensemble.tree.get(topic_path(t)) is None]
    if not unused:
        return
    topic = draw("topic", lambda dice: unused[-1])
    partitions = draw("partitions", lambda dice: _odd_partitions(stage, dice))
    assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in partitions}
    stage.tell(f"topic {topic} is created by hand: {partitions}")
    await stage.store.create_topic(topic, assignment, new_topic_id(stage.admin.randomness.bytes), {})


def _odd_partitions(stage: Stage, dice: Dice) -> list[list[Any]]:
    brokers = [*stage.nodes, _NOBODY]
    numbers = sorted(dice.sample(range(6), dice.randint(1, 3)))
    return [[n, dice.sample(brokers, dice.randint(1, len(brokers)))] for n in numbers]


async def leave_in_order(stage: Stage, draw: Draw) -> None:
    """A controlled shutdown: the controller moves its leaders, the node ends, perhaps slowly, and comes back.

    Its ZooKeeper session may end by itself meanwhile: when it begins to leave, or when it is about to close it.
    """
    number = draw("node", lambda dice: dice.choice(list(stage.nodes)))
    back_s = draw("back_s", lambda dice: _AWAY_S * dice.random())
    session_ends = draw("session_ends", lambda dice: dice.choice(("", "", "leaving", "closing")))
    lingers_s = draw("lingers_s", lambda dice: dice.choice((0.0, _LINGERS_S)) * dice.random())
    node = stage.nodes[number]
    if not node.host.is_alive or not node.broker.is_ready:
        return
    stage.tell(f"node {number} leaves in order, back {back_s} s later{session_ends and f'; expires {session_ends}'}")
    stage.tell(f"before node {number} stops: {_verdict(stage, number)}")
    if session_ends == "leaving":
        _end_session(stage, node)
    elif session_ends == "closing":
        node.broker.on_closing = partial(_end_session, stage, node)
    leaving = stage.loop.spawn(node.host, node.broker.shut_down(), "shut-down")
    done, _ = await asyncio.wait([leaving], timeout=_LEAVING_S)
    if stage.nodes[number] is node:
        stage.tell(
            f"node {number} has left, its leaders {'moved' if done and leaving.result() else 'did not all move'}"
        )
        later(stage, lingers_s, _end, stage, number, node, back_s)


def _end_session(stage: Stage, node: Node) -> None:
    if node.session and stage.ensemble.has_quorum:
        stage.ensemble.end_session(node.session)


def _end(stage: Stage, number: int, node: Node, back_s: float) -> None:
    """The process of a node that has left; another one starts later."""
    if stage.nodes[number] is node:
        stage.loop.kill(node.host)
        later(stage, back_s, restart, stage, number)


def _verdict(stage: Stage, number: int) -> str:
    """What an operator is told before it stops, as `klamm node stop` has it from ZooKeeper."""
    states = ((p, versions[-1]) for p, versions in stage.history.states.items())
    facts = [PartitionFacts(p, now.leader, tuple(stage.history.replicas(p)), now.isr, _MIN_ISR) for p, now in states]
    found = judge_stop(BrokerId(number), frozenset(stage.history.registered), facts)
    at_risk = {str(p): why for p, why in (found.leaderless | found.below_min_isr).items()}
    return f"{len(found.moves)} leaders are to move, {'nothing is' if found.is_safe else at_risk} at risk"


async def flap(stage: Stage, draw: Draw) -> None:
    """A follower falls behind, so that its leaders take it out of their ISRs, and catches up again."""
    number = BrokerId(draw("node", lambda dice: dice.choice(list(stage.nodes))))
    seen_by = draw("seen_by", lambda dice: [n for n in stage.nodes if n != number and dice.random() < 0.7])
    for_s = draw("for_s", lambda dice: 5 * dice.random())
    stage.tell(f"nodes {seen_by} see node {number} lag for {for_s} s")
    leaders = [stage.nodes[n].broker for n in seen_by]
    for leader in leaders:
        leader.lagging[number] = None
    await asyncio.sleep(for_s)
    for leader in leaders:
        leader.lagging.pop(number, None)


async def fail_log_dir(stage: Stage, draw: Draw) -> None:
    """A log directory fails with some of the replicas; a later process finds them whole again."""
    number = draw("node", lambda dice: dice.choice(list(stage.nodes)))
    node = stage.nodes[number]
    if not node.host.is_alive:
        return
    hosted = sorted(node.broker.replicas.hosted)
    lost = draw("replicas", lambda dice: [(p.topic, p.partition) for p in hosted if dice.random() < 0.5])
    back_s = draw("back_s", lambda dice: _AWAY_S * dice.random())
    stage.tell(f"a log directory of node {number} fails with {lost}")
    partitions = [TopicPartition(topic, partition) for topic, partition in lost]
    stage.loop.call_on(node.host, stage.loop.time(), node.broker.fail_log_dir, partitions)
    await asyncio.sleep(back_s)
    if stage.nodes[number] is node:
        stage.tell(f"node {number} is killed and started with a new disk controller")
        stage.loop.kill(node.host)
        stage.start(number)


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
    "a registration that nobody can read": (znodes.broker_path(_NOBODY), b"{"),
    "features, no JSON": (znodes.FEATURE, b"{"),
    "condemned replicas, no JSON": (f"{znodes.PENDING_DELETIONS}/{_NOBODY}/scrap", b"{"),
    "a topic that nobody can read": (topic_path("scrap"), b'{"partitions":{"zero":'),
    "a topic without partitions": (topic_path("void"), b'{"version":3,"partitions":{}}'),
}
"""What people and tools have left in ZooKeeper: path and payload; paths that end in `_` get a number."""

_WRITTEN_ONCE: Final = "a topic without partitions"
"""It may have grown since; to empty a topic that lives is to destroy it."""


async def write_nonsense(stage: Stage, draw: Draw) -> None:
    """Somebody writes a znode by hand."""
    what = draw("what", lambda dice: dice.choice(tuple(MALFORMED)))
    path, payload = MALFORMED[what]
    stage.tell(f"somebody writes {path}: {what}")
    try:
        await stage.store.client.ensure_path(path.rpartition("/")[0])
        await stage.store.client.create(path, payload, sequential=path.endswith("_"))
    except NodeExists:
        if what != _WRITTEN_ONCE:
            await stage.store.client.set(path, payload)


VERBS: Final[dict[str, Verb]] = {
    "create topic": create_topic,
    "create odd topic": create_odd_topic,
    "leave in order": leave_in_order,
    "flap": flap,
    "fail log dir": fail_log_dir,
    "write nonsense": write_nonsense,
    "reassign": moving.reassign,
    "drop leader": moving.drop_leader,
    "reassign by znode": moving.reassign_by_znode,
    "elect preferred": moving.elect_preferred,
    "elect unclean": moving.elect_unclean,
    "allow unclean": moving.allow_unclean,
    "ask around": asking.ask_around,
    "ask oddly": asking.ask_oddly,
    "allow unclean by default": asking.allow_unclean_by_default,
    "leave together": moving.leave_together,
    "delete topics": dying.delete_topics,
    "recreate topic": dying.recreate_topic,
    "grow topic": dying.grow_topic,
    "delete without a node": dying.delete_without_a_node,
    "issue tokens": by_hand.issue_tokens,
    "update feature": asking.update_feature,
    "hand over": asking.hand_over,
    "run out of memory": asking.run_out_of_memory,
}
BY_SCRIPT: Final[dict[str, Verb]] = {
    "foreign broker": by_hand.foreign_broker,
    "finalize feature": by_hand.finalize_feature,
    "mend topic": by_hand.mend_topic,
    "delete by hand": by_hand.delete_by_hand,
    "delete znodes": by_hand.delete_znodes,
    "forbid": by_hand.forbid,
}
"""Verbs that operations use and no seed draws: what they leave for a while would be in the way of all others."""
