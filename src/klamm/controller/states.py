"""The states of partitions, replicas and the controller, and the valid transitions between them.

Source: PartitionStateMachine.scala, ReplicaStateMachine.scala, ControllerState.scala (Kafka 3.9).
"""

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final


class PartitionState(StrEnum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"  # replicas assigned, no leader yet
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"  # had a leader, has none now


PARTITION_VALID_PREVIOUS: Final = {
    PartitionState.NEW: {PartitionState.NON_EXISTENT},
    PartitionState.ONLINE: {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE},
    PartitionState.OFFLINE: {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE},
    PartitionState.NON_EXISTENT: {PartitionState.OFFLINE},
}
"""By state, the states from which a partition may enter it."""


class ReplicaState(StrEnum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


REPLICA_VALID_PREVIOUS: Final = {
    ReplicaState.NEW: {ReplicaState.NON_EXISTENT},
    ReplicaState.ONLINE: {
        ReplicaState.NEW,
        ReplicaState.ONLINE,
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_INELIGIBLE,
    },
    ReplicaState.OFFLINE: {
        ReplicaState.NEW,
        ReplicaState.ONLINE,
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_INELIGIBLE,
    },
    ReplicaState.DELETION_STARTED: {ReplicaState.OFFLINE},
    ReplicaState.DELETION_SUCCESSFUL: {ReplicaState.DELETION_STARTED},
    ReplicaState.DELETION_INELIGIBLE: {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED},
    ReplicaState.NON_EXISTENT: {ReplicaState.DELETION_SUCCESSFUL},
}
"""By state, the states from which a replica may enter it."""


INITIAL_REPLICA_STATE: Final = ReplicaState.ONLINE
"""The state in which a new controller finds all replicas; it moves those of dead brokers to another one."""


def can_move(state: PartitionState, target: PartitionState) -> bool:
    """Whether a partition may go from `state` to `target`."""
    return state in PARTITION_VALID_PREVIOUS[target]


def can_move_replica(state: ReplicaState, target: ReplicaState) -> bool:
    """Whether a replica may go from `state` to `target`."""
    return state in REPLICA_VALID_PREVIOUS[target]


def can_all_move(states: Iterable[ReplicaState | None], target: ReplicaState) -> bool:
    """Whether all these replicas may go to `target`; None stands for an unknown replica."""
    different = {ReplicaState.NON_EXISTENT if s is None else s for s in set(states)}
    return different <= REPLICA_VALID_PREVIOUS[target]


class ControllerState(IntEnum):
    """What the controller is handling; the metric ControllerState has the number."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16
    UPDATE_FEATURES = 17
