"""What the active controller keeps beside topics, states and brokers at rest: it follows from these, or is empty.

`memory.py` compares topics, states and brokers themselves with ZooKeeper. This module reads a controller's memory, too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from klamm.controller.context import ControllerContext
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId
from klamm.sim.invariants.contexts import difference
from klamm.sim.invariants.views import Cluster
from klamm.sim.nodes.broker import StubBroker
from klamm.telemetry.meters import Timer

_TIMERS = {
    1: "controllerchange",
    2: "leaderelection",
    3: "topicchange",
    4: "topicdeletion",
    5: "partitionreassignment",
    6: "autoleaderbalance",
    7: "manualleaderbalance",
    8: "controlledshutdown",
    9: "isrchange",
    10: "leaderandisrresponsereceived",
    11: "logdirchange",
    12: "controllershutdown",
    13: "uncleanleaderelectionenable",
    14: "topicuncleanleaderelectionenable",
    15: "listpartitionreassignment",
    17: "updatefeatures",
}
"""The metric of each controller state by its number, as in Kafka 3.9 (`ControllerState.scala`)."""
_ALL_KEEP_MIRRORS = 5
_STANDBYS = 2
_GAUGE = "kafka_controller_kafkacontroller_"
_STATS = "kafka_controller_controllerstats_"
_QUEUE = "kafka_controller_controllereventmanager_"
_CHANNELS = "kafka_controller_controllerchannelmanager_"


def indexes_follow_from_states(cluster: Cluster) -> str | None:
    """The controller's indexes, counters and states of partitions and replicas follow from topics, states and brokers.

    Nothing is left of work that has ended. Topics that are to be deleted have other states, which are not compared.
    """
    for broker in cluster.running:
        if broker.controller.term is None:
            continue
        context = broker.controller.term.context
        for name, (kept, expected) in {**_counted(context), **_states(cluster, context), **_left_over(context)}.items():
            if kept != expected:
                return f"the controller, broker {broker.number}, keeps {name} {difference(kept, expected)}"
    return None


def _counted(context: ControllerContext) -> dict[str, tuple[Any, Any]]:
    """By name, what the context keeps about its partitions, and what follows from them."""
    all_partitions = [p for topic in context.topics.values() for p in topic.partitions.values()]
    staying = [p for p in all_partitions if p.topic not in context.topics_to_be_deleted]
    led: dict[BrokerId, list[Partition]] = {}
    for p in all_partitions:
        if p.leadership is not None:
            led.setdefault(p.leadership.leader, []).append(p)
    offline = [p for p in staying if p.state is PartitionState.OFFLINE]
    imbalanced = [p for p in staying if p.leadership is not None and p.leadership.leader != p.assignment.replicas[0]]
    return {
        "the number of partitions": (context.partition_count, len(all_partitions)),
        "led partitions": (_names(context.led_by), _names(led)),
        "new and offline partitions": (
            _names(context.in_state),
            _names({s: [p for p in all_partitions if p.state is s] for s in context.in_state}),
        ),
        "reassignments": (
            sorted(str(p) for p in context.reassigning if p.topic not in context.topics_to_be_deleted),
            sorted(str(p) for p in staying if p.assignment.adding or p.assignment.removing),
        ),
        "the number of offline partitions": (context.offline_count, len(offline)),
        "imbalanced partitions": (
            sorted(str(p) for p in all_partitions if p.is_imbalanced),
            sorted(map(str, imbalanced)),
        ),
        "the number of imbalanced partitions": (context.imbalanced_count, len(imbalanced)),
        "topics by id": (
            [t.name for t in context.topics.values() if t.id is not None and context.topic_with_id(t.id) is not t],
            [],
        ),
        "the live brokers": (context.live, frozenset(context.registered) - context.shutting_down),
        "the leaving brokers": (context.leaving, frozenset(context.registered) & context.shutting_down),
    }


def _names(partitions: Mapping[Any, Iterable[Partition]]) -> dict[Any, list[str]]:
    """The names of the partitions under each key that has some."""
    return {key: names for key, held in partitions.items() if (names := sorted(map(str, held)))}


def _states(cluster: Cluster, context: ControllerContext) -> dict[str, tuple[Any, Any]]:
    """By name, the states of partitions and replicas, and those that follow from leaders and live brokers.

    As in Kafka, all replicas of a partition that this controller created are Online, those on dead brokers, too
    (`onNewPartitionCreation`).
    """
    partitions: dict[str, PartitionState] = {}
    replicas: dict[tuple[BrokerId, str], ReplicaState | None] = {}
    for topic in context.topics.values():
        for p in topic.partitions.values():
            if topic.name in context.topics_to_be_deleted:
                continue
            partitions[str(p)] = _state_of(context, p)
            first = next(iter(cluster.history.states.versions.get(p.key, ())), None)
            is_created = first is None or first.controller_epoch == context.epoch
            for broker in p.replicas if p.leadership is not None else ():
                is_online = _is_online(context, broker, p)
                if (is_created and not is_online) or broker in p.assignment.adding:
                    continue
                replicas[broker, str(p)] = ReplicaState.ONLINE if is_online else ReplicaState.OFFLINE
    unassigned = [
        f"{p} on {broker}" for broker, held in context.replica_states.items() for p in held if broker not in p.replicas
    ]
    kept = {(broker, str(p)): state for broker, held in context.replica_states.items() for p, state in held.items()}
    return {
        "states of partitions": (
            {str(p): p.state for t in context.topics.values() for p in t.partitions.values() if str(p) in partitions},
            partitions,
        ),
        "states of replicas": ({replica: kept.get(replica) for replica in replicas}, replicas),
        "states of replicas that are not assigned": (unassigned, []),
    }


def _state_of(context: ControllerContext, p: Partition) -> PartitionState:
    """New without a state, Online with a working leader, else Offline."""
    if p.leadership is None:
        return PartitionState.NEW
    return PartitionState.ONLINE if _is_online(context, p.leadership.leader, p) else PartitionState.OFFLINE


def _is_online(context: ControllerContext, broker: BrokerId, p: Partition) -> bool:
    """Whether the broker is registered, and its log directory with this partition works."""
    return broker in context.registered and p not in context.offline_dirs.get(broker, ())


def _left_over(context: ControllerContext) -> dict[str, tuple[Any, Any]]:
    """By name, what the context keeps of work that has ended, and nothing."""
    queued, registered = context.topics_to_be_deleted, context.registered
    pending = [(broker, i) for broker, records in context.pending_deletions.items() for i in records]
    return {
        "brokers in transition": (list(context.brokers_in_transition), []),
        "brokers that are gone and registered": ([b for b in context.gone_since if b in registered], []),
        "failed directories of brokers that are gone": (
            [b for b, p in context.offline_dirs.items() if b not in registered and p],
            [],
        ),
        "deletions of topics that are not to be deleted": (
            [
                t
                for t in (
                    *context.topics_with_deletion_started,
                    *context.topics_ineligible_for_deletion,
                    *(t for t, count in context.started_deletions.items() if count),
                    *(p.topic for p in context.half_deleted),
                )
                if t not in queued
            ],
            [],
        ),
        "sent assignments of partitions that do not move": (
            sorted(
                str(p) for p in context.last_sent_assignments if p not in context.reassigning and p.topic not in queued
            ),
            [],
        ),
        "reassignments that complete": (
            [str(p) for t in context.topics.values() for p in t.partitions.values() if p.completing is not None],
            [],
        ),
        "finished records of pending deletions": (list(context.records_to_remove), []),
        "pending deletions by topic": (
            sorted(key for records in context.pending_by_topic.values() for key in records),
            sorted(pending),
        ),
    }


def standbys_have_a_mirror(cluster: Cluster) -> str | None:
    """All nodes of up to five keep a current mirror, of more the two with the lowest ids, but the controller none."""
    live = sorted(broker.number for broker in cluster.running)  # whom brokers know: another invariant ensures that
    chosen = live if len(live) <= _ALL_KEEP_MIRRORS else live[:_STANDBYS]
    for broker in cluster.running:
        standby = broker.controller.standby
        if standby is None:
            continue
        is_needed = broker.controller.term is None and broker.number in chosen
        if standby.is_current is not is_needed or (standby.mirror is not None) is not is_needed:
            keeps = "a mirror" if standby.is_current else "no mirror" if standby.mirror is None else "half a mirror"
            return f"broker {broker.number} keeps {keeps}, live are {live}"
    return None


def nodes_have_the_sessions_that_they_need(cluster: Cluster) -> str | None:
    """A node has one connection to ZooKeeper, and a second one only while it keeps a mirror."""
    for broker in cluster.running:
        standby, found = broker.controller.standby, cluster.connections_of(broker.number)
        keeps_mirror = standby is not None and standby.mirror is not None
        if found != 1 + keeps_mirror:
            return f"broker {broker.number} has {found} connections to ZooKeeper; it keeps a mirror: {keeps_mirror}"
    return None


def metrics_match_zookeeper(cluster: Cluster) -> str | None:
    """The metrics of every controller are those that ZooKeeper and the handled events give."""
    for broker in cluster.running:
        expected = _expected_gauges(cluster, broker)
        kept = {(r.name, r.labels): r.value for r in broker.controller.readings()}
        for name, value in expected.items():
            found = kept.get(name)
            shown = found.count if isinstance(found, Timer) else found
            if shown != value:
                return f"broker {broker.number} reports {name} {shown}, expected {value}"
    return None


def _expected_gauges(cluster: Cluster, broker: StubBroker) -> dict[tuple[str, tuple[str, ...]], int]:
    """The values of metrics by name and labels; of a timer, how often it has measured."""
    history, is_active = cluster.history, broker.controller.term is not None
    known = history.topics.znodes if is_active else {}
    queued = [t for t in history.topics.deletion_requests if t in known]
    registered = [b.number for b in cluster.running if b.number in history.registrations.current] if is_active else []
    run = broker.number, broker.incarnation
    handled: Mapping[int, int] = history.controllers.handled.get(run, {})
    taken = sum(handled.values()) + (run in history.controllers.handling)
    gauges: dict[str, int] = {
        f"{_GAUGE}activecontrollercount": int(is_active),
        f"{_GAUGE}controllerstate": 0,
        f"{_GAUGE}globaltopiccount": len(known),
        f"{_GAUGE}globalpartitioncount": sum(len(t.partitions) for t in known.values()),
        f"{_GAUGE}topicstodeletecount": len(queued),
        f"{_GAUGE}activebrokercount": len(registered),
        f"{_GAUGE}fencedbrokercount": 0,
        f"{_QUEUE}eventqueuesize": 0,
        f"{_QUEUE}eventqueuetimems": taken,
        f"{_CHANNELS}totalqueuesize": 0,
        **{f"{_STATS}{name}rateandtimems": handled.get(state, 0) for state, name in _TIMERS.items()},
    }
    queues: dict[tuple[str, tuple[str, ...]], int] = {
        (f"{_CHANNELS}queuesize", (str(number),)): 0 for number in registered
    }
    return {**queues, **{(name, ()): value for name, value in gauges.items()}}
