"""Replicas without records: how a broker applies LeaderAndIsr and StopReplica, and which ISR changes it proposes.

A log is represented by its topic id, which stays on the machine. Source: ReplicaManager.scala, Partition.scala (3.9).
"""

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE, NO_EPOCH
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.instructions import Errors, PartitionInstruction, StopInstruction
from klamm.sim.history.trace import ReplicaRole
from klamm.wire.messages import AlterPartitionResponsePartitionData

LAG_S: Final = 10.0
"""A follower that has not fetched for so long leaves the ISR; Kafka's brokers wait 30 s."""

Logs = dict[TopicPartition, uuid.UUID]
"""What lies on a machine's disk, whichever process runs there: each log with the id of its topic."""

_ERRORS_THAT_WITHDRAW_PROPOSAL: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_ERRORS_THAT_AWAIT_LEADER_AND_ISR: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@dataclass(slots=True)
class Replica:
    """One hosted partition, with the values of the last accepted LeaderAndIsr."""

    leader: BrokerId = NO_BROKER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = 0
    isr: tuple[BrokerId, ...] = ()
    replicas: tuple[BrokerId, ...] = ()
    is_fetching: bool = False
    """It follows a leader, and was not stopped since."""
    proposal: tuple[BrokerId, ...] | None = None
    """The ISR that it requests; there is no other request until an answer or a newer control request arrives."""
    is_refused: bool = False
    """The controller has a newer state: wait for its requests."""
    fetched_at: dict[BrokerId, float] = field(default_factory=dict)
    """When each follower was last seen fetching."""


class Replicas:
    """All replicas of one broker process; `logs` stays on the machine when the process ends."""

    def __init__(self, broker: BrokerId, logs: Logs) -> None:
        self._broker = broker
        self.logs = logs
        self.hosted: dict[TopicPartition, Replica] = {}
        self.failed: dict[TopicPartition, None] = {}
        """Those on a log directory that failed; only another process finds them whole."""
        self.controller_epoch = 0

    def check_epochs(self, message_broker_epoch: int, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """The error for a control request with an old broker epoch or controller epoch; NONE if it is accepted."""
        if message_broker_epoch != NO_EPOCH and message_broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    # ---- control requests

    def leader_epoch(self, p: TopicPartition) -> int:
        """The replica's current leader epoch; NO_EPOCH if it is not hosted."""
        replica = self.hosted.get(p)
        return NO_EPOCH if replica is None else replica.leader_epoch

    def apply_leader_and_isr(self, decoded: Iterable[PartitionInstruction], now_s: float) -> Errors:
        """Apply the partitions of a LeaderAndIsr; return the error code of each."""
        return {o.topic_partition: self._apply_leader_and_isr(o, now_s) for o in decoded}

    def _apply_leader_and_isr(self, instruction: PartitionInstruction, now_s: float) -> ErrorCode:
        """Apply one partition of a LeaderAndIsr, with Kafka's checks of topic id and leader epoch."""
        p, state = instruction.topic_partition, instruction.state
        if p in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        replica = self.hosted.setdefault(p, Replica())
        known = self.logs.get(p, ZERO_ID)
        if instruction.topic_id != ZERO_ID and known not in (ZERO_ID, instruction.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if state.leader_epoch > replica.leader_epoch:
            if self._broker not in instruction.assignment.replicas:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self.logs[p] = known if instruction.topic_id == ZERO_ID else instruction.topic_id
            self._become_leader_or_follower(replica, instruction, now_s)
            return ErrorCode.NONE
        if state.leader_epoch == replica.leader_epoch and instruction.topic_id != ZERO_ID and known == ZERO_ID:
            self.logs[p] = instruction.topic_id
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _become_leader_or_follower(self, replica: Replica, instruction: PartitionInstruction, now_s: float) -> None:
        """Adopt the leader, epochs and ISR of a LeaderAndIsr, and withdraw a proposed ISR."""
        state = instruction.state
        replica.leader, replica.leader_epoch = state.leader, state.leader_epoch
        replica.partition_epoch, replica.isr, replica.replicas = (
            state.partition_epoch,
            state.isr,
            instruction.assignment.replicas,
        )
        replica.is_fetching = state.leader not in (self._broker, NO_BROKER)
        replica.proposal, replica.is_refused = None, False
        replica.fetched_at = dict.fromkeys(state.isr, now_s)

    def stop(self, decoded: Iterable[StopInstruction]) -> Errors:
        """Apply the partitions of a StopReplica; return the error code of each."""
        return {o.topic_partition: self._stop(o) for o in decoded}

    def _stop(self, instruction: StopInstruction) -> ErrorCode:
        """Apply one partition of a StopReplica, with Kafka's checks."""
        p = instruction.topic_partition
        if p in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        replica = self.hosted.get(p)
        stands_above = instruction.leader_epoch in (NO_EPOCH, EPOCH_DURING_DELETE)
        if replica is not None and not stands_above and instruction.leader_epoch < replica.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if replica is not None:
            replica.is_fetching = False
        if instruction.deletes:
            self.hosted.pop(p, None)
            self.logs.pop(p, None)
        return ErrorCode.NONE

    def fail_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark these replicas as lying on a failed log directory."""
        for p in partitions:
            if self.hosted.pop(p, None) is not None:
                self.failed[p] = None

    # ---- as follower, as leader

    def roles(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ReplicaRole]:
        """The role of each of these replicas that is hosted."""
        return {p: self._role_of(p, self.hosted[p]) for p in partitions if p in self.hosted}

    def _role_of(self, p: TopicPartition, replica: Replica) -> ReplicaRole:
        """The role of a replica; for a leader, members of the proposed ISR count as in sync."""
        members = frozenset((*replica.isr, *(replica.proposal or ())))
        topic_id = self.logs.get(p, ZERO_ID)
        return ReplicaRole(topic_id, replica.leader, replica.leader_epoch, members, replica.is_refused)

    def fetches(self, p: TopicPartition, leader: BrokerId, leader_epoch: int) -> bool:
        """Whether this replica fetches from `leader` in leader epoch `leader_epoch`."""
        replica = self.hosted.get(p)
        return (
            replica is not None
            and replica.is_fetching
            and (replica.leader, replica.leader_epoch) == (leader, leader_epoch)
        )

    def propose(
        self,
        now_s: float,
        fetches: Callable[[BrokerId, TopicPartition, int], bool],
        is_alive: Callable[[BrokerId], bool],
        lagging: Iterable[BrokerId],
    ) -> Iterator[tuple[TopicPartition, Replica]]:
        """The led partitions whose ISR should change, each with the proposed ISR in `proposal`."""
        behind = frozenset(lagging)
        for p, replica in self.hosted.items():
            if replica.leader != self._broker or replica.is_refused:
                continue
            if replica.proposal is None:
                replica.proposal = self._next_isr(p, replica, now_s, fetches, is_alive, behind)
            if replica.proposal is not None:
                yield p, replica

    def _next_isr(
        self,
        p: TopicPartition,
        replica: Replica,
        now_s: float,
        fetches: Callable[[BrokerId, TopicPartition, int], bool],
        is_alive: Callable[[BrokerId], bool],
        lagging: frozenset[BrokerId],
    ) -> tuple[BrokerId, ...] | None:
        """The ISR that the leader proposes next, or None.

        All lagging followers leave at once; those that caught up are added one per request.
        """
        seen = [b for b in replica.replicas if b not in lagging and fetches(b, p, replica.leader_epoch)]
        fetched_at, isr = replica.fetched_at, replica.isr
        for b in seen:
            fetched_at[b] = now_s
        gone = [b for b in isr if b != self._broker and (b in lagging or now_s - fetched_at.get(b, now_s) > LAG_S)]
        if gone:
            return tuple(b for b in isr if b not in gone)
        for b in seen:
            if b not in isr and is_alive(b):
                return (*isr, b)
        return None

    def on_alter_partition_response(
        self, p: TopicPartition, proposed: Replica, answer: AlterPartitionResponsePartitionData
    ) -> None:
        """Apply the response to a proposed ISR, unless a newer LeaderAndIsr withdrew it."""
        replica = self.hosted.get(p)
        if replica is not proposed or replica.proposal is None:
            return
        if answer.error_code in _ERRORS_THAT_AWAIT_LEADER_AND_ISR:
            replica.is_refused = True
        elif answer.error_code in _ERRORS_THAT_WITHDRAW_PROPOSAL:
            replica.proposal = None
        elif not answer.error_code and _is_newer_than(replica, answer):
            replica.isr = tuple(map(BrokerId, answer.isr))
            replica.partition_epoch, replica.proposal = answer.partition_epoch, None


def _is_newer_than(replica: Replica, answer: AlterPartitionResponsePartitionData) -> bool:
    """Whether the response belongs to the current leader epoch and is not older than the replica's partition epoch."""
    return answer.leader_epoch == replica.leader_epoch and answer.partition_epoch >= replica.partition_epoch
