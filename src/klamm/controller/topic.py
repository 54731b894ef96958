"""A topic and its partitions, as the active controller knows them. Partitions are compared by identity."""

import uuid
from dataclasses import dataclass, field

from klamm.controller.encoded_bodies import SharedState
from klamm.controller.states import PartitionState
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import NO_EPOCH, LeaderAndIsr


@dataclass(slots=True, eq=False)
class Partition:
    """One partition as the controller knows it; `leadership` is None until a state znode was read or written."""

    topic: str
    partition: int
    assignment: ReplicaAssignment
    leadership: LeaderAndIsr | None = None
    state: PartitionState = PartitionState.NON_EXISTENT
    completing: ReplicaAssignment | None = None
    """The target assignment while a reassignment completes: brokers are told of it, ZooKeeper does not hold it yet."""
    shared_state: SharedState | None = None
    """The partition state that a batch of LeaderAndIsr requests shares between brokers; None outside such a batch."""
    is_imbalanced: bool = False
    """Counted in `ControllerContext.imbalanced_count`."""
    encoded: bytes = b""
    """What a standby made of it for its election: the beginning of its state in requests (`StateEncoder.common`)."""
    written_at: int = 0
    """The zxid at which the state was written that this controller read first."""

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        """The brokers of all replicas in assignment order, those being added and removed included."""
        return self.assignment.replicas

    @property
    def announced(self) -> ReplicaAssignment:
        """The assignment that control requests carry: the current one, or the target while a reassignment completes."""
        return self.completing or self.assignment

    @property
    def leader(self) -> BrokerId:
        """The leader's broker id; NO_BROKER without a leader, or where no state is known."""
        return self.leadership.leader if self.leadership else NO_BROKER

    @property
    def leader_epoch(self) -> int:
        """The leader epoch last read or written; `NO_EPOCH` where the partition has no state yet."""
        return self.leadership.leader_epoch if self.leadership else NO_EPOCH

    @property
    def key(self) -> TopicPartition:
        """The topic name and partition number."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(slots=True, eq=False)
class Topic:
    """A topic with its partitions by number."""

    name: str
    id: uuid.UUID | None
    czxid: int
    """The zxid at which the topic's znode was created."""
    partitions: dict[int, Partition] = field(default_factory=dict)
    removals: int = 0
    """How many partitions were removed from it: while it is deleted, or where a standby reads them anew."""
