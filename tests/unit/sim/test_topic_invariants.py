"""Topics that are to be deleted as the simulation sees them: what may still come up, and when a request goes."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.sim.histories import history_of

from klamm.controller.events import TopicDeletion
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.trace import EventBegan, StateWritten, Term, TopicWritten, TopicZnode, TransactionCommitted
from klamm.sim.invariants.topics import (
    deletion_requests_are_removed_after_topics,
    deletions_finish,
    pending_deletions_finish,
    topic_ids_are_never_reused,
    topics_being_deleted_get_no_partitions,
)
from klamm.sim.zookeeper.tree import CreateChange, DeleteChange
from klamm.zk.pending_deletions import PendingDeletion
from klamm.zk.znodes import delete_topic_path


@pytest.mark.parametrize(
    ("had_come_up", "deletes_topics", "is_found"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_partition_added_during_the_deletion_of_an_online_topic_must_not_come_online(
    had_come_up: bool, deletes_topics: bool, is_found: bool
) -> None:
    """Partition 1 is added after the deletion was asked for; the controller looked for deletions before it came up."""
    term = Term(BrokerId(1), 1, 1, ControllerSettings(BrokerId(1), delete_topic_enable=deletes_topics))
    history = history_of(controllers={"epoch": 1, "terms": {1: term}})
    state = LeaderAndIsr(BrokerId(1), 0, (BrokerId(1),), 1, 0)
    alone = ReplicaAssignment((BrokerId(1),))
    before, grown = TopicZnode(None, {0: alone}, 1), TopicZnode(None, {0: alone, 1: alone}, 1)

    history.absorb(TopicWritten("a", None, before, 0))
    if had_come_up:
        history.absorb(StateWritten(TopicPartition("a", 0), None, state, (BrokerId(1),), 0))
    history.absorb(TransactionCommitted(5, 0, None, [CreateChange(delete_topic_path("a"), None, (), 0)]))
    history.absorb(TopicWritten("a", before, grown, 0))
    history.at.zxid = 6
    history.absorb(EventBegan(BrokerId(1), 1, term, TopicDeletion(), ()))
    wrong = topics_being_deleted_get_no_partitions(
        history, StateWritten(TopicPartition("a", 1), None, state, (BrokerId(1),), 0)
    )

    assert (wrong is not None) is is_found


@pytest.mark.parametrize("is_new", [False, True], ids=["same topic", "topic recreated"])
def test_removing_a_deletion_request_before_its_topic_is_a_violation_unless_recreated(is_new: bool) -> None:
    """A controller took the topic away, and needed a second more for the request; meanwhile somebody made it anew."""
    history = history_of(controllers={"sessions": {7}})
    history.absorb(TopicWritten("a", None, TopicZnode(None, {}, 1), 0))
    history.absorb(TransactionCommitted(5, 0, None, [CreateChange(delete_topic_path("a"), None, (), 0)]))
    if is_new:
        history.absorb(TopicWritten("a", None, TopicZnode(None, {}, 8), 0))

    wrong = deletion_requests_are_removed_after_topics(
        history, TransactionCommitted(9, 7, 0, [DeleteChange(delete_topic_path("a"))])
    )

    assert (wrong is None) is is_new


@pytest.mark.parametrize(("given", "is_found"), [(UUID(int=7), True), (UUID(int=8), False)])
def test_a_topic_that_gets_the_topic_id_of_another_topic_is_a_violation(given: UUID, is_found: bool) -> None:
    """Topic `b` was made by a tool that gives no ids; the controller adds one."""
    history = history_of()
    history.absorb(TopicWritten("a", None, TopicZnode(UUID(int=7), {}, 1), 0))
    before = TopicZnode(None, {}, 2)
    history.absorb(TopicWritten("b", None, before, 0))

    wrong = topic_ids_are_never_reused(history, TopicWritten("b", before, before._replace(id=given), 7))

    assert (wrong is not None) is is_found


RECORDS = {
    "it runs": (True, False, False, True),
    "it does not run": (False, False, False, False),
    "a log directory of it failed": (True, True, False, False),
    "it has the replica again": (True, False, True, False),
}


@pytest.mark.parametrize(("runs", "has_failed", "is_assigned", "is_found"), RECORDS.values(), ids=RECORDS)
def test_a_record_of_replicas_to_be_deleted_may_be_left_at_rest_only_for_a_broker_that_cannot_delete_them(
    runs: bool, has_failed: bool, is_assigned: bool, is_found: bool
) -> None:
    topic_id, broker = UUID(int=1), BrokerId(1)
    topic = TopicZnode(topic_id, {0: ReplicaAssignment((broker,) if is_assigned else (BrokerId(2),))}, 1)
    records = {broker: {"record": PendingDeletion(broker, "a", topic_id, (0,))}}
    history = history_of(topics={"znodes": {"a": topic}, "pending_deletions": records})
    running = [SimpleNamespace(number=broker, replicas=SimpleNamespace(failed=has_failed))] if runs else []
    cluster: Any = SimpleNamespace(history=history, running=running)

    assert (pending_deletions_finish(cluster) is not None) is is_found


@pytest.mark.parametrize(
    ("moves", "is_registered", "is_found"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_a_deletion_may_be_left_at_rest_only_for_a_move_that_waits_for_an_unregistered_isr_member(
    moves: bool, is_registered: bool, is_found: bool
) -> None:
    p, member = TopicPartition("a", 0), BrokerId(2)
    assignment = ReplicaAssignment((member, BrokerId(1)), (BrokerId(1),) if moves else ())
    state = LeaderAndIsr(member, 0, (member,), 1, 0)
    history = history_of(
        topics={"znodes": {"a": TopicZnode(None, {0: assignment}, 1)}, "deletion_requests": {"a": 5}},
        registrations={"current": {member: (1, 1)} if is_registered else {}},
        states={"versions": {p: [state]}},
    )
    cluster: Any = SimpleNamespace(history=history, running=[])

    assert (deletions_finish(cluster) is not None) is is_found
