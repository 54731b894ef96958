"""The state of one partition as LeaderAndIsr and UpdateMetadata carry it.

Source: AbstractControllerBrokerRequestBatch (3.9).
"""

from klamm.controller.context import ControllerContext
from klamm.controller.encoded_bodies import SharedState
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.leader_and_isr import (
    INITIAL_LEADER_EPOCH,
    INITIAL_PARTITION_EPOCH,
    LEADER_DURING_DELETE,
    LeaderAndIsr,
)
from klamm.wire.messages import UpdateMetadataPartitionState


def leader_and_isr_state(partition: Partition, is_new: bool, with_recovery: bool, brief: bool) -> SharedState:
    """The partition's state for a LeaderAndIsr request; `brief` omits the topic name."""
    leadership = partition.leadership
    assert leadership is not None, f"{partition} has no leadership to tell of"
    return leader_and_isr_state_of(partition, leadership, partition.announced, is_new, with_recovery, brief)


def leader_and_isr_state_of(
    partition: Partition,
    leadership: LeaderAndIsr,
    assignment: ReplicaAssignment,
    is_new: bool,
    with_recovery: bool,
    brief: bool,
) -> SharedState:
    """The state for a LeaderAndIsr request that a partition with this leadership and assignment has, or had."""
    replicas, adding, removing = assignment
    return SharedState(
        "" if brief else partition.topic,
        partition.partition,
        leadership.controller_epoch,
        leadership.leader,
        leadership.leader_epoch,
        leadership.isr,
        leadership.partition_epoch,
        replicas,
        adding,
        removing,
        is_new,
        int(leadership.recovery) if with_recovery else 0,
    )


def as_new(state: SharedState) -> SharedState:
    """Return the same partition state with `is_new` set: the replica must create its log."""
    return SharedState(
        state.topic_name,
        state.partition_index,
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        state.isr,
        state.partition_epoch,
        state.replicas,
        state.adding_replicas,
        state.removing_replicas,
        True,
        state.leader_recovery_state,
    )


def metadata_state(context: ControllerContext, partition: Partition, brief: bool) -> UpdateMetadataPartitionState:
    """The partition's state for an UpdateMetadata request; `brief` omits the topic name."""
    leadership = partition.leadership
    is_dying = context.is_deletion_started(partition)
    if leadership is None and context.is_to_be_deleted(partition):
        leadership = _state_of_deleted_leaderless_partition(context.epoch)
    assert leadership is not None, f"{partition} has no leadership to tell of"
    live = context.live
    replicas = partition.announced.replicas
    leader, leader_epoch, isr, controller_epoch, partition_epoch, _ = leadership
    if is_dying:
        leader, leader_epoch, partition_epoch = LEADER_DURING_DELETE, INITIAL_LEADER_EPOCH, INITIAL_PARTITION_EPOCH
    if context.offline_dirs:
        offline = tuple(b for b in replicas if not context.is_online(b, partition))
    else:
        offline = () if live.issuperset(replicas) else tuple(b for b in replicas if b not in live)
    return UpdateMetadataPartitionState(
        "" if brief else partition.topic,
        partition.partition,
        controller_epoch,
        leader,
        leader_epoch,
        isr,
        partition_epoch,
        replicas,
        offline,
    )


def _state_of_deleted_leaderless_partition(controller_epoch: int) -> LeaderAndIsr:
    """The state that UpdateMetadata carries for a deleted partition that never had a leader."""
    return LeaderAndIsr(LEADER_DURING_DELETE, INITIAL_LEADER_EPOCH, (), controller_epoch, INITIAL_PARTITION_EPOCH)
