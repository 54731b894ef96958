"""This broker's copy of the cluster metadata: brokers, topics, leaders, controller. Source: ZkMetadataCache.scala.

Only UpdateMetadata fills it. A request that does not await sees one state of it. The cost of an update grows with its
size, not with the size of the cluster.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Final

from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import LEADER_DURING_DELETE
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import UpdateMetadataBroker, UpdateMetadataPartitionState, UpdateMetadataRequest

PartitionState = UpdateMetadataPartitionState
MAX_WAIT_FOR_EXPECTED_S: Final = 5.0
"""How long clients wait for the first metadata of a topic; a topic that is being deleted never gets any."""
_ALL_TOPICS: Final = ""
"""In place of a topic: whoever waits until every expected topic is described."""
_OLD_LISTENERS: Final = {p.value: p.name for p in SecurityProtocol}


class MetadataCache:
    """The metadata of the cluster; `endpoint` returns addresses on `listener`, the inter-broker listener."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self.brokers: dict[BrokerId, Broker] = {}
        self.controller_id: BrokerId | None = None
        self.controller_epoch = -1
        """Of whoever told us last."""
        self.generation = 0
        """Grows with every update: whoever keeps something made from the cache compares it."""
        self._topics: dict[str, dict[int, PartitionState]] = {}
        self._ids: dict[str, uuid.UUID] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._told_as = -1
        self._waiting: dict[str, list[_Wait]] = {}
        """By topic: who is asked again when an update names it."""
        self._expected: set[str] = set()
        """Topics that exist, though no UpdateMetadata of this registration has named them yet."""
        self._expected_until: float | None = None
        """On the loop's clock; None until the first request waits."""
        self.on_update: Callable[[], None] = lambda: None
        """Called after each update; must not raise."""

    # ---- what replication asks

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether the broker is among the live brokers."""
        return broker_id in self.brokers

    def endpoint(self, broker_id: BrokerId) -> tuple[str, int] | None:
        """Host and port of the inter-broker listener; None where the broker is not alive or lacks it."""
        found = self.endpoint_on(broker_id, self._listener)
        return None if found is None else (found.host, found.port)

    def contains(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        return topic_partition.partition in self._topics.get(topic_partition.topic, {})

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id, or None."""
        return self._names.get(topic_id)

    # ---- what clients ask

    def endpoint_on(self, broker_id: BrokerId, listener: str) -> Endpoint | None:
        """The broker's endpoint on this listener, or None."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(listener)

    def brokers_on(self, listener: str) -> Iterator[tuple[Broker, Endpoint]]:
        """The brokers that a client of this listener can reach."""
        for broker in self.brokers.values():
            if (endpoint := broker.endpoint(listener)) is not None:
                yield broker, endpoint

    def topics(self) -> Iterable[str]:
        """The names of all known topics."""
        return self._topics.keys()

    def has_topic(self, topic: str) -> bool:
        """Whether the topic exists."""
        return topic in self._topics

    def topic_id(self, topic: str) -> uuid.UUID:
        """The topic's id; the zero id if it is unknown."""
        return self._ids.get(topic, ZERO_ID)

    def partitions(self, topic: str) -> Mapping[int, PartitionState]:
        """Partition states by number; empty for an unknown topic."""
        return self._topics.get(topic, {})

    def state(self, topic_partition: TopicPartition) -> PartitionState | None:
        """The partition's state, or None."""
        return self._topics.get(topic_partition.topic, {}).get(topic_partition.partition)

    def has_leaders(self, topic: str, count: int) -> bool:
        """Whether each of the topic's first `count` partitions is known, and has a leader."""
        partitions = self.partitions(topic)
        return all((p := partitions.get(n)) is not None and p.leader != NO_BROKER for n in range(count))

    async def wait_until(self, holds: Mapping[str, Callable[[], bool]], timeout_s: float) -> list[str]:
        """Wait for each topic's condition in `holds`; returns the topics where it is still false at the timeout.

        A topic is checked again only after an update that names it, and is done once its check was true: a request for
        thousands of topics does not check all of them with each of thousands of updates.
        """
        wait = _Wait({topic: check for topic, check in holds.items() if not check()})
        if not wait.left:
            return []
        for topic in wait.left:
            self._waiting.setdefault(topic, []).append(wait)
        try:
            async with asyncio.timeout(timeout_s):
                await wait.over
        except TimeoutError:
            wait.check_topics(list(wait.left))
        finally:
            for topic in holds:
                self._stop_waiting(topic, wait)
        return list(wait.left)

    async def wait_for_expected(self, topics: Iterable[str] | None) -> None:
        """Wait until the controller has described those of these topics that are expected; None means all topics.

        A broker that has just registered would deny topics that exist, and librdkafka fails their records then.
        Thousands of clients may wait for all of many thousands of topics: each waits for one condition.
        """
        missing = self._expected if topics is None else self._expected.intersection(topics)
        if not missing:
            return
        now = asyncio.get_running_loop().time()
        if self._expected_until is None:
            self._expected_until = now + MAX_WAIT_FOR_EXPECTED_S
        if now >= self._expected_until:
            self._expected.clear()
            return
        awaited = (_ALL_TOPICS,) if topics is None else sorted(missing)
        described = {topic: partial(self._is_described, topic) for topic in awaited}
        await self.wait_until(described, self._expected_until - now)

    def _is_described(self, topic: str) -> bool:
        """Whether the controller has described the topic, or all of them, as far as they are expected."""
        return not self._expected if topic == _ALL_TOPICS else topic not in self._expected

    def _stop_waiting(self, topic: str, wait: "_Wait") -> None:
        """Remove a caller that waits for a condition of the topic."""
        waiting = self._waiting.get(topic, [])
        if wait in waiting:
            waiting.remove(wait)
            if not waiting:
                del self._waiting[topic]

    # ---- what the controller tells

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply an UpdateMetadata of any version, and return the partitions that it deletes.

        The brokers are replaced, the partition states are merged.
        """
        self.generation += 1
        is_new_to_us = request.broker_epoch > self._told_as
        if is_new_to_us:
            self._clear_topics(request.broker_epoch)
        self.controller_id = BrokerId(request.controller_id) if request.controller_id >= 0 else None
        self.controller_epoch = request.controller_epoch
        self.brokers = {BrokerId(b.id): _broker(b) for b in request.live_brokers}
        deleted = [
            TopicPartition(state.topic_name, state.partition_index)
            for state in request.ungrouped_partition_states
            if self._merge_partition(state.topic_name, state)
        ]
        for topic in request.topic_states:
            self._set_topic_id(topic.topic_name, topic.topic_id)
            deleted += [
                TopicPartition(topic.topic_name, state.partition_index)
                for state in topic.partition_states
                if self._merge_partition(topic.topic_name, state)
            ]
            if topic.topic_name not in self._topics:
                self._set_topic_id(topic.topic_name, ZERO_ID)
        if self._expected:
            self._expected.difference_update(_topic_names(request))
        if self._waiting:
            self._check_waiting(list(self._waiting) if is_new_to_us else _topic_names(request))
        self.on_update()
        return deleted

    def _clear_topics(self, broker_epoch: int) -> None:
        """Remove all topics after a new registration, since the controller sends all of them again.

        Topics deleted while this broker was not registered were not reported to it. The others are expected.
        """
        self._told_as = broker_epoch
        self._expect(self._topics)
        self._topics, self._ids, self._names = {}, {}, {}

    def fill_brokers(self, brokers: Iterable[Broker], controller_id: BrokerId | None) -> None:
        """Take brokers and controller from ZooKeeper, unless an UpdateMetadata has already come."""
        if self.generation == 0:
            self.brokers = {b.id: b for b in brokers}
            self.controller_id = controller_id

    def expect_topics(self, topics: Iterable[str]) -> None:
        """Take the names of the topics in ZooKeeper, unless an UpdateMetadata has already come."""
        if self.generation == 0:
            self._expect(topics)

    def _expect(self, topics: Iterable[str]) -> None:
        """Let requests wait for the metadata of these topics."""
        self._expected.update(topics)
        self._expected_until = None

    def forget_controller(self) -> None:
        """Remove the controller, which answered NOT_CONTROLLER; the next UpdateMetadata names the new one."""
        self.controller_id = None

    def forget_topic(self, topic: str) -> None:
        """Remove a topic that ZooKeeper no longer has, although no UpdateMetadata deleted it."""
        self.generation += 1
        self._expected.discard(topic)
        self._topics.pop(topic, None)
        self._set_topic_id(topic, ZERO_ID)
        self._check_waiting([topic])

    def _merge_partition(self, topic: str, state: PartitionState) -> bool:
        """Store a partition's state, or remove the partition; True where the state says that it is deleted."""
        if state.leader != LEADER_DURING_DELETE:
            self._topics.setdefault(topic, {})[state.partition_index] = state
            return False
        partitions = self._topics.get(topic)
        if partitions is not None:
            partitions.pop(state.partition_index, None)
            if not partitions:
                del self._topics[topic]
                self._set_topic_id(topic, ZERO_ID)
        return True

    def _set_topic_id(self, topic: str, topic_id: uuid.UUID) -> None:
        """Set or (zero id) remove the topic's id; another id than before drops the partitions of the earlier topic."""
        old = self._ids.pop(topic, None)
        if old is not None:
            self._names.pop(old, None)
            if topic_id not in (old, ZERO_ID):
                self._topics.pop(topic, None)  # another topic of that name: nobody told that the earlier one went
        if topic_id != ZERO_ID:
            self._ids[topic] = topic_id
            self._names[topic_id] = topic

    def _check_waiting(self, topics: Iterable[str]) -> None:
        """Wake those who wait for one of these topics, and whose condition holds now."""
        asked: dict[_Wait, list[str]] = {}
        for topic in (*topics, _ALL_TOPICS):
            for wait in self._waiting.get(topic, ()):
                asked.setdefault(wait, []).append(topic)
        for wait, named in asked.items():
            wait.check_topics(named)


class _Wait:
    """A caller that waits for topics; a topic is removed from `left` once its check is true."""

    def __init__(self, left: dict[str, Callable[[], bool]]) -> None:
        self.left = left
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def check_topics(self, topics: Iterable[str]) -> None:
        """Check the conditions of these topics; the wait ends once the conditions of all its topics have been true."""
        for topic in topics:
            if topic in self.left and self.left[topic]():
                del self.left[topic]
        if not self.left and not self.over.done():
            self.over.set_result(None)


def _topic_names(request: UpdateMetadataRequest) -> Iterable[str]:
    """The topics that the request names, each once."""
    names = [state.topic_name for state in request.ungrouped_partition_states]
    return dict.fromkeys(names + [topic.topic_name for topic in request.topic_states])


def unknown_protocols(request: UpdateMetadataRequest) -> list[str]:
    """The endpoints of the request whose security protocol does not exist, as broker id and protocol."""
    return [
        f"broker {live.id}: {endpoint.security_protocol}"
        for live in request.live_brokers
        for endpoint in live.endpoints
        if endpoint.security_protocol not in _OLD_LISTENERS
    ]


def _broker(live: UpdateMetadataBroker) -> Broker:
    """The broker of an UpdateMetadata entry."""
    if not live.endpoints:  # version 0 names one host, without a listener
        endpoints: tuple[Endpoint, ...] = (
            Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, live.v0_host, live.v0_port),
        )
    else:
        endpoints = tuple(_endpoint(e.listener, e.security_protocol, e.host, e.port) for e in live.endpoints)
    return Broker(BrokerId(live.id), endpoints, live.rack)


@lru_cache(maxsize=1024)
def _endpoint(listener: str, protocol: int, host: str, port: int) -> Endpoint:
    """The endpoint, cached: every update names every broker."""
    return Endpoint(listener or _OLD_LISTENERS[protocol], SecurityProtocol(protocol), host, port)
