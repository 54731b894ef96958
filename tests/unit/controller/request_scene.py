"""Shared by tests of control requests: a context, a batch and the requests that it sends."""

import uuid
from collections.abc import Sequence
from typing import Any

from tests.support.controller_room import words

from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    RequestBuilder,
    StopReplicaItem,
    UpdateMetadataItem,
)
from klamm.controller.pending import PendingRequests
from klamm.controller.request_batch import RequestBatch
from klamm.controller.sent_states import leader_and_isr_state, metadata_state
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.runtime.time_slices import CountedSlices
from klamm.wire.api import ApiKey, api
from klamm.wire.messages import StopReplicaPartitionState

KAFKA_REQUEST_VERSIONS = {
    # LeaderAndIsr, UpdateMetadata, StopReplica: ControllerChannelManager.scala (3.9)
    "0.8.2": (0, 0, 0),
    "0.9.0": (0, 1, 0),
    "0.10.0-IV0": (0, 1, 0),
    "0.10.0-IV1": (0, 2, 0),
    "0.10.1-IV2": (0, 2, 0),
    "0.10.2-IV0": (0, 3, 0),
    "0.11.0-IV2": (0, 3, 0),
    "1.0-IV0": (1, 4, 0),
    "2.1-IV2": (1, 4, 0),
    "2.2-IV0": (2, 5, 1),
    "2.3-IV1": (2, 5, 1),
    "2.4-IV0": (3, 5, 1),
    "2.4-IV1": (4, 6, 2),
    "2.5-IV0": (4, 6, 2),
    "2.6-IV0": (4, 6, 3),
    "2.8-IV0": (4, 6, 3),
    "2.8-IV1": (5, 7, 3),
    "3.1-IV0": (5, 7, 3),
    "3.2-IV0": (6, 7, 3),
    "3.3-IV3": (6, 7, 3),
    "3.4-IV0": (7, 8, 4),
    "3.9-IV0": (7, 8, 4),
}


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def begin_deletion(context: ControllerContext, topics: Sequence[str]) -> None:
    """Queue the topics for deletion, and begin it."""
    context.queue_deletion(topics)
    context.topics_with_deletion_started.update(topics)


def registered(number: int) -> Broker:
    endpoints = (
        Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, f"h{number}", 9092),
        Endpoint("SECRET", SecurityProtocol.SASL_SSL, f"h{number}", 9093),
    )
    return Broker(BrokerId(number), endpoints, rack=f"r{number}", epoch=100 + number)


class Outbox:
    def __init__(self) -> None:
        self.sent: list[tuple[int, ControlItem]] = []

    def send(self, broker: BrokerId, item: ControlItem) -> None:
        self.sent.append((broker, item))

    @property
    def texts(self) -> list[str]:
        return [f"{words(item)} -> {broker}" for broker, item in self.sent]


class Scene:
    """A context with brokers 1, 2 and 3, and one topic whose partitions are on 1 and 2, led by 1."""

    def __init__(self, ibp: str = "3.9", partitions: int = 1, name: str = "a") -> None:
        self.settings = ControllerSettings(BrokerId(1), ibp=parse_ibp(ibp))
        self.context = ControllerContext(7)
        self.context.add_brokers(map(registered, (1, 2, 3)))
        self.topic = self.context.add_topic(name, uuid.UUID(int=5))
        self.partitions = [self._partition(n) for n in range(partitions)]
        self.outbox = Outbox()
        self.batch = RequestBatch(self.context, self.settings, self.outbox, CountedSlices())
        self.builder = RequestBuilder(self.context, self.settings, CountedSlices())

    def _partition(self, number: int) -> Partition:
        partition = self.context.add_partition(self.topic, number, ReplicaAssignment(ids(1, 2), ids(2), ()))
        self.lead(partition, 1)
        return partition

    def lead(self, partition: Partition, leader: int, epoch: int = 0) -> None:
        """Set the partition's leader in the context."""
        state = LeaderAndIsr(BrokerId(leader), epoch, ids(1, 2), 6, 4, LeaderRecoveryState.RECOVERING)
        self.context.put_leadership(partition, state)

    def decoded(self, item: ControlItem, number: int) -> list[Any]:
        """The messages of an item as this broker decodes them."""
        version = self.builder.version(item)
        messages = self.builder.messages(item, self.context.registered[BrokerId(number)])
        about = api(ApiKey(messages[0].API_KEY))
        for m in messages:
            assert b"".join(m.encode_pieces(version)) == m.encode(version)
        return [about.request.decode(m.encode(version), version) for m in messages]


def lisr(scene: Scene, *partitions: Partition, is_new: bool = False, cause: str = "c") -> LeaderAndIsrItem:
    """A LeaderAndIsr item for these partitions."""
    recovery = scene.settings.writes_recovery_state
    states = {p: leader_and_isr_state(p, is_new, recovery, brief=True) for p in partitions}
    leaders = {b: broker for b, broker in scene.context.registered.items() if b in {p.leader for p in partitions}}
    return LeaderAndIsrItem(states, (cause,), scene.context.broker_list_version, leaders)


def umr(scene: Scene, *partitions: Partition, cause: str = "c") -> UpdateMetadataItem:
    """An UpdateMetadata item for these partitions."""
    states = {p: metadata_state(scene.context, p, brief=True) for p in partitions}
    return UpdateMetadataItem(states, (cause,), scene.context.broker_list_version)


def stop(scene: Scene, partition: Partition) -> StopReplicaItem:
    """A StopReplica item for this partition."""
    state = StopReplicaPartitionState(partition.partition, 0, False)
    return StopReplicaItem({partition: state}, ("c",), scene.context.broker_list_version)


def waiting(items: Sequence[ControlItem]) -> list[str]:
    """The items as text, for comparison."""
    pending = PendingRequests()
    for item in items:
        pending.put(item)
    return [words(pending.take()) for _ in range(len(pending))]
