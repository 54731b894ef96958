"""Every event that the controller handles: its fields, the state it puts the controller in, and its reply.

An event with a `reply` is always answered: with NOT_CONTROLLER if this node is not, or no longer, the controller.
Source: KafkaController.scala, ControllerEventManager.scala (3.9).
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from klamm.controller.decisions.features import FeatureAnswer, FeatureUpdate
from klamm.controller.decisions.plans import Refusal
from klamm.controller.states import ControllerState
from klamm.controller.topic import Partition
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
    """Something for the controller to handle; events are handled one at a time."""

    state: ClassVar[ControllerState]
    is_retried: ClassVar[bool] = False
    """Whether the event is repeated after ZooKeeper failed. A watch is spent when it fires: without a retry its change
    is not read, no new watch is set, and later changes go unnoticed."""

    @property
    def retry_key(self) -> "RetryKey":
        """Identifies events that do the same work: one retry is enough for all of them."""
        return RetryKey(type(self))

    @property
    def owes_answer(self) -> bool:
        """Whether a caller waits for the reply."""
        return False

    def refuse(self, error: ErrorCode) -> None:
        """Answer a waiting caller with this error; does nothing without a caller or after an answer."""


class RetryKey(NamedTuple):
    kind: type[Event]
    subject: Hashable = None
    """The broker, topic or partition of the event, if it has one."""


def _future() -> "asyncio.Future[Any]":
    """A future of the running loop."""
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Answered(Event, Generic[T]):
    """An event with a caller that waits for its reply; each subclass has its `refusal`."""

    reply: "asyncio.Future[T]" = field(default_factory=_future, kw_only=True, repr=False)

    @property
    def owes_answer(self) -> bool:
        """Whether the event's reply has not been given."""
        return not self.reply.done()

    def answer(self, value: T) -> None:
        """Set the reply, unless it is set already."""
        if not self.reply.done():
            self.reply.set_result(value)

    def refuse(self, error: ErrorCode) -> None:
        """Answer the event with this error."""
        if not self.reply.done():
            self.answer(self.refusal(error))

    def refusal(self, error: ErrorCode) -> T:
        """The reply for this error."""
        raise NotImplementedError(f"{type(self).__name__} has no refusal")


# ---- who is controller


@dataclass(slots=True, eq=False)
class Startup(Event):
    """The controller starts and takes part in the election."""

    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class ControllerChange(Event):
    """`/controller` was created or changed."""

    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class Reelect(Event):
    """`/controller` was deleted."""

    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class BecomeController(Answered[bool]):
    """An operator asked this node to replace the controller of `epoch`; the reply is whether it is controller."""

    epoch: int
    state = ControllerState.CONTROLLER_CHANGE

    def refusal(self, error: ErrorCode) -> bool:
        """Return false: this broker did not become controller."""
        return False


@dataclass(slots=True, eq=False)
class RegisterBrokerAndReelect(Event):
    """A new ZooKeeper session exists."""

    store: Store
    state = ControllerState.CONTROLLER_CHANGE


@dataclass(slots=True, eq=False)
class Expire(Event):
    """The ZooKeeper session expired, and `/controller` with it."""

    state = ControllerState.CONTROLLER_CHANGE


@dataclass(slots=True, eq=False)
class ShutdownEventThread(Event):
    """The controller stops after this event."""

    state = ControllerState.CONTROLLER_SHUTDOWN


@dataclass(slots=True, eq=False)
class ResumeAfterFailure(Event):
    """Retry what an event left unfinished because ZooKeeper failed or refused a write. Kafka has no such event."""

    state = ControllerState.CONTROLLER_CHANGE
    is_retried = True


# ---- brokers


@dataclass(slots=True, eq=False)
class BrokerChange(Event):
    """The children of `/brokers/ids` changed."""

    state = ControllerState.BROKER_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class BrokerModifications(Event):
    """The registration of a live broker changed."""

    broker: BrokerId
    state = ControllerState.BROKER_CHANGE
    is_retried = True

    @property
    def retry_key(self) -> RetryKey:
        """The key under which a retry of the event waits: one for each broker."""
        return RetryKey(type(self), self.broker)


class ShutdownAnswer(NamedTuple):
    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()
    """Partitions that the broker still leads although they have other replicas."""


@dataclass(slots=True, eq=False)
class ControlledShutdown(Answered[ShutdownAnswer]):
    """A broker asks to move its leaders before it stops."""

    broker: BrokerId
    broker_epoch: int
    state = ControllerState.CONTROLLED_SHUTDOWN

    def refusal(self, error: ErrorCode) -> ShutdownAnswer:
        """Return the answer with this error; NOT_CONTROLLER becomes STALE_CONTROLLER_EPOCH, as in Apache Kafka."""
        moved = error is ErrorCode.NOT_CONTROLLER  # Kafka's word for it here
        return ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH if moved else error)


@dataclass(slots=True, eq=False)
class LogDirEventNotification(Event):
    """A broker announced a failed log directory."""

    state = ControllerState.LOG_DIR_CHANGE
    is_retried = True


# ---- topics


@dataclass(slots=True, eq=False)
class TopicChange(Event):
    """The children of `/brokers/topics` changed."""

    state = ControllerState.TOPIC_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class PartitionModifications(Event):
    """The znode of a topic changed or was deleted."""

    topic: str
    state = ControllerState.TOPIC_CHANGE
    is_retried = True

    @property
    def retry_key(self) -> RetryKey:
        """The key under which a retry of the event waits: one for each topic."""
        return RetryKey(type(self), self.topic)


@dataclass(slots=True, eq=False)
class TopicDeletion(Event):
    """The children of `/admin/delete_topics` changed."""

    state = ControllerState.TOPIC_DELETION
    is_retried = True


@dataclass(slots=True, eq=False)
class TopicDeletionStopReplicaResponseReceived(Event):
    """A broker answered a request to delete replicas; `errors` has the code of each replica."""

    broker: BrokerId
    broker_epoch: int
    errors: Mapping[Partition, ErrorCode]
    state = ControllerState.TOPIC_DELETION


@dataclass(slots=True, eq=False)
class DeadBrokerTimeout(Event):
    """A broker has been dead for the time that topic deletions wait for it."""

    broker: BrokerId
    state = ControllerState.TOPIC_DELETION


# ---- requested elections


@dataclass(slots=True, eq=False)
class AutoPreferredReplicaLeaderElection(Event):
    """The periodic check whether preferred replicas lead."""

    state = ControllerState.AUTO_LEADER_BALANCE


class ElectionAnswer(NamedTuple):
    """The elected leaders, and the refusals of all other requested partitions."""

    leaders: Mapping[TopicPartition, BrokerId] = {}
    refused: Mapping[TopicPartition, Refusal] = {}


@dataclass(slots=True, eq=False)
class ReplicaLeaderElection(Answered[ElectionAnswer]):
    """A requested election; `partitions` None means those listed in the old tools' znode."""

    partitions: Sequence[TopicPartition] | None
    unclean: bool
    state = ControllerState.MANUAL_LEADER_BALANCE
    is_retried = True  # where the znode names them; who waits for an answer gets an error

    @property
    def retry_key(self) -> RetryKey:
        """The key under which a retry of the event waits: one for each set of partitions and kind of election."""
        return RetryKey(type(self), (None if self.partitions is None else tuple(self.partitions), self.unclean))

    @property
    def owes_answer(self) -> bool:
        """Whether the election was requested for partitions and its reply has not been given."""
        return self.partitions is not None and not self.reply.done()

    def refusal(self, error: ErrorCode) -> ElectionAnswer:
        """Return the answer with this error for each requested partition."""
        return ElectionAnswer(refused=dict.fromkeys(self.partitions or (), Refusal(error, "")))


@dataclass(slots=True, eq=False)
class UncleanLeaderElectionEnable(Event):
    """The brokers' default now allows unclean elections."""

    state = ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE


@dataclass(slots=True, eq=False)
class TopicUncleanLeaderElectionEnable(Event):
    """A topic's config now allows unclean elections."""

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
    """Leaders announced ISR changes that they wrote themselves (old protocol versions)."""

    state = ControllerState.ISR_CHANGE
    is_retried = True


@dataclass(slots=True, eq=False)
class AlterPartitionReceived(Answered[AlterPartitionResponse]):
    """A leader asks to change ISRs."""

    request: AlterPartitionRequest
    version: int
    state = ControllerState.ISR_CHANGE

    def refusal(self, error: ErrorCode) -> AlterPartitionResponse:
        """Return the response with this error for the whole request."""
        return AlterPartitionResponse(error_code=error)


# ---- reassignment


@dataclass(slots=True, eq=False)
class ZkPartitionReassignment(Event):
    """The old tools' znode with reassignments changed."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    is_retried = True


class ReassignmentAnswer(NamedTuple):
    """The refusals by partition; all other requested reassignments began."""

    error: ErrorCode
    refused: Mapping[TopicPartition, Refusal] = {}


@dataclass(slots=True, eq=False)
class ApiPartitionReassignment(Answered[ReassignmentAnswer]):
    """An AlterPartitionReassignments request; a target of None cancels."""

    targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    state = ControllerState.ALTER_PARTITION_REASSIGNMENT

    def refusal(self, error: ErrorCode) -> ReassignmentAnswer:
        """Return the answer with this error for the whole request."""
        return ReassignmentAnswer(error)


@dataclass(slots=True, eq=False)
class PartitionReassignmentIsrChange(Event):
    """The state znode of a partition changed that is being reassigned."""

    partition: TopicPartition
    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    is_retried = True

    @property
    def retry_key(self) -> RetryKey:
        """The key under which a retry of the event waits: one for each partition."""
        return RetryKey(type(self), self.partition)


@dataclass(slots=True, eq=False)
class TargetsInSync(Event):
    """The targets of these reassignments are in sync, and no AlterPartition of a leader will show it."""

    partitions: Sequence[TopicPartition]
    state = ControllerState.ALTER_PARTITION_REASSIGNMENT


class ReassignmentList(NamedTuple):
    error: ErrorCode
    assignments: Mapping[TopicPartition, ReplicaAssignment] = {}


@dataclass(slots=True, eq=False)
class ListPartitionReassignments(Answered[ReassignmentList]):
    """A request for the reassignments in progress; `partitions` None means all."""

    partitions: Sequence[TopicPartition] | None
    state = ControllerState.LIST_PARTITION_REASSIGNMENT

    def refusal(self, error: ErrorCode) -> ReassignmentList:
        """Return the answer with this error and without reassignments."""
        return ReassignmentList(error)


# ---- features and producer ids


@dataclass(slots=True, eq=False)
class UpdateFeatures(Answered[FeatureAnswer]):
    """A request to finalize feature levels."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False
    state = ControllerState.UPDATE_FEATURES

    def refusal(self, error: ErrorCode) -> FeatureAnswer:
        """Return the answer with this error for the whole request."""
        return FeatureAnswer(error)


@dataclass(slots=True, eq=False)
class DelegationTokenExpiry(Event):
    """The periodic check for expired delegation tokens. Kafka has a thread for it."""

    state = ControllerState.IDLE


class ProducerIds(NamedTuple):
    """A block of producer ids, from `first` on."""

    error: ErrorCode
    first: int = 0
    length: int = 0


@dataclass(slots=True, eq=False)
class AllocateProducerIds(Answered[ProducerIds]):
    """A broker asks for a block of producer ids."""

    broker: BrokerId
    broker_epoch: int
    state = ControllerState.IDLE

    def refusal(self, error: ErrorCode) -> ProducerIds:
        """Return the answer with this error and without a block."""
        return ProducerIds(error)
