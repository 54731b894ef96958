"""What the tier of whole nodes takes for read, for lost with the power, and for allowed at rest."""

import uuid

import pytest
from tests.unit.log.support import batch

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.clients.consumer import records_from
from klamm.sim.cluster_tier.history import OFFSETS_TOPIC, TierHistory, TopicFacts
from klamm.sim.cluster_tier.invariants.clients import committed_offsets_are_kept, high_watermark_is_monotone
from klamm.sim.cluster_tier.invariants.logs import (
    acknowledged_records_are_on_min_isr_disks,
    committed_records_are_not_truncated,
    recovery_keeps_what_was_written,
    recovery_points_are_on_the_device,
    retention_keeps_what_is_not_replicated,
)
from klamm.sim.cluster_tier.invariants.rest import (
    FinalRead,
    epoch_files_agree_with_batches,
    every_partition_is_led,
    groups_have_a_coordinator,
    isrs_are_whole,
    only_assigned_replicas_have_logs,
)
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs
from klamm.sim.cluster_tier.trace import (
    Acknowledged,
    CommitEnded,
    CommittedOffsetRead,
    DiskEvent,
    Expired,
    NodeStarted,
    Polled,
    PowerLost,
    Send,
    Truncated,
)
from klamm.sim.cluster_tier.watch import DiskWatch
from klamm.sim.disk import SimulatedDisk
from klamm.sim.history.history import History
from klamm.sim.history.trace import TopicZnode
from klamm.sim.zookeeper.tree import Tree
from klamm.wire.records import CorruptRecords

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=7)
FACTS = TopicFacts(2, 1, is_synced=False, has_retention=False)


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def test_the_simulations_log_check_reads_records_before_a_damaged_batch() -> None:
    second = damaged(batch("b", base_offset=1))

    assert records_from(batch("a") + second, 0).records == ((0, b"a"),)
    with pytest.raises(CorruptRecords, match="batch at offset 1: its CRC"):
        records_from(second, 1)


def test_the_simulation_counts_a_batch_as_lost_if_power_loss_restores_the_batch_before() -> None:
    """The log may end where it did, or later: the records of the newer leader epoch are gone all the same."""
    history = TierHistory(History(), {})

    history.on_power_lost(PowerLost(1, {ORDERS: 5}, {ORDERS: 2}, {ORDERS: 2}))

    assert history.exposed == {ORDERS: 2}


def polled(high_watermark: int) -> Polled:
    return Polled("c", ORDERS, 1, 3, 0, (), high_watermark, 0)


def test_a_high_watermark_that_falls_within_a_leader_epoch_is_a_violation_without_restart() -> None:
    history = TierHistory(History(), {})
    history.on_polled(polled(9))

    assert high_watermark_is_monotone(history, polled(9)) is None
    history.topics["orders"] = FACTS
    assert high_watermark_is_monotone(history, polled(8)) is not None
    history.on_started(BrokerId(1))
    assert high_watermark_is_monotone(history, polled(8)) is None


def test_the_simulation_accepts_a_follower_that_returns_a_lower_high_watermark() -> None:
    """It falls with that of a leader that restarts, as in Kafka."""
    history = TierHistory(History(), {})
    history.topics["orders"] = FACTS
    history.on_polled(polled(9)._replace(follower=2))

    assert high_watermark_is_monotone(history, polled(8)._replace(follower=2)) is None
    assert high_watermark_is_monotone(history, polled(8)) is None


def test_a_recovery_point_after_damaged_records_is_no_violation() -> None:
    history = TierHistory(History(), {})
    event = PowerLost(1, {ORDERS: 5}, {}, {ORDERS: 7})
    assert recovery_points_are_on_the_device(history, event) is not None

    history.on_destroyed(ORDERS, 5)

    assert recovery_points_are_on_the_device(history, event) is None


class Resting:
    """A cluster at rest: broker 1 leads `orders-0` and has a log with leader epochs 0 and 1."""

    def __init__(self, *, isr: tuple[int, ...] = (1, 2), topic_id: uuid.UUID | None = TOPIC_ID) -> None:
        self.disk = SimulatedDisk(Rng(1))
        self.disk.make_directories("/data1/orders-0")
        self.log = self.disk.open("/data1/orders-0/00000000000000000000.log", create=True)
        self.log.pwrite([batch("a", epoch=0) + batch("b", base_offset=1, epoch=1)], 0)
        self.tier = TierHistory(
            History(), {1: DiskLogs(self.disk)} | {b: DiskLogs(SimulatedDisk(Rng(b))) for b in (2, 3)}
        )
        self.tier.topics["orders"] = FACTS
        history = self.tier.zookeeper
        assignment = ReplicaAssignment((BrokerId(1), BrokerId(2)))
        history.topics.znodes["orders"] = TopicZnode(topic_id, {0: assignment}, 1)
        state = LeaderAndIsr(BrokerId(1), 1, tuple(BrokerId(b) for b in isr), 1, 1)
        history.states.versions[ORDERS] = [state]
        self.final_reads = {ORDERS: FinalRead()}
        self.tree = Tree()
        self.unread_groups: dict[str, str] = {}
        self.subscriptions: dict[str, str] = {}
        self.copied_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.mistakes: list[str] = []

    def write_epochs(self, text: str) -> None:
        self.disk.write_atomically("/data1/orders-0/leader-epoch-checkpoint", text.encode())


def test_an_incomplete_isr_at_rest_is_a_violation_unless_the_log_of_the_leader_is_damaged() -> None:
    cluster = Resting(isr=(1,))
    cluster.final_reads[ORDERS].error = "a record is refused: NOT_ENOUGH_REPLICAS"
    assert "ISR (1,)" in str(isrs_are_whole(cluster))
    cluster.tier.on_destroyed(ORDERS, 0)  # by the loss of a directory: the replica is copied again
    assert "ISR (1,)" in str(isrs_are_whole(cluster))
    assert every_partition_is_led(cluster) is not None

    cluster.log.pwrite([b"x"], 40)

    assert isrs_are_whole(cluster) is None
    assert every_partition_is_led(cluster) is None


def test_missing_leader_epochs_of_records_before_the_log_start_are_no_violation() -> None:
    cluster = Resting()
    cluster.write_epochs("0\n1\n1 1\n")
    assert epoch_files_agree_with_batches(cluster) is not None

    cluster.final_reads[ORDERS].log_start = 1

    assert epoch_files_agree_with_batches(cluster) is None


def test_a_log_left_by_a_reassignment_is_a_violation_unless_topics_have_no_ids() -> None:
    for topic_id, is_accepted in ((TOPIC_ID, False), (None, True)):
        cluster = Resting(topic_id=topic_id)
        moved = ReplicaAssignment((BrokerId(2), BrokerId(3)))
        cluster.tier.zookeeper.topics.znodes["orders"] = TopicZnode(topic_id, {0: moved}, 1)
        assert (only_assigned_replicas_have_logs(cluster) is None) is is_accepted
    del cluster.tier.zookeeper.topics.znodes["orders"]
    assert only_assigned_replicas_have_logs(cluster) is None
    cluster.tier.zookeeper.topics.ids[TOPIC_ID] = "orders"
    assert only_assigned_replicas_have_logs(cluster) is not None


def test_retention_of_a_segment_that_an_in_sync_replica_lacks_is_a_violation() -> None:
    cluster = Resting()
    second = cluster.disk.open("/data1/orders-0/00000000000000000002.log", create=True)
    second.pwrite([batch("c", base_offset=2, epoch=1)], 0)
    other = cluster.tier.disks[2].disk
    other.make_directories("/data1/orders-0")
    copy = other.open("/data1/orders-0/00000000000000000000.log", create=True)
    copy.pwrite([batch("a", epoch=0)], 0)
    told: list[DiskEvent] = []
    cluster.disk.observer = DiskWatch(1, cluster.tier.disks[1], told.append)

    cluster.disk.remove("/data1/orders-0/00000000000000000000.log")

    [event] = told
    assert event == Expired(1, ORDERS, 2)
    assert "replica 2, in ISR (1, 2), ends at 1" in str(retention_keeps_what_is_not_replicated(cluster.tier, event))
    copy.pwrite([batch("b", base_offset=1, epoch=1)], len(batch("a", epoch=0)))
    assert retention_keeps_what_is_not_replicated(cluster.tier, event) is None


@pytest.mark.parametrize("has_retention", [False, True])
def test_a_follower_may_remove_committed_records_that_an_in_sync_replica_has_removed_by_retention(
    has_retention: bool,
) -> None:
    """Replica 2, which led before, begins at offset 2; leader 1 and replica 3 have the records before it."""
    cluster = Resting()
    cluster.tier.topics["orders"] = FACTS._replace(has_retention=has_retention)
    cluster.tier.committed[ORDERS] = {0: b"a"}
    for broker, base in ((2, 2), (3, 0)):
        disk = cluster.tier.disks[broker].disk
        disk.make_directories("/data1/orders-0")
        disk.open(f"/data1/orders-0/{base:020}.log", create=True).pwrite([batch("a", base_offset=base, epoch=0)], 0)

    wrong = committed_records_are_not_truncated(cluster.tier, Truncated(3, ORDERS, 0, 1))

    assert (wrong is None) is has_retention


def test_truncation_in_a_topic_that_no_operation_created_is_not_judged() -> None:
    cluster = Resting()
    cluster.tier.topics.clear()
    cluster.tier.committed[ORDERS] = {0: b"a"}
    disk = cluster.tier.disks[3].disk
    disk.make_directories("/data1/orders-0")
    disk.open(f"/data1/orders-0/{0:020}.log", create=True).pwrite([batch("a", base_offset=0)], 0)

    assert committed_records_are_not_truncated(cluster.tier, Truncated(3, ORDERS, 0, 1)) is None


def test_a_damaged_log_after_a_start_is_a_violation_unless_its_directory_failed_while_it_was_loaded() -> None:
    cluster = Resting()
    cluster.log.pwrite([damaged(batch("c", base_offset=2, epoch=1))], cluster.log.size())

    assert recovery_keeps_what_was_written(cluster.tier, NodeStarted(1, ("/data1", "/data2"))) is not None
    assert recovery_keeps_what_was_written(cluster.tier, NodeStarted(1, ("/data2",))) is None


def test_a_replica_on_a_failed_disk_counts_as_holding_an_acknowledged_record() -> None:
    cluster = Resting()
    cluster.tier.topics["orders"] = FACTS._replace(min_isr=2)
    send = Send("p", ORDERS, (b"a",), -1, 0.0)
    send.offset = 0
    event = Acknowledged(send)
    assert "is on 1 disks" in str(acknowledged_records_are_on_min_isr_disks(cluster.tier, event))

    other = cluster.tier.disks[2].disk
    other.make_directories("/data1")
    other.fail("/data1")

    assert acknowledged_records_are_on_min_isr_disks(cluster.tier, event) is None


def test_a_committed_offset_must_be_the_newest_acknowledged_or_an_unanswered_commit() -> None:
    history = TierHistory(History(), {})
    history.topics["orders"] = FACTS

    def read(offset: int) -> str | None:
        return committed_offsets_are_kept(history, CommittedOffsetRead("g", ORDERS, offset))

    assert read(-1) is None
    for offset in (1, 2):
        history.on_commit_ended(CommitEnded("g", ORDERS, offset, is_stored=True))
    assert "committed offset of g is 1; 2 was stored" in str(read(1))
    assert read(-1) is not None
    assert read(2) is None
    history.on_commit_ended(CommitEnded("g", ORDERS, 3, is_stored=False))
    assert read(2) is None
    assert read(3) is None
    history.on_destroyed(OFFSETS_TOPIC, 0)
    assert read(1) is None


def test_a_group_without_a_coordinator_is_a_violation_unless_its_topic_is_damaged() -> None:
    cluster = Resting()
    cluster.unread_groups["g"] = "no coordinator"
    assert groups_have_a_coordinator(cluster) == "group g: no coordinator"

    cluster.tier.on_destroyed(OFFSETS_TOPIC, 0)

    assert groups_have_a_coordinator(cluster) is None
