"""What operators do meanwhile: topics, replicas, leaders, configs and processes, by the requests of Kafka's tools."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.routing import send_to_controller
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.sim.actions import Draw, ScheduledCluster
from klamm.sim.cluster_tier.history import COMPACTED, Recreation, TierHistory, TopicFacts
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ReassignablePartition,
    ReassignableTopic,
)

OPERATION_TIMEOUT_S: Final = 20.0
FIRST_TOPIC: Final = "t1"
"""The topic that is created first; it is never deleted."""
_ASK_S: Final = 10.0
_ASK_MS: Final = 5_000
_DELETION_S: Final = 0.5
"""Until the next attempt to create a topic whose predecessor is still being deleted."""
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
ALL_BROKERS: Final = ""
THROTTLED_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLED_RATES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
UNLIMITED: Final = str(2**63 - 1)
_SET: Final = 0
_MAX_PARTITIONS: Final = 8
_RETENTION_BYTES: Final = 3_000
_RETENTIONS: Final = ((_RETENTION_BYTES, -1), (-1, 3_000), (-1, -1))
"""retention.bytes and retention.ms."""


class OperatedCluster(ScheduledCluster, Protocol):
    """A cluster of whole nodes, as operations see it."""

    tier: TierHistory

    @property
    def operator(self) -> AsyncClient:
        """The operator's client for requests to the cluster."""
        ...

    @property
    def topic_size(self) -> tuple[int, int]:
        """The greatest number of partitions of a new topic, and the number of log directories of each node."""
        ...

    def stop_in_order(self, number: int, back_s: float) -> None:
        """Stop a node as SIGTERM does, and start it again."""


Operation = Callable[[OperatedCluster, Draw], Awaitable[None]]


async def create_topic(cluster: OperatedCluster, draw: Draw) -> None:
    """A topic is created, with random replicas, min ISR, flushing and retention."""
    name = draw("topic", lambda rng: f"t{len(cluster.tier.topics) + 1}")
    brokers, (partitions, _) = sorted(cluster.nodes), cluster.topic_size
    replication = draw("replication", lambda rng: min(len(brokers), rng.choice((1, 2, 3, 3, 3, 3))))
    replicas = draw("replicas", lambda rng: [rng.sample(brokers, replication) for _ in range(partitions)])
    min_isr = draw("min_isr", lambda rng: min(replication, rng.choice((1, 2, 2, 2))))
    is_synced = draw("is_synced", lambda rng: rng.random() < 0.3)
    has_retention = draw("has_retention", lambda rng: rng.random() < 0.15)
    configs = {"min.insync.replicas": str(min_isr)}
    if is_synced:
        configs["klamm.sync.before.ack"] = "true"
    if has_retention:
        configs |= {"retention.bytes": str(_RETENTION_BYTES), "segment.bytes": "1000"}
    cluster.tier.topics[name] = TopicFacts(replication, min_isr, is_synced, has_retention)
    cluster.log(f"topic {name} is created: {replicas}, {configs}")
    topic = CreatableTopic(
        name,
        -1,
        -1,
        [CreatableReplicaAssignment(n, tuple(r)) for n, r in enumerate(replicas)],
        [CreatableTopicConfig(key, value) for key, value in configs.items()],
    )
    await ask_controller(cluster, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], _ASK_MS))


async def create_compacted_topic(cluster: OperatedCluster, further: Mapping[str, str]) -> None:
    """Create the compacted topic, with further configs.

    Raises KlammError where the request is not answered in time.
    """
    configs = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01", **further}
    topic = CreatableTopic(
        COMPACTED.topic,
        -1,
        -1,
        [CreatableReplicaAssignment(COMPACTED.partition, tuple(sorted(cluster.nodes)[:3]))],
        [CreatableTopicConfig(key, value) for key, value in {"min.insync.replicas": "2", **configs}.items()],
    )
    await ask_controller(cluster, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], _ASK_MS))


async def delete_topic(cluster: OperatedCluster, draw: Draw) -> None:
    """A topic is deleted; half of the time, one of the same name is created soon afterwards."""
    names = [name for name, facts in cluster.tier.topics.items() if not facts.is_gone]
    name = draw("topic", lambda rng: rng.choice(names[1:]) if names[1:] else "")
    again = draw("again", lambda rng: rng.random() < 0.5)
    if not name:
        return
    cluster.tier.forget_topics([name])
    znode = cluster.history.topics.znodes.get(name)
    cluster.log(f"topic {name} is deleted")
    await ask_controller(cluster, ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState(name)], (name,), _ASK_MS))
    if again:
        brokers = sorted(cluster.nodes)
        assignment = [CreatableReplicaAssignment(0, tuple(brokers[:3]))]
        cluster.log(f"topic {name} is created again")
        if znode is not None:
            cluster.tier.recreations[name] = Recreation(znode.czxid, cluster.loop.time())
        request = CreateTopicsRequest([CreatableTopic(name, -1, -1, assignment, [])], _ASK_MS)
        error = await _create(cluster, request)
        while error is ErrorCode.TOPIC_ALREADY_EXISTS:
            await asyncio.sleep(_DELETION_S)
            error = await _create(cluster, request)


async def _create(cluster: OperatedCluster, request: CreateTopicsRequest) -> ErrorCode:
    """Ask for a topic, and return the answer. Raises KlammError where there is none in time."""
    answer = await ask_controller(cluster, ApiKey.CREATE_TOPICS, request)
    return ErrorCode(answer.topics[0].error_code)


async def add_partitions(cluster: OperatedCluster, draw: Draw) -> None:
    """A topic gets one more partition."""
    name = draw("topic", lambda rng: rng.choice(topics_of(cluster)))
    count = len(partitions_of(cluster, name)) + 1
    if 1 < count <= _MAX_PARTITIONS:
        cluster.log(f"topic {name} gets partition {count - 1}")
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], _ASK_MS)
        await ask_controller(cluster, ApiKey.CREATE_PARTITIONS, request)


async def reassign(cluster: OperatedCluster, draw: Draw) -> None:
    """The replicas of a partition move to other brokers; or the move that is under way is cancelled."""
    p = _some_partition(cluster, draw)
    if p is None:
        return
    state = cluster.history.topics.replicas(p)
    brokers = sorted(cluster.nodes)
    target = draw("target", lambda rng: rng.sample(brokers, max(1, min(len(state), len(brokers)))))
    cancels = draw("cancels", lambda rng: rng.random() < 0.2)
    moved = None if cancels else tuple(target)
    cluster.tier.forget_moves(p)
    cluster.log(f"{p} moves from {state} to {moved}")
    topic = ReassignableTopic(p.topic, [ReassignablePartition(p.partition, moved)])
    request = AlterPartitionReassignmentsRequest(_ASK_MS, [topic])
    await ask_controller(cluster, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)


async def elect_preferred(cluster: OperatedCluster, draw: Draw) -> None:
    """The preferred replicas of a topic are elected."""
    name = draw("topic", lambda rng: rng.choice(topics_of(cluster)))
    numbers = tuple(p.partition for p in partitions_of(cluster, name))
    cluster.log(f"preferred leaders of {name} are elected")
    wanted = [ElectLeadersRequestTopicPartitions(name, numbers)]
    await ask_controller(cluster, ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, wanted, _ASK_MS))


async def elect_unclean(cluster: OperatedCluster, draw: Draw) -> None:
    """An unclean election is requested for a partition without a leader; its records may be lost from then on."""
    versions, topics = cluster.history.states.versions, cluster.tier.topics
    leaderless = sorted(p for p, v in versions.items() if p.topic in topics and not v[-1].has_leader)
    found: list[Any] = draw("partition", lambda rng: list(rng.choice(leaderless)) if leaderless else [])
    if not found:
        return
    topic, number = found
    topics[topic] = topics[topic]._replace(may_be_unclean=True)
    cluster.log(f"an unclean leader of {topic}-{number} is elected")
    wanted = [ElectLeadersRequestTopicPartitions(topic, (number,))]
    await ask_controller(cluster, ApiKey.ELECT_LEADERS, ElectLeadersRequest(1, wanted, _ASK_MS))


async def change_segment_size(cluster: OperatedCluster, draw: Draw) -> None:
    """The segments of a topic become smaller or larger."""
    name = draw("topic", lambda rng: rng.choice(topics_of(cluster)))
    size = draw("bytes", lambda rng: rng.choice(("1000", "4000", "100000")))
    await set_configs(cluster, TOPIC_RESOURCE, name, {"segment.bytes": size})


async def change_retention(cluster: OperatedCluster, draw: Draw) -> None:
    """A topic gets a retention by size or by time, or none any more."""
    name = draw("topic", lambda rng: rng.choice(topics_of(cluster)[1:] or [""]))
    size, time_ms = draw("retention", lambda rng: list(rng.choice(_RETENTIONS)))
    if name:
        cluster.tier.topics[name] = cluster.tier.topics[name]._replace(has_retention=True)
        configs = {"retention.bytes": str(size), "retention.ms": str(time_ms), "segment.bytes": "1000"}
        await set_configs(cluster, TOPIC_RESOURCE, name, configs)


async def throttle(cluster: OperatedCluster, draw: Draw) -> None:
    """The replicas of a topic that catch up, and moves between log directories, get few bytes per second.

    `end_throttles` ends it when all is healed.
    """
    name = draw("topic", lambda rng: rng.choice(topics_of(cluster)))
    rate = draw("bytes_per_s", lambda rng: rng.choice((500, 2_000, 10_000)))
    await set_configs(cluster, TOPIC_RESOURCE, name, dict.fromkeys(THROTTLED_REPLICAS, "*"))
    if not cluster.is_healed:
        cluster.tier.is_throttled = True
        await set_configs(cluster, BROKER_RESOURCE, ALL_BROKERS, dict.fromkeys(THROTTLED_RATES, str(rate)))


async def end_throttles(cluster: OperatedCluster) -> None:
    """Remove the limits of `throttle`, once no request for one is under way, and again until it succeeds."""
    await asyncio.sleep(_ASK_S + 1)
    limits, is_done = dict.fromkeys(THROTTLED_RATES, UNLIMITED), False
    while not is_done:
        with contextlib.suppress(KlammError):
            is_done = await set_configs(cluster, BROKER_RESOURCE, ALL_BROKERS, limits)


async def set_configs(cluster: OperatedCluster, kind: int, name: str, configs: Mapping[str, str]) -> bool:
    """Change configs of a topic or a broker, and return whether that succeeded.

    Raises KlammError where the request is not answered in time.
    """
    cluster.log(f"configs of {name or 'all brokers'} from now on: {configs}")
    changes = [IncrementalAlterConfigsRequestAlterableConfig(key, _SET, value) for key, value in configs.items()]
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(kind, name, changes)
    request = IncrementalAlterConfigsRequest([resource])
    answer = await ask_controller(cluster, ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    if error := ErrorCode(answer.responses[0].error_code):
        cluster.log(f"configs of {name or 'all brokers'} are not changed: {error.name}")
    return not error


async def stop_in_order(cluster: OperatedCluster, draw: Draw) -> None:
    """A node is stopped with a controlled shutdown, and soon started again."""
    number = draw("node", lambda rng: rng.choice(sorted(cluster.nodes)))
    back_s = draw("back_s", lambda rng: rng.choice((0.0, 1.0, 8.0)) * rng.random())
    if cluster.nodes[number].host.is_alive and not cluster.nodes[number].host.is_paused:
        cluster.log(f"node {number} is stopped in order, back after {back_s} s")
        cluster.stop_in_order(number, back_s)


def topics_of(cluster: OperatedCluster) -> list[str]:
    """The names of the topics that were not deleted."""
    return [name for name, facts in cluster.tier.topics.items() if not facts.is_gone]


def partitions_of(cluster: OperatedCluster, name: str) -> list[TopicPartition]:
    """The partitions of a topic that have a state."""
    return sorted(p for p in cluster.history.states.versions if p.topic == name)


def _some_partition(cluster: OperatedCluster, draw: Draw) -> TopicPartition | None:
    """A random partition that has a state; None where there is none."""
    known = sorted(p for name in topics_of(cluster) for p in partitions_of(cluster, name))
    chosen: list[Any] = draw("partition", lambda rng: list(rng.choice(known)) if known else [])
    return TopicPartition(*chosen) if chosen else None


async def ask_controller(cluster: OperatedCluster, key: ApiKey, message: Any) -> Any:
    """Send the request to the controller, retrying. Raises KlammError where it is not answered in time."""
    client = cluster.operator
    steps = send_to_controller(client.cluster, Request(key, message), Backoff(cluster.loop.time, _ASK_S))
    answer = await client.run(steps)
    if code := getattr(answer, "error_code", 0):
        cluster.log(f"{key.name}: {ErrorCode(code).name}")
    return answer
