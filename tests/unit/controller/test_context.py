"""The controller context: look-ups and counters while leaders, assignments and deletions change."""

from tests.support.controller_room import assert_counted

from klamm.controller.context import ControllerContext
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def three_partitions() -> tuple[ControllerContext, Partition, Partition, Partition]:
    """A context with `a-0`, `a-1` and `b-0`, each on brokers 1, 2 and 3 and without a leader."""
    context = ControllerContext(1)
    a, b = context.add_topic("a", None), context.add_topic("b", None)
    first, second, other = (
        context.add_partition(t, n, ReplicaAssignment(ids(1, 2, 3))) for t, n in ((a, 0), (a, 1), (b, 0))
    )
    return context, first, second, other


def lead(context: ControllerContext, partition: Partition, leader: int) -> None:
    context.put_leadership(partition, LeaderAndIsr(BrokerId(leader), 0, ids(1, 2, 3), 0))


def test_looking_up_an_unknown_topic_in_the_controllers_memory_creates_no_entry() -> None:
    context, *_ = three_partitions()

    assert context.partition("a", 100) is None
    assert context.partition("nobody", 0) is None
    assert list(context.topics) == ["a", "b"]


def test_the_controllers_memory_keeps_a_separate_replica_assignment_for_each_partition() -> None:
    context, _, second, _ = three_partitions()
    context.put_assignment(second, ReplicaAssignment(ids(3, 1, 2), adding=ids(1), removing=ids(2)))

    assert {n: p.replicas for n, p in context.topics["a"].partitions.items()} == {0: ids(1, 2, 3), 1: ids(3, 1, 2)}
    assert second.assignment == (ids(3, 1, 2), ids(1), ids(2))
    assert list(context.reassigning) == [second]

    context.put_assignment(second, ReplicaAssignment(ids(4)))
    assert second.assignment == (ids(4), (), ())
    assert not context.reassigning


def imbalanced(context: ControllerContext) -> list[Partition]:
    """The partitions that are counted as imbalanced."""
    return [p for p in context.partitions() if p.is_imbalanced]


def test_the_preferred_leader_imbalance_count_follows_leader_and_assignment_changes() -> None:
    context, first, second, third = three_partitions()
    counts = [context.imbalanced_count]
    for partition, leader in ((first, 1), (second, 2), (third, 3)):
        lead(context, partition, leader)
        counts.append(context.imbalanced_count)
    assert counts == [0, 0, 1, 2]

    for partition in (first, second):  # now 2 is to lead both: what was right is wrong, and the other way round
        context.put_assignment(partition, ReplicaAssignment(ids(2, 3, 1)))
    assert imbalanced(context) == [first, third]

    context.queue_deletion(["b"])
    assert imbalanced(context) == [first]
    for leader in (1, 2):
        lead(context, third, leader)
    assert imbalanced(context) == [first]
    assert_counted(context)

    for topic in ("a", "b"):
        context.remove_topic(topic)
    assert not imbalanced(context)
    assert_counted(context)


def test_a_topic_queued_for_deletion_twice_is_counted_once() -> None:
    context, first, second, third = three_partitions()
    lead(context, third, 3)
    assert context.queue_deletion(["a"]) == ["a"]
    for partition in (first, second):
        lead(context, partition, -1)
    assert imbalanced(context) == [third]

    assert context.queue_deletion(["a", "b"]) == ["b"]

    assert not imbalanced(context)
    assert_counted(context)
