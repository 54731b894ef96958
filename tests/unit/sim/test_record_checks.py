"""What the tier of whole nodes takes for a wrong move of a log, a wrong deletion of records, or a wrong time lookup."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.log.support import batch

from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.history import TierHistory, TopicFacts
from klamm.sim.cluster_tier.invariants.clients import positions_stay_valid
from klamm.sim.cluster_tier.invariants.deletions import deleted_records_stay_deleted, nothing_else_is_deleted
from klamm.sim.cluster_tier.invariants.directories import (
    copies_are_complete,
    moves_finish,
    replicas_are_where_they_were_moved,
)
from klamm.sim.cluster_tier.invariants.rest import FinalRead, offsets_by_time_are_right
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs
from klamm.sim.cluster_tier.trace import (
    DiskEvent,
    Expired,
    LogReplaced,
    Polled,
    PositionLost,
    PowerLost,
    RecordsDeleted,
)
from klamm.sim.cluster_tier.watch import DiskWatch
from klamm.sim.disk import SimulatedDisk
from klamm.sim.history.history import History

ORDERS = TopicPartition("orders", 0)
FACTS = TopicFacts(2, 1, is_synced=False, has_retention=False)
FUTURE = f"orders-0.{0:032x}-future"
A, B = batch("a"), batch("b", base_offset=1)


class Broker:
    """Broker 1 with two log directories; the log of `orders-0` is in the first one, its copy in the second."""

    def __init__(self, log: bytes = A + B, copy: bytes = A + B) -> None:
        self.disk = SimulatedDisk(Rng("disk"))
        self.tier = TierHistory(History(), {BrokerId(1): DiskLogs(self.disk)})
        self.tier.topics["orders"] = FACTS
        self.told: list[DiskEvent] = []
        self.disk.observer = DiskWatch(1, self.tier.disks[BrokerId(1)], self.told.append)
        for directory, content in (("/data1/orders-0", log), (f"/data2/{FUTURE}", copy)):
            self.disk.make_directories(directory)
            self.disk.open(f"{directory}/{0:020}.log", create=True).pwrite([content], 0)

    def promote(self) -> LogReplaced:
        """The copy replaces the log, as a broker does it; the log is deleted later."""
        self.disk.open("/data1/orders-0/replaced-by", create=True)
        self.disk.rename(f"/data2/{FUTURE}", "/data2/orders-0")
        [event] = self.told
        assert isinstance(event, LogReplaced)
        return event


@pytest.mark.parametrize(
    ("log", "copy", "is_violation"), [(A + B, A + B, False), (A + B, A, True), (A, A + B, True), (A + B, B, True)]
)
def test_a_copy_that_replaces_a_log_must_have_exactly_its_batches(log: bytes, copy: bytes, is_violation: bool) -> None:
    broker = Broker(log, copy)
    event = broker.promote()

    assert (copies_are_complete(broker.tier, event) is not None) is is_violation
    broker.tier.on_destroyed(ORDERS, 0)
    assert copies_are_complete(broker.tier, event) is None


def test_a_copy_may_begin_later_only_where_records_may_be_deleted() -> None:
    broker = Broker(A + B, b"")
    directory = f"/data2/{FUTURE}"
    broker.disk.remove(f"{directory}/{0:020}.log")
    broker.disk.open(f"{directory}/{1:020}.log", create=True).pwrite([B], 0)
    event = broker.promote()
    assert copies_are_complete(broker.tier, event) is not None

    broker.tier.deleted_before[ORDERS] = 1

    assert copies_are_complete(broker.tier, event) is None


def test_the_simulation_reads_the_log_that_replaced_another_one() -> None:
    broker = Broker()
    logs = broker.tier.disks[BrokerId(1)]

    broker.promote()

    log = logs.of(ORDERS)
    assert log is not None
    assert log.directory == "/data2/orders-0"
    assert list(logs.partitions()) == [ORDERS]


def test_a_copy_or_a_second_log_that_is_left_at_rest_is_a_violation() -> None:
    broker = Broker()
    cluster: Any = SimpleNamespace(tier=broker.tier)
    assert FUTURE in (moves_finish(cluster) or "")

    broker.promote()
    assert moves_finish(cluster) == "broker 1 has orders-0 in /data1/orders-0 and in /data2/orders-0"

    broker.disk.remove_tree("/data1/orders-0")
    assert moves_finish(cluster) is None


def test_a_replica_in_another_directory_than_the_chosen_one_is_a_violation_unless_its_disk_had_faults() -> None:
    broker = Broker()
    cluster: Any = SimpleNamespace(tier=broker.tier)
    broker.tier.on_move(1, ORDERS, "/data1", is_accepted=True)
    assert replicas_are_where_they_were_moved(cluster) is None

    broker.tier.on_move(1, ORDERS, "/data2", is_accepted=True)
    assert replicas_are_where_they_were_moved(cluster) is not None

    broker.tier.failed_disks.add(1)
    assert replicas_are_where_they_were_moved(cluster) is None


@pytest.mark.parametrize("why", ["no answer", "power loss", "other replicas", "topic is deleted"])
def test_the_chosen_directory_of_a_replica_is_not_known_after(why: str) -> None:
    broker = Broker()
    broker.tier.on_move(1, ORDERS, "/data2", is_accepted=True)

    match why:
        case "no answer":
            broker.tier.on_move(1, ORDERS, "/data1", is_accepted=False)
            broker.tier.on_move(1, ORDERS, "/data2", is_accepted=True)
        case "power loss":
            broker.tier.on_power_lost(PowerLost(1, {}, {}, {}))
        case "other replicas":
            broker.tier.forget_moves(ORDERS)
        case _:
            broker.tier.forget_topics(["orders"])

    cluster: Any = SimpleNamespace(tier=broker.tier)
    assert replicas_are_where_they_were_moved(cluster) is None


# ---- DeleteRecords


def polled(log_start: int, leader: int = 1, asked_s: float = 20.0) -> Polled:
    return Polled("c", ORDERS, leader, 3, 0, (), 9, log_start, asked_s=asked_s)


def history() -> TierHistory:
    found = TierHistory(History(), {})
    found.topics["orders"] = FACTS
    return found


@pytest.mark.parametrize("event", [polled(5), Expired(1, ORDERS, 5)])
def test_a_log_that_starts_after_the_offset_of_a_deletion_is_a_violation_unless_the_topic_has_retention(
    event: Polled | Expired,
) -> None:
    found = history()
    assert nothing_else_is_deleted(found, event) is not None
    found.deleted_before[ORDERS] = 4
    assert nothing_else_is_deleted(found, event) is not None

    found.deleted_before[ORDERS] = 5
    assert nothing_else_is_deleted(found, event) is None

    del found.deleted_before[ORDERS]
    found.topics["orders"] = FACTS._replace(has_retention=True)
    assert nothing_else_is_deleted(found, event) is None


def test_a_leader_that_has_deleted_records_again_is_a_violation_unless_it_restarted() -> None:
    found = history()
    found.on_started(BrokerId(1))
    found.on_records_deleted(RecordsDeleted(ORDERS, 5, 10.0, {1: 1}))

    assert deleted_records_stay_deleted(found, polled(5)) is None
    assert deleted_records_stay_deleted(found, polled(4)) is not None
    assert deleted_records_stay_deleted(found, polled(4, asked_s=9.9)) is None
    assert deleted_records_stay_deleted(found, polled(4, leader=2)) is None
    found.on_started(BrokerId(1))
    assert deleted_records_stay_deleted(found, polled(4)) is None


def test_a_position_may_get_out_of_range_only_below_the_offset_of_a_deletion() -> None:
    found = history()
    assert positions_stay_valid(found, PositionLost("c", ORDERS, 3)) is not None

    found.deleted_before[ORDERS] = 4

    assert positions_stay_valid(found, PositionLost("c", ORDERS, 3)) is None
    assert positions_stay_valid(found, PositionLost("c", ORDERS, 4)) is not None


# ---- ListOffsets

LOOKUPS = {
    "the first record of that time": (10, 0, False),
    "the first record after that time": (11, 2, False),
    "a record that is not the first": (10, 1, True),
    "a record before that time": (11, 1, True),
    "none, though there is one": (11, -1, True),
    "none, as there is none": (13, -1, False),
    "a record after the last read one": (13, 3, False),
}


@pytest.mark.parametrize(("wanted_ms", "found", "is_violation"), LOOKUPS.values(), ids=LOOKUPS)
def test_an_offset_by_time_that_is_not_that_of_the_first_record_is_a_violation(
    wanted_ms: int, found: int, is_violation: bool
) -> None:
    read = FinalRead()
    read.records, read.timestamps, read.high_watermark = [(0, b"a"), (1, b"b"), (2, b"c")], [10, 9, 12], 3
    read.offsets_by_time = {wanted_ms: found}
    cluster: Any = SimpleNamespace(tier=history(), final_reads={ORDERS: read})

    assert (offsets_by_time_are_right(cluster) is not None) is is_violation
