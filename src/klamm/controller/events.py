"""Every event the controller knows, on one page: payload, the state it puts the controller in, who is owed a reply.

An event that owes an answer carries a `reply`, and gets one in every case: NOT_CONTROLLER where this node is not or no
longer the controller. Source: KafkaController.scala, ControllerEventManager.scala (3.9).
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from klamm.controller.context import Partition
from klamm.controller.decisions.features import FeatureAnswer, FeatureUpdate
from klamm.controller.decisions.refusal import Refusal
from klamm.controller.states import ControllerState
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    LeaderAndIsrResponse,
    UpdateMetadataResponse,
)
from klamm.zk.store import Store

T = TypeVar("T")


class Event:
    """Something for the controller to do; handled one at a time."""

    state: ClassVar[ControllerState]
    is_retried: ClassVar[bool] = False
    """Where ZooKeeper fails in it: nothing else would bring it. Mostly a watch has fired and is spent, or none is set
    yet: unless what is there now is read, and watched from here on, nobody hears of the next change."""

    @property
    def retry_key(self) -> "RetryKey":
        """Events with the same key do the same: one retry does for all of them."""
        return RetryKey(type(self))

    @property
    def owes_answer(self) -> bool:
        return False

    def refuse(self, error: ErrorCode) -> None:
        """Answer with an error whoever waits; nothing where nobody does or the answer was given."""


class RetryKey(NamedTuple):
    kind: type[Event]
    subject: Hashable = None
    """What the event is about, where it is about one thing."""


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Answered(Event, Generic[T]):
    """An event that somebody waits for."""

    reply: "asyncio.Future[T]" = field(default_factory=_future, kw_only=True, repr=False)

    @property
    def owes_answer(self) -> bool:
        return not self.reply.done()

    def answer(self, value: T) -> None:
        if not self.reply.done():
            self.reply.set_result(value)

    def refuse(self, error: ErrorCode) -> None:
        self.answer(self.refusal(error))

    def refusal(self, error: ErrorCode) -> T:
        raise NotImplementedError


# ---- who is controller


@dataclass(slots=True, eq=False)
class Startup(Event):
    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class ControllerChange(Event):
    """`/controller` was created or changed."""

    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class Reelect(Event):
    """`/controller` is gone."""

    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class BecomeController(Answered[bool]):
    """An operator wants this node to be controller; `epoch` is the one in which that was said. Whether it is, then."""

    epoch: int
    state = ControllerState.CONTROLLER_CHANGE

    def refusal(self, error: ErrorCode) -> bool:
        return False


@dataclass(slots=True, eq=False)
class RegisterBrokerAndReelect(Event):
    """There is a new ZooKeeper session."""

    store: Store
    state = ControllerState.CONTROLLER_CHANGE


@dataclass(slots=True, eq=False)
class Expire(Event):
    """The ZooKeeper session is gone, and with it `/controller`."""

    state = ControllerState.CONTROLLER_CHANGE


@dataclass(slots=True, eq=False)
class ShutdownEventThread(Event):
    state = ControllerState.CONTROLLER_SHUTDOWN


@dataclass(slots=True, eq=False)
class ResumeAfterFailure(Event):
    """ZooKeeper failed in an event, or refused a write: what that left half done is looked for. Kafka has none."""

    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


# ---- brokers


@dataclass(slots=True, eq=False)
class BrokerChange(Event):
    state = ControllerState.BROKER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class BrokerModifications(Event):
    broker: BrokerId
    state = ControllerState.BROKER_CHANGE
    is_retried = True

    @property
    def retry_key(self) -> RetryKey:
        return RetryKey(type(self), self.broker)


class ShutdownAnswer(NamedTuple):
    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()
    """What the broker still leads, although another replica could."""


@dataclass(slots=True, eq=False)
class ControlledShutdown(Answered[ShutdownAnswer]):
    broker: BrokerId
    broker_epoch: int
    state = ControllerState.CONTROLLED_SHUTDOWN

    def refusal(self, error: ErrorCode) -> ShutdownAnswer:
        moved = error is ErrorCode.NOT_CONTROLLER  # Kafka's word for it here
        return ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH if moved else error)


@dataclass(slots=True, eq=False)
class LogDirEventNotification(Event):
    state = ControllerState.LOG_DIR_CHANGE
    is_retried = True


# ---- topics


@dataclass(slots=True, eq=False)
class TopicChange(Event):
    state = ControllerState.TOPIC_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class PartitionModifications(Event):
    topic: str
    state = ControllerState.TOPIC_CHANGE
    is_retried = True

    @property
    def retry_key(self) -> RetryKey:
        return RetryKey(type(self), self.topic)


@dataclass(slots=True, eq=False)
class TopicDeletion(Event):
    state = ControllerState.TOPIC_DELETION
    is_retried = True


@dataclass(slots=True, eq=False)
class TopicDeletionStopReplicaResponseReceived(Event):
    """A broker answered for replicas that it was told to delete; each has its error, also where all failed alike."""

    broker: BrokerId
    broker_epoch: int
    errors: Mapping[Partition, ErrorCode]
    state = ControllerState.TOPIC_DELETION


@dataclass(slots=True, eq=False)
class DeadBrokerTimeout(Event):
    """Deletions that wait for this broker need wait no longer, if it is still gone."""

    broker: BrokerId
    state = ControllerState.TOPIC_DELETION


# ---- elections asked for


@dataclass(slots=True, eq=False)
class AutoPreferredReplicaLeaderElection(Event):
    state = ControllerState.AUTO_LEADER_BALANCE


class ElectionAnswer(NamedTuple):
    """Which partitions found a leader, and why the others did not; together all that were asked for."""

    leaders: Mapping[TopicPartition, BrokerId] = {}
    refused: Mapping[TopicPartition, Refusal] = {}


@dataclass(slots=True, eq=False)
class ReplicaLeaderElection(Answered[ElectionAnswer]):
    """`partitions` None: those that the znode of the old tools names."""

    partitions: Sequence[TopicPartition] | None
    unclean: bool
    state = ControllerState.MANUAL_LEADER_BALANCE
    is_retried = True  # where the znode names them; who waits for an answer gets an error

    @property
    def retry_key(self) -> RetryKey:
        return RetryKey(type(self), (None if self.partitions is None else tuple(self.partitions), self.unclean))

    @property
    def owes_answer(self) -> bool:
        return self.partitions is not None and not self.reply.done()

    def refusal(self, error: ErrorCode) -> ElectionAnswer:
        return ElectionAnswer(refused=dict.fromkeys(self.partitions or (), Refusal(error, "")))


@dataclass(slots=True, eq=False)
class UncleanLeaderElectionEnable(Event):
    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE


@dataclass(slots=True, eq=False)
class TopicUncleanLeaderElectionEnable(Event):
    topic: str
    state = ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE


# ---- answers of brokers


@dataclass(slots=True, eq=False)
class LeaderAndIsrResponseReceived(Event):
    response: LeaderAndIsrResponse
    broker: BrokerId
    broker_epoch: int
    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED


@dataclass(slots=True, eq=False)
class UpdateMetadataResponseReceived(Event):
    response: UpdateMetadataResponse
    broker: BrokerId
    state = ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED


# ---- ISR changes


@dataclass(slots=True, eq=False)
class IsrChangeNotification(Event):
    state = ControllerState.ISR_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class AlterPartitionReceived(Answered[AlterPartitionResponse]):
    request: AlterPartitionRequest
    version: int
    state = ControllerState.ISR_CHANGE

    def refusal(self, error: ErrorCode) -> AlterPartitionResponse:
        return AlterPartitionResponse(error_code=error)


# ---- reassignment


@dataclass(slots=True, eq=False)
class ZkPartitionReassignment(Event):
    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    is_retried = True


class ReassignmentAnswer(NamedTuple):
    """`refused`: why, by partition; every other partition asked for was taken on."""

    error: ErrorCode
    refused: Mapping[TopicPartition, Refusal] = {}


@dataclass(slots=True, eq=False)
class ApiPartitionReassignment(Answered[ReassignmentAnswer]):
    """A target of None cancels."""

    targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    state = ControllerState.ALTER_PARTITION_REASSIGNMENT

    def refusal(self, error: ErrorCode) -> ReassignmentAnswer:
        return ReassignmentAnswer(error)


@dataclass(slots=True, eq=False)
class PartitionReassignmentIsrChange(Event):
    partition: TopicPartition
    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    is_retried = True

    @property
    def retry_key(self) -> RetryKey:
        return RetryKey(type(self), self.partition)


@dataclass(slots=True, eq=False)
class TargetsInSync(Event):
    """The targets of these reassignments are in sync, and no leader will ask for a change of the ISR that shows it."""

    partitions: Sequence[TopicPartition]
    state = ControllerState.ALTER_PARTITION_REASSIGNMENT


class ReassignmentList(NamedTuple):
    error: ErrorCode
    assignments: Mapping[TopicPartition, ReplicaAssignment] = {}


@dataclass(slots=True, eq=False)
class ListPartitionReassignments(Answered[ReassignmentList]):
    """`partitions` None: all that are under way."""

    partitions: Sequence[TopicPartition] | None
    state = ControllerState.LIST_PARTITION_REASSIGNMENT

    def refusal(self, error: ErrorCode) -> ReassignmentList:
        return ReassignmentList(error)


# ---- features and producer ids


@dataclass(slots=True, eq=False)
class UpdateFeatures(Answered[FeatureAnswer]):
    updates: Sequence[FeatureUpdate]
    validate_only: bool = False
    state = ControllerState.UPDATE_FEATURES

    def refusal(self, error: ErrorCode) -> FeatureAnswer:
        return FeatureAnswer(error)


@dataclass(slots=True, eq=False)
class DelegationTokenExpiry(Event):
    """It is time to look for tokens that are over; Kafka has a thread for it."""

    state = ControllerState.IDLE


class ProducerIds(NamedTuple):
    error: ErrorCode
    first: int = 0
    length: int = 0


@dataclass(slots=True, eq=False)
class AllocateProducerIds(Answered[ProducerIds]):
    broker: BrokerId
    broker_epoch: int
    state = ControllerState.IDLE

    def refusal(self, error: ErrorCode) -> ProducerIds:
        return ProducerIds(error)
