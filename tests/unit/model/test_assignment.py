"""The rows of Kafka's reassignment algebra (ControllerContextTest, ReplicaAssignment)."""

import pytest

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId


def ids(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(c)) for c in text)


CASES = [
    ("1234", "4253", ("42531", "5", "1")),
    ("123", "456", ("456123", "456", "123")),
    ("123", "312", ("312", "", "")),
]


@pytest.mark.parametrize(("start", "target", "expected"), CASES)
def test_starting_a_reassignment_sets_adding_and_removing_replicas(
    start: str, target: str, expected: tuple[str, str, str]
) -> None:
    got = ReplicaAssignment(ids(start)).reassign_to(ids(target))

    assert got == ReplicaAssignment(*map(ids, expected))


TARGETS = [
    ("123456", "234", "156", "234"),
    ("1234", "", "14", "23"),
    ("1234", "4", "2", "134"),
    ("123456", "", "", "123456"),
]


@pytest.mark.parametrize(("replicas", "adding", "removing", "target"), TARGETS)
def test_the_target_of_a_reassignment_is_the_replicas_not_being_removed(
    replicas: str, adding: str, removing: str, target: str
) -> None:
    assignment = ReplicaAssignment(ids(replicas), ids(adding), ids(removing))

    assert assignment.target == ids(target)
    assert assignment.is_being_reassigned == bool(adding or removing)


@pytest.mark.parametrize(
    ("replicas", "adding", "removing"), [("123", "", ""), ("456123", "456", "123"), ("4231", "4", "1")]
)
def test_a_reassignment_to_the_current_target_replicas_changes_nothing(
    replicas: str, adding: str, removing: str
) -> None:
    assignment = ReplicaAssignment(ids(replicas), ids(adding), ids(removing))

    assert assignment.reassign_to(assignment.target) == assignment


def test_a_reassignment_that_replaces_another_keeps_the_original_replicas() -> None:
    first = ReplicaAssignment(ids("123")).reassign_to(ids("456"))
    second = first.reassign_to(ids("789"))
    assert second == ReplicaAssignment(ids("123")).reassign_to(ids("789"))

    assert second == ReplicaAssignment(ids("789123"), ids("789"), ids("123"))
    assert second.reassign_to(ids("123")) == ReplicaAssignment(ids("123"))
    assert second.reassign_to(second.target) == second
