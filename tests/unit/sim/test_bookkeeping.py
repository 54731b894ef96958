"""What a controller keeps beside ZooKeeper, as the simulation sees it: indexes, metrics, mirrors."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import (
    ApiPartitionReassignment,
    ListPartitionReassignments,
    ReassignmentAnswer,
    ReassignmentList,
)
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState, ReplicaState
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, Term, TopicZnode
from klamm.sim.invariants.answers import reassignment_answers_match_zookeeper
from klamm.sim.invariants.indexes import indexes_follow_from_states, standbys_have_a_mirror

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
P = TopicPartition("a", 0)
BOTH = ReplicaAssignment((ONE, TWO))
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))


def context() -> ControllerContext:
    """Broker 2 leads a partition of brokers 1 and 2, which both live."""
    found = ControllerContext(2)
    found.add_brokers([Broker(ONE, (), epoch=1), Broker(TWO, (), epoch=2)])
    partition = found.add_partition(found.add_topic("a", None), 0, BOTH)
    found.put_leadership(partition, LeaderAndIsr(TWO, 1, (ONE, TWO), 1, 1))
    found.start(partition, PartitionState.ONLINE)
    for broker in (ONE, TWO):
        found.move_replicas(broker, [partition], ReplicaState.NEW)
        found.move_replicas(broker, [partition], ReplicaState.ONLINE)
    return found


def cluster_of(found: ControllerContext) -> Any:
    history = History()
    history.states.versions[P] = [LeaderAndIsr(TWO, 1, (ONE, TWO), 1, 1)]
    controller = SimpleNamespace(term=SimpleNamespace(context=found))
    return SimpleNamespace(history=history, running=[SimpleNamespace(number=ONE, controller=controller)])


def test_indexes_that_follow_from_states_are_no_violation() -> None:
    assert indexes_follow_from_states(cluster_of(context())) is None


def partition_of(found: ControllerContext) -> Any:
    partition = found.partition("a", 0)
    assert partition is not None
    return partition


def set_of(name: str, value: Any) -> Callable[[ControllerContext], None]:
    return lambda found: setattr(found, name, value)


DRIFTS: dict[str, Callable[[ControllerContext], object]] = {
    "the number of partitions": set_of("partition_count", 2),
    "led partitions": lambda c: c.led_by.setdefault(ONE, {}).setdefault(partition_of(c)),
    "new and offline partitions": lambda c: c.in_state[PartitionState.NEW].setdefault(partition_of(c)),
    "reassignments": lambda c: c.reassigning.setdefault(partition_of(c)),
    "imbalanced partitions": lambda c: setattr(partition_of(c), "is_imbalanced", False),
    "the number of imbalanced partitions": set_of("imbalanced_count", 0),
    "the live brokers": set_of("live", frozenset({ONE})),
    "the leaving brokers": set_of("leaving", frozenset({ONE})),
    "states of partitions": lambda c: setattr(partition_of(c), "state", PartitionState.NON_EXISTENT),
    "states of replicas": lambda c: c.move_replicas(ONE, [partition_of(c)], ReplicaState.OFFLINE),
    "states of replicas that are not assigned": lambda c: c.list_replicas(THREE, [partition_of(c)]),
    "brokers in transition": set_of("brokers_in_transition", {ONE: None}),
    "brokers that are gone and registered": set_of("gone_since", {ONE: 1.0}),
    "failed directories of brokers that are gone": lambda c: c.offline_dirs.update({THREE: {partition_of(c): None}}),
    "deletions of topics that are not to be deleted": set_of("topics_with_deletion_started", {"a"}),
    "sent assignments of partitions that do not move": lambda c: c.record_sent_assignments([partition_of(c)]),
    "reassignments that complete": lambda c: c.begin_completing(partition_of(c)),
    "finished records of pending deletions": set_of("records_to_remove", {(ONE, None): None}),
    "pending deletions by topic": set_of("pending_by_topic", {"a": {(ONE, 7): None}}),
}


@pytest.mark.parametrize(("name", "drift"), DRIFTS.items(), ids=DRIFTS)
def test_an_index_that_does_not_follow_from_states_is_a_violation(
    name: str, drift: Callable[[ControllerContext], object]
) -> None:
    found = context()
    drift(found)

    assert f"keeps {name} " in str(indexes_follow_from_states(cluster_of(found)))


MIRRORS = {
    "all of five": (5, 5, True, False),
    "none of five": (5, 5, False, True),
    "the second of six": (6, 2, True, False),
    "not the second of six": (6, 2, False, True),
    "the third of six": (6, 3, True, True),
    "not the third of six": (6, 3, False, False),
}


@pytest.mark.parametrize(("count", "number", "has_mirror", "is_found"), MIRRORS.values(), ids=MIRRORS)
@pytest.mark.parametrize("is_active", [False, True])
def test_a_mirror_on_a_node_that_is_not_chosen_or_none_on_a_chosen_one_is_a_violation(
    count: int, number: int, has_mirror: bool, is_found: bool, is_active: bool
) -> None:
    standby = SimpleNamespace(is_current=has_mirror, mirror=object() if has_mirror else None)
    controller = SimpleNamespace(term=object() if is_active else None, standby=standby)
    other = SimpleNamespace(standby=None)
    nodes = [SimpleNamespace(number=n, controller=controller if n == number else other) for n in range(1, count + 1)]
    cluster: Any = SimpleNamespace(running=nodes)

    assert (standbys_have_a_mirror(cluster) is not None) is (has_mirror if is_active else is_found)


MOVING = ReplicaAssignment((TWO, ONE), (TWO,), (ONE,))
INVALID, NONE_MOVES = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
MOVES: dict[str, tuple[ReplicaAssignment, tuple[int, ...] | None, ErrorCode | None, bool]] = {
    "begun": (MOVING, (2,), None, False),
    "not begun": (ReplicaAssignment((ONE,)), (2,), None, True),
    "cancelled": (ReplicaAssignment((ONE,)), None, None, False),
    "not cancelled": (MOVING, None, None, True),
    "invalid and refused": (MOVING, (2, 2), INVALID, False),
    "empty and refused": (MOVING, (), INVALID, False),
    "invalid and accepted": (ReplicaAssignment((TWO, TWO)), (2, 2), None, True),
    "invalid, and refused for another reason": (MOVING, (-1,), NONE_MOVES, True),
    "nothing to cancel": (ReplicaAssignment((ONE,)), None, NONE_MOVES, False),
    "something to cancel": (MOVING, None, NONE_MOVES, True),
    "a replica that is there is refused": (ReplicaAssignment((ONE,)), (1,), INVALID, True),
    "a dead broker is refused": (ReplicaAssignment((ONE,)), (3,), INVALID, False),
}


@pytest.mark.parametrize(("assigned", "target", "error", "is_found"), MOVES.values(), ids=MOVES)
async def test_the_answer_to_a_reassignment_that_differs_from_zookeeper_is_a_violation(
    assigned: ReplicaAssignment, target: tuple[int, ...] | None, error: ErrorCode | None, is_found: bool
) -> None:
    history = History()
    history.controllers.epoch = 1
    history.topics.znodes["a"] = TopicZnode(None, {0: assigned}, 1)
    asked = ApiPartitionReassignment({P: None if target is None else tuple(map(BrokerId, target))})
    asked.answer(ReassignmentAnswer(ErrorCode.NONE, {P: Refusal(error, "")} if error else {}))

    wrong = reassignment_answers_match_zookeeper(history, EventEnded(ONE, 1, TERM, asked))

    assert (wrong is not None) is is_found, wrong


@pytest.mark.parametrize("listed", [None, BOTH, MOVING])
@pytest.mark.parametrize("assigned", [BOTH, MOVING])
async def test_the_list_of_reassignments_has_those_in_progress(
    listed: ReplicaAssignment | None, assigned: ReplicaAssignment
) -> None:
    history = History()
    history.controllers.epoch = 1
    history.topics.znodes["a"] = TopicZnode(None, {0: assigned}, 1)
    asked = ListPartitionReassignments([P])
    asked.answer(ReassignmentList(ErrorCode.NONE, {} if listed is None else {P: listed}))

    wrong = reassignment_answers_match_zookeeper(history, EventEnded(ONE, 1, TERM, asked))

    assert (wrong is None) is (listed == (MOVING if assigned == MOVING else None))
