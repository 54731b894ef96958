"""What the tier of whole nodes takes for a shutdown in order, for a right index file, and for synced."""

import struct

import pytest
from tests.unit.log.support import batch
from tests.unit.sim.test_cluster_tier_checks import FACTS, ORDERS, Resting

from klamm.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, offsets_text
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.invariants.directories import copies_are_on_the_device
from klamm.sim.cluster_tier.invariants.indexes import indexes_agree_with_batches
from klamm.sim.cluster_tier.invariants.logs import synced_records_are_on_devices
from klamm.sim.cluster_tier.invariants.shutdown import (
    NodeStopped,
    directories_are_marked_clean,
    high_watermarks_are_stored,
    log_starts_are_stored,
    nodes_stop_in_time,
    producers_are_stored,
    recovery_points_are_log_ends,
    stopped_logs_are_on_the_device,
)
from klamm.sim.cluster_tier.trace import Acknowledged, LogReplaced, Send
from klamm.sim.disk import SimulatedDisk

LOG = "/data1/orders-0/00000000000000000000"


class Stopped(Resting):
    """Broker 1 was stopped: a log of two records in one directory."""

    def __init__(self, took_s: float = 0.1, error: str = "") -> None:
        super().__init__()
        self.stops = {1: NodeStopped(took_s, error, ("/data1",))}
        self.final_reads[ORDERS].high_watermark = 2

    def store(self, name: str, offsets: dict[TopicPartition, int]) -> "Stopped":
        self.disk.write_atomically(f"/data1/{name}", offsets_text(offsets))
        return self

    def write_index(self, suffix: str, *entries: bytes) -> "Stopped":
        self.disk.open(LOG + suffix, create=True).pwrite([b"".join(entries)], 0)
        return self


@pytest.mark.parametrize(("took_s", "error", "is_wrong"), [(0.1, "", False), (60.0, "", True), (0.1, "raised", True)])
def test_a_node_that_does_not_stop_in_time_or_without_an_error_is_a_violation(
    took_s: float, error: str, is_wrong: bool
) -> None:
    assert (nodes_stop_in_time(Stopped(took_s, error)) is not None) is is_wrong


def test_a_log_directory_without_the_marker_of_a_clean_shutdown_is_a_violation() -> None:
    cluster = Stopped()
    assert directories_are_marked_clean(cluster) is not None

    cluster.disk.open("/data1/.kafka_cleanshutdown", create=True)

    assert directories_are_marked_clean(cluster) is None


def test_a_log_that_is_not_synced_after_the_stop_is_a_violation_unless_it_is_damaged() -> None:
    cluster = Stopped()
    assert stopped_logs_are_on_the_device(cluster) is not None

    cluster.disk.sync_filesystem("/")
    assert stopped_logs_are_on_the_device(cluster) is None

    cluster.log.pwrite([batch("c", base_offset=2, epoch=1)], cluster.log.size())
    assert stopped_logs_are_on_the_device(cluster) is not None
    cluster.tier.on_destroyed(ORDERS, 0)
    assert stopped_logs_are_on_the_device(cluster) is None


@pytest.mark.parametrize(("point", "is_wrong"), [(2, False), (1, True), (3, True)])
def test_a_recovery_point_before_or_after_the_end_of_a_stopped_log_is_a_violation(point: int, is_wrong: bool) -> None:
    cluster = Stopped().store(RECOVERY_POINTS, {ORDERS: point})

    assert (recovery_points_are_log_ends(cluster) is not None) is is_wrong


@pytest.mark.parametrize(("offset", "is_wrong"), [(2, False), (1, True), (3, True)])
def test_a_stored_high_watermark_that_is_not_what_consumers_were_told_is_a_violation(
    offset: int, is_wrong: bool
) -> None:
    cluster = Stopped().store(HIGH_WATERMARKS, {ORDERS: offset})

    assert (high_watermarks_are_stored(cluster) is not None) is is_wrong


@pytest.mark.parametrize(("stored", "is_wrong"), [({ORDERS: 1}, False), ({}, True)])
def test_a_log_start_that_is_not_stored_is_a_violation(stored: dict[TopicPartition, int], is_wrong: bool) -> None:
    cluster = Stopped().store(LOG_STARTS, stored)
    cluster.final_reads[ORDERS].log_start = 1

    assert (log_starts_are_stored(cluster) is not None) is is_wrong


def test_a_stopped_log_of_producers_without_a_snapshot_at_its_end_is_a_violation() -> None:
    cluster = Stopped()
    assert producers_are_stored(cluster) is None

    with_producer = batch("c", base_offset=2, epoch=1, producer=(7, 0, 0))
    cluster.log.pwrite([with_producer], cluster.log.size())

    assert "no snapshot" in str(producers_are_stored(cluster))


@pytest.mark.parametrize(
    ("entry", "is_wrong"), [((1, len(batch("a", epoch=0))), False), ((1, 0), True), ((0, len(batch("a"))), True)]
)
def test_an_offset_index_entry_that_is_not_that_of_a_batch_is_a_violation(
    entry: tuple[int, int], is_wrong: bool
) -> None:
    cluster = Stopped().write_index(".index", struct.pack(">ii", *entry))

    assert (indexes_agree_with_batches(cluster) is not None) is is_wrong


def test_a_time_index_entry_with_another_time_than_its_batch_is_a_violation() -> None:
    times = [b.header.max_timestamp for b in Stopped().tier.disks[1].of(ORDERS).batches()]  # type: ignore[union-attr]

    right = Stopped().write_index(".timeindex", struct.pack(">qi", times[0], 0))
    wrong = Stopped().write_index(".timeindex", struct.pack(">qi", times[0] + 1, 0))

    assert indexes_agree_with_batches(right) is None
    assert indexes_agree_with_batches(wrong) is not None


@pytest.mark.parametrize(("is_synced", "is_wrong"), [(True, False), (False, True)])
def test_an_acknowledged_record_of_a_synced_topic_has_to_be_on_the_device(is_synced: bool, is_wrong: bool) -> None:
    cluster = Resting()
    cluster.tier.topics["orders"] = FACTS._replace(is_synced=True)
    if is_synced:
        cluster.disk.sync_filesystem("/")
    send = Send("producer", ORDERS, (b"b",), -1, 0.0)
    send.offset = 1

    assert (synced_records_are_on_devices(cluster.tier, Acknowledged(send)) is not None) is is_wrong


@pytest.mark.parametrize(("after", "is_wrong"), [(2, False), (3, False), (1, True)])
def test_a_copy_that_is_synced_less_far_than_the_log_that_it_replaces_is_a_violation(
    after: int, is_wrong: bool
) -> None:
    event = LogReplaced(1, ORDERS, (), 0, (), synced_before=2, synced_after=after)

    assert (copies_are_on_the_device(Resting().tier, event) is not None) is is_wrong


def test_the_end_of_a_log_on_the_device_is_that_of_its_synced_batches() -> None:
    cluster = Resting()
    log = cluster.tier.disks[1].of(ORDERS)
    assert log is not None
    assert log.end_on_device(cluster.disk) == 0

    cluster.disk.sync_filesystem("/")
    assert log.end_on_device(cluster.disk) == 2
    cluster.log.pwrite([batch("c", base_offset=2, epoch=1)], cluster.log.size())
    log.refresh()

    assert (log.end, log.end_on_device(cluster.disk)) == (3, 2)
    assert log.is_on_device(cluster.disk, 1)
    assert not log.is_on_device(cluster.disk, 2)


def test_bytes_that_are_not_in_the_page_cache_stay_on_the_device_until_a_thread_has_read_them() -> None:
    disk = SimulatedDisk(Rng("cold"))
    file = disk.open("/file", create=True)
    file.pwrite([b"abc"], 0)
    is_cold = [True, False]
    disk.is_cold = lambda path: is_cold.pop(0)

    assert file.pread_cached(3, 0) is None
    assert file.pread_cached(3, 0) is None
    assert file.pread(3, 0) == b"abc"
    assert file.pread_cached(3, 0) == b"abc"
