"""The state tables, compared with all transitions of PartitionStateMachine.scala and ReplicaStateMachine.scala."""

from itertools import product

from klamm.controller import events
from klamm.controller.controller import HANDLERS
from klamm.controller.events import Event
from klamm.controller.states import (
    ControllerState,
    PartitionState,
    ReplicaState,
    can_all_move,
    can_move,
    can_move_replica,
)

KAFKA_MOVES = """
    NonExistent>New  New>Online  New>Offline  Online>Online  Online>Offline
    Offline>Online  Offline>Offline  Offline>NonExistent
"""

KAFKA_REPLICA_MOVES = """
    NonExistentReplica>NewReplica
    NewReplica>OnlineReplica  OnlineReplica>OnlineReplica  OfflineReplica>OnlineReplica
    ReplicaDeletionIneligible>OnlineReplica
    NewReplica>OfflineReplica  OnlineReplica>OfflineReplica  OfflineReplica>OfflineReplica
    ReplicaDeletionIneligible>OfflineReplica
    OfflineReplica>ReplicaDeletionStarted
    ReplicaDeletionStarted>ReplicaDeletionSuccessful
    OfflineReplica>ReplicaDeletionIneligible  ReplicaDeletionStarted>ReplicaDeletionIneligible
    ReplicaDeletionSuccessful>NonExistentReplica
"""

KAFKA_CONTROLLER_STATES = """
    IDLE CONTROLLER_CHANGE BROKER_CHANGE TOPIC_CHANGE TOPIC_DELETION ALTER_PARTITION_REASSIGNMENT AUTO_LEADER_BALANCE
    MANUAL_LEADER_BALANCE CONTROLLED_SHUTDOWN ISR_CHANGE LEADER_AND_ISR_RESPONSE_RECEIVED LOG_DIR_CHANGE
    CONTROLLER_SHUTDOWN UNCLEAN_LEADER_ELECTION_ENABLE TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE LIST_PARTITION_REASSIGNMENT
    UPDATE_METADATA_RESPONSE_RECEIVED UPDATE_FEATURES
"""


def test_the_allowed_partition_state_transitions_equal_kafkas() -> None:
    moves = {f"{a}>{b}" for a, b in product(PartitionState, repeat=2) if can_move(a, b)}

    assert {m.replace("Partition", "") for m in moves} == set(KAFKA_MOVES.split())


def test_the_allowed_replica_state_transitions_equal_kafkas() -> None:
    moves = {f"{a}>{b}" for a, b in product(ReplicaState, repeat=2) if can_move_replica(a, b)}

    assert moves == set(KAFKA_REPLICA_MOVES.split())


def test_a_set_of_partitions_may_make_a_state_transition_only_if_every_partition_may() -> None:
    states = (*ReplicaState, None)
    for target, *some in product(ReplicaState, states, states):
        known = [ReplicaState.NON_EXISTENT if s is None else s for s in some]
        assert can_all_move(some, target) == all(can_move_replica(s, target) for s in known)


def test_the_controller_states_of_the_metric_have_kafkas_numbers() -> None:
    assert [s.name for s in ControllerState] == KAFKA_CONTROLLER_STATES.split()
    assert [s.value for s in ControllerState] == list(range(18))


OURS = {"BecomeController", "DeadBrokerTimeout", "DelegationTokenExpiry", "TargetsInSync", "ResumeAfterFailure"}
"""Events that Kafka does not have."""


def test_each_of_the_28_controller_events_has_its_controller_state() -> None:
    kinds = [k for k in vars(events).values() if isinstance(k, type) and issubclass(k, Event)]
    concrete = [k for k in kinds if k not in (Event, events.Answered)]

    assert len([k for k in concrete if k.__name__ not in OURS]) == 28
    assert all(isinstance(k.state, ControllerState) for k in concrete)


def test_every_controller_event_has_a_handler() -> None:
    """Those that are not in the table have a place in the controller's own life."""
    kinds = [k for k in vars(events).values() if isinstance(k, type) and issubclass(k, Event)]
    life = {
        "Startup",
        "ControllerChange",
        "Reelect",
        "BecomeController",
        "RegisterBrokerAndReelect",
        "Expire",
        "ShutdownEventThread",
    }

    unhandled = {k.__name__ for k in kinds if k not in HANDLERS} - {"Event", "Answered"}
    assert unhandled == life


def test_every_controller_event_with_a_caller_defines_its_refusal_response() -> None:
    kinds = [k for k in vars(events).values() if isinstance(k, type) and issubclass(k, events.Answered)]
    without = [k.__name__ for k in kinds if k is not events.Answered and "refusal" not in vars(k)]

    assert not without
