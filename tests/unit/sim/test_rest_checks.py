"""What the tier of whole nodes asks of replicas, registrations, recreated topics and deleted offsets."""

import pytest
from tests.unit.log.support import batch
from tests.unit.sim.test_cluster_tier_checks import FACTS, ORDERS, Resting

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.cluster_tier.history import OFFSETS_TOPIC, Recreation, TierHistory
from klamm.sim.cluster_tier.invariants.clients import committed_offsets_are_kept
from klamm.sim.cluster_tier.invariants.deletions import records_of_earlier_topics_do_not_return
from klamm.sim.cluster_tier.invariants.elections import leaders_come_from_the_isr
from klamm.sim.cluster_tier.invariants.groups import partitions_have_one_owner
from klamm.sim.cluster_tier.invariants.logs import in_sync_replicas_have_what_is_committed
from klamm.sim.cluster_tier.invariants.rest import (
    acknowledged_records_are_read,
    epoch_files_agree_with_batches,
    every_node_is_registered,
    every_replica_has_a_log,
    one_controller_is_registered,
)
from klamm.sim.cluster_tier.trace import Acknowledged, Assigned, CommitEnded, CommittedOffsetRead, Polled, Send
from klamm.sim.history.history import History
from klamm.sim.history.trace import StateWritten, TopicZnode
from klamm.sim.zookeeper.tree import CreateChange
from klamm.zk.znodes import BROKER_IDS, CONTROLLER, broker_path, encode_controller

ONE, TWO, THREE = (BrokerId(n) for n in (1, 2, 3))


def with_copy(base: int = 0) -> Resting:
    """Broker 2 has the records, too; from this offset on."""
    cluster = Resting()
    cluster.final_reads[ORDERS].high_watermark = 2
    disk = cluster.tier.disks[2].disk
    disk.make_directories("/data1/orders-0")
    content = b"".join([batch("a", epoch=0), batch("b", base_offset=1, epoch=1)][base:])
    disk.open(f"/data1/orders-0/{base:020}.log", create=True).pwrite([content], 0)
    return cluster


def test_a_replica_without_a_log_or_without_the_end_of_it_is_a_violation() -> None:
    cluster = Resting()
    cluster.final_reads[ORDERS].high_watermark = 2
    assert every_replica_has_a_log(cluster) == "orders-0: replica 2 has no log"
    assert every_replica_has_a_log(with_copy()) is None

    cluster = with_copy()
    cluster.final_reads[ORDERS].high_watermark = 3

    assert "replica 1 is 0 to 2" in str(every_replica_has_a_log(cluster))


@pytest.mark.parametrize("has_retention", [False, True])
def test_only_retention_excuses_an_in_sync_replica_that_begins_later(has_retention: bool) -> None:
    cluster = with_copy(base=1)
    cluster.tier.topics["orders"] = FACTS._replace(has_retention=has_retention)
    cluster.tier.committed[ORDERS] = {0: b"a"}
    state = cluster.tier.zookeeper.states.versions[ORDERS][0]
    wrong = in_sync_replicas_have_what_is_committed(cluster.tier, StateWritten(ORDERS, state, state, (ONE, TWO), 7))

    assert (wrong is None) is has_retention
    assert (every_replica_has_a_log(cluster) is None) is has_retention


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ("0 0\n1 1\n", None),
        ("0 0\n1 1\n4 2\n", None),
        ("0 0\n1 1\n4 3\n", "the log ends at 2"),
        ("0 0\n", "epoch 1 begins at 1"),
    ],
)
def test_the_epoch_file_has_no_epoch_after_the_end_of_the_log(entries: str, problem: str | None) -> None:
    cluster = Resting()
    cluster.write_epochs(f"0\n{entries.count(chr(10))}\n{entries}")

    wrong = epoch_files_agree_with_batches(cluster)

    assert (wrong is None) if problem is None else (problem in str(wrong))


def test_an_epoch_without_records_must_not_begin_inside_another() -> None:
    """The leader would tell a follower in the other epoch that it ends there, and the follower would cut records."""
    cluster = Resting()
    cluster.log.pwrite([batch("c", "d", base_offset=2, epoch=1)], cluster.log.size())
    cluster.write_epochs("0\n3\n0 0\n1 1\n3 3\n")

    assert "offset 3 has epoch 1, by the file 3" in str(epoch_files_agree_with_batches(cluster))


def test_an_acknowledged_record_whose_offset_is_not_known_must_be_read() -> None:
    cluster = Resting()
    cluster.final_reads[ORDERS].records = [(0, b"a")]
    cluster.tier.acknowledged[ORDERS] = {b"a": -1}
    assert acknowledged_records_are_read(cluster) is None

    cluster.tier.acknowledged[ORDERS] = {b"b": -1}

    assert "b'b', acknowledged at -1, is lost" in str(acknowledged_records_are_read(cluster))
    cluster.tier.exposed[ORDERS] = 0
    assert acknowledged_records_are_read(cluster) is None


def test_a_leader_from_outside_the_isr_is_a_violation_unless_an_operator_asked_for_it() -> None:
    history = TierHistory(History(), {})
    before = LeaderAndIsr(ONE, 1, (ONE,), 1, 1)
    event = StateWritten(ORDERS, before, before._replace(leader=TWO, isr=(TWO,)), (ONE, TWO), 7)
    assert leaders_come_from_the_isr(history, event) == "orders-0: new leader 2 was not in ISR (1,)"

    history.topics["orders"] = FACTS._replace(may_be_unclean=True)

    assert leaders_come_from_the_isr(history, event) is None


def test_a_node_that_is_not_registered_at_rest_is_a_violation() -> None:
    cluster = Resting()
    assert every_node_is_registered(cluster) == "not registered: [1, 2, 3]"
    for path in ("/brokers", BROKER_IDS, *map(broker_path, (1, 2, 3))):
        cluster.tree.apply(CreateChange(path, b"", (), 0), 1, 0)

    assert every_node_is_registered(cluster) is None


def test_the_controller_znode_names_the_registered_winner_of_the_last_election() -> None:
    cluster = Resting()
    assert one_controller_is_registered(cluster) == f"no {CONTROLLER}"
    for path in ("/brokers", BROKER_IDS, *map(broker_path, (1, 2))):
        cluster.tree.apply(CreateChange(path, b"", (), 0), 1, 0)
    cluster.tree.apply(CreateChange(CONTROLLER, encode_controller(TWO, 0), (), 7), 1, 0)
    cluster.tier.zookeeper.controllers.epoch = 4
    cluster.tier.zookeeper.controllers.winners[4] = ONE, 7
    assert one_controller_is_registered(cluster) == f"{CONTROLLER} names 2; 1 won epoch 4"

    cluster.tier.zookeeper.controllers.winners[4] = TWO, 7

    assert one_controller_is_registered(cluster) is None


def recreated() -> TierHistory:
    """`orders` had one record, was deleted, and was created again at 5 s."""
    history = TierHistory(History(), {})
    history.topics["orders"] = FACTS
    send = Send("p", ORDERS, (b"a",), -1, 1.0)
    send.offset, send.acknowledged_s, send.attempts = 0, 2.0, 1
    history.on_send(send)
    history.on_acknowledged(Acknowledged(send))
    history.forget_topics(["orders"])
    history.recreations["orders"] = Recreation(3, 5.0)
    return history


def test_a_recreated_topic_is_judged_as_a_new_one() -> None:
    history = recreated()
    history.zookeeper.topics.znodes["orders"] = TopicZnode(None, {0: ReplicaAssignment((ONE, TWO))}, 3)
    history.revive_topics()
    assert not history.is_promised(ORDERS)  # the earlier one was not deleted

    history.zookeeper.topics.znodes["orders"] = TopicZnode(None, {0: ReplicaAssignment((ONE, TWO))}, 4)
    history.revive_topics()

    assert history.is_promised(ORDERS)
    assert list(history.promised(ORDERS)) == []


def test_a_record_of_an_earlier_topic_in_a_recreated_one_is_a_violation_unless_it_was_sent_twice() -> None:
    history = recreated()
    poll = Polled("c", ORDERS, 1, 0, 0, ((0, b"a"),), 1, 0)
    assert records_of_earlier_topics_do_not_return(history, poll) is None  # late, of the earlier topic
    history.zookeeper.topics.znodes["orders"] = TopicZnode(None, {0: ReplicaAssignment((ONE, TWO))}, 4)
    history.revive_topics()
    assert "reads b'a' of an earlier topic" in str(records_of_earlier_topics_do_not_return(history, poll))

    history.sends[b"a"].attempts = 2

    assert records_of_earlier_topics_do_not_return(history, poll) is None


def test_a_deleted_offset_may_only_be_back_under_the_next_leader_of_its_partition() -> None:
    history = TierHistory(History(), {})
    history.topics["orders"] = FACTS
    state = LeaderAndIsr(ONE, 1, (ONE, TWO), 1, 1)
    history.zookeeper.states.versions[OFFSETS_TOPIC] = [state]

    def read(offset: int) -> str | None:
        return committed_offsets_are_kept(history, CommittedOffsetRead("g", ORDERS, offset))

    for offset in (5, -1):
        history.on_commit_ended(CommitEnded("g", ORDERS, offset, is_stored=True))
    assert read(-1) is None
    assert read(5) is not None

    history.zookeeper.states.versions[OFFSETS_TOPIC].append(state._replace(leader=TWO, leader_epoch=2))

    assert read(-1) is None
    assert read(5) is None
    history.on_commit_ended(CommitEnded("g", ORDERS, 6, is_stored=True))
    assert read(5) is not None
    assert read(-1) is not None


@pytest.mark.parametrize(("instance", "is_accepted"), [("i", True), (None, False)])
def test_a_static_member_keeps_its_partitions_under_a_new_member_id(instance: str | None, is_accepted: bool) -> None:
    history = TierHistory(History(), {})
    history.on_assigned(Assigned("g", 1, "m1", (ORDERS,), 1.0, instance))

    wrong = partitions_have_one_owner(history, Assigned("g", 1, "m2", (ORDERS,), 2.0, instance))

    assert (wrong is None) is is_accepted
