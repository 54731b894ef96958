"""What requests say of partitions, as the simulation sees it: the newest state, but for writes in doubt."""

from typing import Any
from uuid import UUID

import pytest
from tests.unit.sim.histories import history_of

from klamm.controller.control_requests import LeaderAndIsrItem, StopReplicaItem, UpdateMetadataItem
from klamm.controller.encoded_bodies import SharedState
from klamm.controller.settings import ControllerSettings
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE, LeaderAndIsr
from klamm.sim.history.trace import RequestQueued, StateWritten, Term, TopicZnode
from klamm.sim.invariants.request_contents import (
    is_new_marks_new_replicas,
    leader_and_isr_carries_the_newest_state,
    metadata_carries_the_newest_state,
    stop_replica_deletes_and_fences_as_planned,
)
from klamm.wire.messages import StopReplicaPartitionState, UpdateMetadataPartitionState
from klamm.zk.pending_deletions import PendingDeletion

ONE, TWO = BrokerId(1), BrokerId(2)
P = TopicPartition("a", 0)
TOPIC_ID, EARLIER_ID = UUID(int=1), UUID(int=2)
BOTH = ReplicaAssignment((ONE, TWO))
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))
PARTITION = Partition("a", 0, BOTH)
FIRST = LeaderAndIsr(ONE, 0, (ONE, TWO), 1, 0)
EARLIER, NEWEST = LeaderAndIsr(ONE, 3, (ONE,), 1, 4), LeaderAndIsr(ONE, 3, (ONE, TWO), 1, 5)


def leader_and_isr(state: LeaderAndIsr) -> LeaderAndIsrItem:
    told = SharedState(
        "", 0, 1, state.leader, state.leader_epoch, state.isr, state.partition_epoch, BOTH.replicas, (), (), False, 0
    )
    return LeaderAndIsrItem({PARTITION: told}, (), 0)


def metadata(state: LeaderAndIsr) -> UpdateMetadataItem:
    told = UpdateMetadataPartitionState(
        "", 0, 1, state.leader, state.leader_epoch, state.isr, state.partition_epoch, BOTH.replicas, ()
    )
    return UpdateMetadataItem({PARTITION: told}, (), 0)


REQUESTS = {
    "LeaderAndIsr": (leader_and_isr, leader_and_isr_carries_the_newest_state),
    "UpdateMetadata": (metadata, metadata_carries_the_newest_state),
}
WRITES = {"taken": (EARLIER, False, True), "in doubt": (EARLIER, True, False), "told": (NEWEST, False, False)}


@pytest.mark.parametrize(("make", "rule"), REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize(("told", "is_refused", "is_found"), WRITES.values(), ids=WRITES)
def test_an_outdated_state_in_a_request_is_a_violation_unless_zookeeper_refused_its_write(
    make: Any, rule: Any, told: LeaderAndIsr, is_refused: bool, is_found: bool
) -> None:
    history = history_of(controllers={"epoch": 1, "terms": {1: TERM}})
    history.topics.znodes["a"] = TopicZnode(None, {0: BOTH}, 1)
    history.absorb(StateWritten(P, EARLIER, NEWEST, BOTH.replicas, 7))
    if is_refused:
        history.states.on_refused(["/controller_epoch", "/brokers/topics/a/partitions/0/state"])

    assert (rule(history, RequestQueued(TERM, TWO, 5, make(told))) is not None) is is_found


@pytest.mark.parametrize(
    ("elected_at", "is_found"),
    [(4, True), (6, False)],
    ids=["created by this controller", "created before its election"],
)
def test_a_leader_and_isr_without_is_new_for_a_partition_just_created_is_a_violation(
    elected_at: int, is_found: bool
) -> None:
    """Its event may have begun before its election."""
    history = history_of(
        controllers={"epoch": 1, "terms": {1: TERM}, "began_at": {(ONE, 1): 3}, "elected_at": {1: elected_at}}
    )
    history.topics.znodes["a"] = TopicZnode(None, {0: BOTH}, 1)
    history.at.zxid = 5
    history.absorb(StateWritten(P, None, FIRST, BOTH.replicas, 7))

    assert (
        is_new_marks_new_replicas(history, RequestQueued(TERM, TWO, 5, leader_and_isr(FIRST))) is not None
    ) is is_found


@pytest.mark.parametrize(
    ("of", "replicas", "is_found"),
    [(TOPIC_ID, BOTH, True), (TOPIC_ID, ReplicaAssignment((ONE,)), False), (EARLIER_ID, BOTH, False)],
    ids=["still assigned", "moved away", "of an earlier topic"],
)
def test_a_pending_deletion_excuses_no_deletion_of_an_assigned_replica(
    of: UUID, replicas: ReplicaAssignment, is_found: bool
) -> None:
    history = history_of(controllers={"epoch": 1, "terms": {1: TERM}})
    history.topics.znodes["a"] = TopicZnode(TOPIC_ID, {0: replicas}, 1)
    history.topics.pending_deletions[TWO]["/klamm"] = PendingDeletion(TWO, "a", of, (0,))
    stop = StopReplicaItem({PARTITION: StopReplicaPartitionState(0, EPOCH_DURING_DELETE, True)}, (), 0)

    wrong = stop_replica_deletes_and_fences_as_planned(history, RequestQueued(TERM, TWO, 5, stop))

    assert (wrong is not None) is is_found
