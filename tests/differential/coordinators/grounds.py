"""The clusters of two brokers on which scripts are played: klamm's, Apache Kafka's, and one with a broker of each.

Every script has a slot for itself: one partition of each coordinator topic, whose leader is moved to the other broker
and back by a reassignment to the same replicas in the other order and an election. So many scripts run side by side,
and in the mixed cluster each move hands the script's group and transactions over to the other kind of coordinator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.differential.coordinators.names import DATA, PARTITIONS
from tests.differential.coordinators.player import Address
from tests.differential.coordinators.script import KILL
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.mixed_cluster import MixedCluster

from klamm.client.connection import Connection
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from klamm.embedded.nodes import klamm_node
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.world import real_world
from klamm.wire import messages as m
from klamm.wire.api import ApiKey

SLOTS: Final = 40
KLAMM, APACHE, MIXED = "klamm", "apache", "mixed"
KINDS: Final = (KLAMM, APACHE, MIXED)
_TIMEOUT_S: Final = 60.0
_CREATION_TIMEOUT_S: Final = 180.0
_LOOK_S: Final = 0.05
_LOADING: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def properties(delay_ms: int) -> dict[str, str]:
    """Configs of all brokers: short timers, and nothing in the background that changes what scripts see."""
    return {
        "offsets.topic.num.partitions": str(SLOTS),
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.num.partitions": str(SLOTS),
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "group.min.session.timeout.ms": "1000",
        "group.max.size": "4",
        "group.initial.rebalance.delay.ms": str(delay_ms),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
        "offsets.retention.check.interval.ms": "86400000",
        "log.cleaner.enable": "false",
        "replica.fetch.wait.max.ms": "100",
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
    }


class TwoBrokers:
    """A running cluster; `create_topics` first."""

    def __init__(self, cluster: Cluster, apache_ids: Collection[int]) -> None:
        self._cluster = cluster
        self._apache_ids = apache_ids
        self._script_count = 0
        self._ids = tuple(sorted(node.broker_id for node in cluster.nodes))
        self._addresses = {node.broker_id: Address("127.0.0.1", node.port) for node in cluster.nodes}
        self._leaders: dict[TopicPartition, int] = {}
        self._connections: dict[Address, Connection] = {}

    async def create_topics(self, script_count: int) -> None:
        """The coordinators' topics, led by both in turn, and `data` with partitions for so many scripts."""
        self._script_count = script_count
        orders = [list(self._ids[:: 1 if slot % 2 == 0 else -1]) for slot in range(SLOTS)]
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            await self._create(topic, orders, {"cleanup.policy": "compact"})
            self._leaders |= {TopicPartition(topic, slot): order[0] for slot, order in enumerate(orders)}
        single = [[self._ids[number % 2]] for number in range(PARTITIONS * script_count)]
        await self._create(DATA, single, {})
        self._leaders |= {TopicPartition(DATA, number): order[0] for number, order in enumerate(single)}
        await self._wait_until_all_loaded()

    async def _create(self, topic: str, orders: list[list[int]], config: Mapping[str, str]) -> None:
        """Create a topic with these replicas, and wait until they are in sync."""
        assignments = [m.CreatableReplicaAssignment(n, tuple(replicas)) for n, replicas in enumerate(orders)]
        configs = [m.CreatableTopicConfig(name, value) for name, value in config.items()]
        new = m.CreatableTopic(topic, -1, -1, assignments, configs)
        request = m.CreateTopicsRequest([new], int(_CREATION_TIMEOUT_S * 1000))
        answer = await self._ask_controller(ApiKey.CREATE_TOPICS, 4, request)
        assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT), answer
        wait = self._cluster.wait_until_in_sync
        await asyncio.to_thread(wait, topic, len(orders), len(orders[0]), _CREATION_TIMEOUT_S)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # ---- Ground

    def leader(self, partition: TopicPartition) -> Address:
        return self._addresses[self._leaders[partition]]

    def other(self, partition: TopicPartition) -> Address:
        return self._addresses[self._other_id(partition)]

    async def move_home(self, partition: TopicPartition) -> None:
        if self._leaders[partition] != self._ids[partition.partition % 2]:
            await self.move(partition)

    async def create_topic(self, name: str) -> None:
        assignment = m.CreatableReplicaAssignment(0, (self._ids[0],))
        request = m.CreateTopicsRequest([m.CreatableTopic(name, -1, -1, [assignment])], 30_000)
        await self._ask_controller(ApiKey.CREATE_TOPICS, 4, request)
        await self._wait_until_known(name, True)

    async def delete_topic(self, name: str) -> None:
        await self._ask_controller(
            ApiKey.DELETE_TOPICS, 3, m.DeleteTopicsRequest(topic_names=(name,), timeout_ms=30_000)
        )
        await self._wait_until_known(name, False)

    async def _wait_until_known(self, topic: str, is_known: bool) -> None:
        request = m.MetadataRequest([m.MetadataRequestTopic(name=topic)], False)
        for address in self._addresses.values():
            async with asyncio.timeout(_TIMEOUT_S):
                async for _ in _ticks():
                    answer = await self._ask(address, ApiKey.METADATA, 7, request)
                    if (answer.topics[0].error_code == ErrorCode.NONE) is is_known:
                        break

    async def move(self, partition: TopicPartition) -> None:
        target = self._other_id(partition)
        replicas = (target, self._leaders[partition])
        part = m.ReassignablePartition(partition.partition, replicas)
        request = m.AlterPartitionReassignmentsRequest(30_000, [m.ReassignableTopic(partition.topic, [part])])
        await self._ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        topic = m.ElectLeadersRequestTopicPartitions(partition.topic, (partition.partition,))
        async with asyncio.timeout(_TIMEOUT_S):
            async for _ in _ticks():
                if await self._known_leader(partition) == target:
                    break
                await self._ask_controller(ApiKey.ELECT_LEADERS, 1, m.ElectLeadersRequest(0, [topic], 30_000))
        self._leaders[partition] = target
        await self._wait_until_loaded(partition)

    async def restart(self, how: str) -> None:
        """Stop or kill one broker and start it again, then the other one; wait until all partitions are served."""
        for broker_id in self._ids:
            await asyncio.to_thread(self._restart_node, broker_id, how)
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, DATA):
            request = m.MetadataRequest([m.MetadataRequestTopic(name=topic)], False)
            answer = await self._ask(next(iter(self._addresses.values())), ApiKey.METADATA, 7, request)
            found = answer.topics[0].partitions
            self._leaders |= {TopicPartition(topic, p.partition_index): p.leader_id for p in found}
        await self._wait_until_all_loaded()
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            await self.move_home(TopicPartition(topic, 0))

    def _restart_node(self, broker_id: int, how: str) -> None:
        node = self._cluster.node(broker_id)
        if how == KILL:
            node.kill()
        else:
            node.stop(_TIMEOUT_S)
        self._cluster.wait_until_forgotten(broker_id, _TIMEOUT_S)
        node.start()
        if broker_id in self._apache_ids:
            apache_kafka.wait_until_started(node, _CREATION_TIMEOUT_S)
        else:
            node.wait_until_listening()
        self._cluster.wait_until_complete()
        for topic, count, copies in (
            (OFFSETS_TOPIC, SLOTS, 2),
            (TRANSACTIONS_TOPIC, SLOTS, 2),
            (DATA, PARTITIONS * self._script_count, 1),
        ):
            self._cluster.wait_until_in_sync(topic, count, copies, _CREATION_TIMEOUT_S)

    async def _wait_until_all_loaded(self) -> None:
        """Wait until both brokers serve all partitions, and have producer ids: Kafka does not wait for its first."""
        for address in self._addresses.values():
            async with asyncio.timeout(_TIMEOUT_S):
                async for _ in _ticks():
                    answer = await self._ask(address, ApiKey.INIT_PRODUCER_ID, 4, m.InitProducerIdRequest(None, 60_000))
                    if not answer.error_code:
                        break
        for slot in range(SLOTS):
            for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
                await self._wait_until_loaded(TopicPartition(topic, slot))

    def _other_id(self, partition: TopicPartition) -> int:
        one, other = self._ids
        return other if self._leaders[partition] == one else one

    async def _wait_until_loaded(self, partition: TopicPartition) -> None:
        """Wait until the leader serves a name of the partition, and the other broker refuses it."""
        name = name_in_slot("probe", partition.partition)
        for address, is_here in ((self.leader(partition), True), (self.other(partition), False)):
            async with asyncio.timeout(_TIMEOUT_S):
                async for _ in _ticks():
                    error = await self._coordinator_error(address, partition.topic, name)
                    if error not in _LOADING and (error != ErrorCode.NOT_COORDINATOR) is is_here:
                        break

    async def _coordinator_error(self, address: Address, topic: str, name: str) -> int:
        if topic == OFFSETS_TOPIC:
            answer = await self._ask(address, ApiKey.DESCRIBE_GROUPS, 5, m.DescribeGroupsRequest((name,)))
            return int(answer.groups[0].error_code)
        request = m.DescribeTransactionsRequest((name,))
        answer = await self._ask(address, ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
        return int(answer.transaction_states[0].error_code)

    # ---- requests

    async def _known_leader(self, partition: TopicPartition) -> int:
        """The leader in the metadata of both brokers; -1 while they do not agree."""
        known = set()
        for address in self._addresses.values():
            request = m.MetadataRequest([m.MetadataRequestTopic(name=partition.topic)], False)
            answer = await self._ask(address, ApiKey.METADATA, 7, request)
            found = {p.partition_index: p.leader_id for p in answer.topics[0].partitions}
            known.add(found[partition.partition])
        return known.pop() if len(known) == 1 else -1

    async def _ask_controller(self, key: ApiKey, version: int, request: Any) -> Any:
        metadata = await self._ask(next(iter(self._addresses.values())), ApiKey.METADATA, 7, m.MetadataRequest([]))
        return await self._ask(self._addresses[metadata.controller_id], key, version, request)

    async def _ask(self, address: Address, key: ApiKey, version: int, request: Any) -> Any:
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = await Connection.open(real_world(), *address, "judge", _TIMEOUT_S)
            self._connections[address] = connection
        return await connection.request(key, version, request, _CREATION_TIMEOUT_S)


async def _ticks() -> AsyncIterator[None]:
    """At once, and then every 50 ms."""
    while True:
        yield
        await asyncio.sleep(_LOOK_S)


def name_in_slot(prefix: str, slot: int) -> str:
    """A name with this prefix that belongs to the slot's partition."""
    number = 0
    while partition_for(name := f"{prefix}-{number}", SLOTS) != slot:
        number += 1
    return name


def _klamm(directory: Path, delay_ms: int) -> Cluster:
    return Cluster(directory, 2, overrides=properties(delay_ms), command=klamm_node)


def _apache(directory: Path, delay_ms: int) -> Cluster:
    return Cluster(directory, 2, overrides=properties(delay_ms), command=apache_kafka.broker())


def _mixed(directory: Path, delay_ms: int) -> Cluster:
    return MixedCluster(directory, kafka=(1,), klamm=(2,), overrides=properties(delay_ms))


_CLUSTERS: Final[Mapping[str, Callable[[Path, int], Cluster]]] = {KLAMM: _klamm, APACHE: _apache, MIXED: _mixed}


_APACHE_IDS: Final[Mapping[str, Collection[int]]] = {KLAMM: (), APACHE: (1, 2), MIXED: (1,)}


@asynccontextmanager
async def ground(kind: str, directory: Path, delay_ms: int, script_count: int) -> AsyncIterator[TwoBrokers]:
    """A running cluster of this kind, with its topics; killed at the end."""
    cluster = _CLUSTERS[kind](directory, delay_ms)
    try:
        await asyncio.to_thread(_start, cluster)
        running = TwoBrokers(cluster, _APACHE_IDS[kind])
        await running.create_topics(script_count)
        yield running
        running.close()
    finally:
        await asyncio.to_thread(cluster.kill)


def _start(cluster: Cluster) -> None:
    if isinstance(cluster, MixedCluster):
        cluster.start_first(2)
        cluster.start_others()
    else:
        cluster.start()
