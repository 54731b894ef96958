"""What the tier of whole nodes takes for a record that the log cleaner must not remove or move, or must remove."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.log.support import batch

from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.history import COMPACTED, TRANSACTIONS_TOPIC, TierHistory
from klamm.sim.cluster_tier.invariants.compaction import (
    compacted_transactions_are_over,
    deleted_keys_stay_deleted,
    newest_values_survive_compaction,
    table_of,
    tables_are_up_to_date,
    tombstones_are_removed,
    young_records_stay,
)
from klamm.sim.cluster_tier.invariants.rest import FinalRead
from klamm.sim.cluster_tier.keyed_records import is_tombstone, key_of, keyed_record, name_of
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs
from klamm.sim.cluster_tier.trace import Acknowledged, Send, SendState, TableRead, Transaction, TransactionState
from klamm.sim.disk import SimulatedDisk
from klamm.sim.history.history import History
from klamm.wire.records import header_at
from klamm.wire.records.build import build_batch
from klamm.wire.records.record import records

Records = list[tuple[int, bytes]]

# the values 1 and 6 have the same key, and 2 has another one
ACKNOWLEDGED = {b"keyed-1/1": 0, b"keyed-1/2": 1, b"keyed-1/6": 2}
READS = {
    "nothing was removed": ([(0, b"keyed-1/1"), (1, b"keyed-1/2"), (2, b"keyed-1/6")], False),
    "an older value was removed": ([(1, b"keyed-1/2"), (2, b"keyed-1/6")], False),
    "a newer value without an acknowledgement is there": ([(1, b"keyed-1/2"), (3, b"keyed-1/11")], False),
    "the newest value was removed": ([(0, b"keyed-1/1"), (1, b"keyed-1/2")], True),
    "a key was removed": ([(2, b"keyed-1/6")], True),
    "a record has another offset": ([(0, b"keyed-1/2"), (2, b"keyed-1/6")], True),
    "records are out of order": ([(2, b"keyed-1/6"), (1, b"keyed-1/2")], True),
}
VALUE, TOMBSTONE, OTHER = b"deleting-1/1", b"deleting-1/6", b"deleting-1/10"
RETENTION_S = 5.0


def resting(records: Records, error: str = "") -> Any:
    """A cluster at rest that acknowledged three records of the compacted topic, of which these were read."""
    history, read = TierHistory(History(), {}), FinalRead()
    history.acknowledged[COMPACTED] = dict(ACKNOWLEDGED)
    read.records, read.error = records, error
    return SimpleNamespace(tier=history, compacted_reads={COMPACTED: read})


@pytest.mark.parametrize(("records", "is_violation"), READS.values(), ids=READS)
def test_compaction_that_loses_the_newest_value_of_a_key_or_moves_a_record_is_a_violation(
    records: Records, is_violation: bool
) -> None:
    cluster = resting(records)

    assert (newest_values_survive_compaction(cluster) is not None) is is_violation
    cluster.tier.on_destroyed(COMPACTED, 0)
    assert newest_values_survive_compaction(cluster) is None


def test_a_compacted_topic_that_cannot_be_read_at_rest_is_a_violation() -> None:
    assert newest_values_survive_compaction(resting([], "no leader")) is not None


@pytest.mark.parametrize("is_destroyed", [True, False])
@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_compacted_topic_may_be_unreadable_at_rest_only_where_a_bit_flipped(
    is_damaged: bool, is_destroyed: bool
) -> None:
    cluster = resting([], "a Fetch is answered CORRUPT_MESSAGE" if is_damaged else "no leader")
    cluster.compacted_reads[COMPACTED].is_damaged = is_damaged
    if is_destroyed:
        cluster.tier.on_destroyed(COMPACTED, 35)

    assert (newest_values_survive_compaction(cluster) is None) is (is_damaged and is_destroyed)


def test_keyed_producers_have_five_keys_each_and_some_that_they_write_once() -> None:
    assert key_of(b"keyed-1/7..") == key_of(b"keyed-1/12") != key_of(b"keyed-2/7")
    assert key_of(b"keyed-1/10") != key_of(b"keyed-1/20")
    assert not any(is_tombstone(b"keyed-1/%d" % number) for number in range(1, 30))


def test_deleting_producers_write_a_value_and_a_tombstone_of_keys_that_they_do_not_use_again() -> None:
    assert key_of(VALUE) == key_of(TOMBSTONE) != key_of(b"deleting-1/11")
    assert not is_tombstone(VALUE)
    assert is_tombstone(TOMBSTONE)


@pytest.mark.parametrize("name", [VALUE, TOMBSTONE])
def test_a_keyed_record_is_recognized_by_its_name_also_without_a_value(name: bytes) -> None:
    content = build_batch([keyed_record(name, 7)])

    [record] = records(content, header_at(content))

    assert (name_of(record), record.key) == (name, key_of(name))
    assert (record.value is None) is is_tombstone(name)


# ---- tombstones


def history_of(*acknowledged: tuple[bytes, int], began_s: float = 10.0) -> TierHistory:
    """A history in which these records of the compacted topic were acknowledged, with replicas 1 and 2 in sync."""
    disks: dict[int, DiskLogs] = {n: DiskLogs(SimulatedDisk(Rng("disk"))) for n in (1, 2)}
    zookeeper = History()
    state = LeaderAndIsr(BrokerId(1), 3, (BrokerId(1), BrokerId(2)), 3, 1)
    zookeeper.states.versions[COMPACTED] = [state]
    history = TierHistory(zookeeper, disks)
    history.delete_retention_s = RETENTION_S
    history.on_isr(COMPACTED, state.isr, 0.0)
    for name, offset in acknowledged:
        acknowledge(history, name, offset, began_s)
    return history


def acknowledge(history: TierHistory, name: bytes, offset: int, began_s: float = 10.0) -> Send:
    """A batch of one record is sent, and acknowledged at once."""
    send = Send("deleting-1", COMPACTED, (name,), -1, began_s)
    history.on_send(send)
    send.state, send.offset, send.acknowledged_s = SendState.ACKNOWLEDGED, offset, began_s
    history.on_acknowledged(Acknowledged(send))
    return send


def read_of(*found: tuple[int, bytes], end: int = 9, ended_s: float = 11.0) -> TableRead:
    return TableRead("reader", COMPACTED, 0, found, end, table_of(found), ended_s - 0.1, ended_s)


TABLES = {
    "the tombstone is there": (read_of((0, VALUE), (1, TOMBSTONE)), False),
    "only the tombstone is left": (read_of((1, TOMBSTONE)), False),
    "the tombstone is missing": (read_of((0, VALUE)), True),
    "the tombstone is gone at once": (read_of(), True),
    "the tombstone is gone after its time": (read_of(ended_s=15.1), False),
    "the read ended before the tombstone": (read_of((0, VALUE), end=1), False),
    "a record is not where it was acknowledged": (read_of((0, VALUE), (2, TOMBSTONE)), True),
    "a record was never sent": (read_of((0, VALUE), (1, TOMBSTONE), (2, b"deleting-1/11")), True),
    "records are out of order": (read_of((1, TOMBSTONE), (0, VALUE)), True),
}


@pytest.mark.parametrize(("read", "is_violation"), TABLES.values(), ids=TABLES)
def test_a_reader_that_lacks_the_newest_record_of_a_key_is_a_violation(read: TableRead, is_violation: bool) -> None:
    history = history_of((VALUE, 0), (TOMBSTONE, 1))

    assert (tables_are_up_to_date(history, read) is not None) is is_violation


def test_a_reader_may_lack_a_value_only_if_a_newer_record_of_its_key_was_sent() -> None:
    history = history_of((b"deleting-1/2", 0))
    assert tables_are_up_to_date(history, read_of(ended_s=99.0)) is not None

    history.on_send(Send("deleting-1", COMPACTED, (b"deleting-1/12",), -1, 20.0))

    assert tables_are_up_to_date(history, read_of(ended_s=99.0)) is None


def test_a_tombstone_may_be_gone_early_where_a_clock_was_wrong() -> None:
    history = history_of((VALUE, 0), (TOMBSTONE, 1))

    history.clocks = {"node-1": SimpleNamespace(was_shifted=True)}  # type: ignore[dict-item]

    assert tables_are_up_to_date(history, read_of()) is None


def test_a_record_that_is_younger_than_the_compaction_lag_and_gone_is_a_violation() -> None:
    history = history_of((b"deleting-1/2", 0), (b"deleting-1/12", 1))
    read = read_of((1, b"deleting-1/12"))
    assert young_records_stay(history, read) is None

    history.compaction_lag_s = 8.0

    assert young_records_stay(history, read) is not None
    assert young_records_stay(history, read._replace(ended_s=18.1)) is None
    assert young_records_stay(history, read._replace(position=1)) is None


def cluster_with(history: TierHistory, logs: dict[int, Records], at_s: float = 60.0) -> Any:
    """A cluster at rest whose replicas have these records, one batch each, in one segment and an empty one."""
    for broker, content in logs.items():
        disk = history.disks[BrokerId(broker)].disk
        disk.make_directories(f"/data1/{COMPACTED}")
        batches = [build_batch([keyed_record(name, 7)], base_offset=offset) for offset, name in content]
        for base, part in ((0, b"".join(batches)), (9, batch("", base_offset=9)[:0])):
            file = disk.open(f"/data1/{COMPACTED}/{base:020d}.log", create=True)
            file.pwrite([part], 0)
    read = FinalRead()
    read.at_s = at_s
    return SimpleNamespace(tier=history, compacted_reads={COMPACTED: read})


DELETED: Records = [(2, OTHER)]
RETURNED: Records = [(0, VALUE), (2, OTHER)]
KEPT: Records = [(0, VALUE), (1, TOMBSTONE), (2, OTHER)]


def test_a_value_that_returned_on_an_in_sync_replica_after_its_tombstone_was_removed_is_a_violation() -> None:
    deleted = history_of((VALUE, 0), (TOMBSTONE, 1), (OTHER, 2))
    returned = history_of((VALUE, 0), (TOMBSTONE, 1), (OTHER, 2))

    assert deleted_keys_stay_deleted(cluster_with(deleted, {1: DELETED, 2: DELETED})) is None
    assert deleted_keys_stay_deleted(cluster_with(returned, {1: DELETED, 2: RETURNED})) is not None


def test_a_tombstone_that_a_replica_lost_too_early_is_a_violation() -> None:
    history = history_of((VALUE, 0), (TOMBSTONE, 1), (OTHER, 2))

    cluster = cluster_with(history, {1: KEPT, 2: DELETED}, at_s=12.0)

    assert "replica 2 has lost the tombstone" in (deleted_keys_stay_deleted(cluster) or "")


@pytest.mark.parametrize(("joins_s", "is_violation"), [(14.9, True), (15.1, False)])
def test_a_replica_that_joins_the_isr_after_the_tombstone_was_removed_may_keep_the_value(
    joins_s: float, is_violation: bool
) -> None:
    history = history_of()
    history.on_isr(COMPACTED, (BrokerId(1),), 9.0)
    for name, offset in ((VALUE, 0), (TOMBSTONE, 1), (OTHER, 2)):
        acknowledge(history, name, offset)
    history.on_isr(COMPACTED, (BrokerId(1), BrokerId(2)), joins_s)

    cluster = cluster_with(history, {1: DELETED, 2: RETURNED})

    assert (deleted_keys_stay_deleted(cluster) is not None) is is_violation


def test_a_tombstone_that_is_never_removed_is_a_violation_unless_the_disk_or_a_clock_had_faults() -> None:
    history = history_of((VALUE, 0), (TOMBSTONE, 1), (OTHER, 2))
    cluster = cluster_with(history, {1: DELETED, 2: KEPT})
    assert tombstones_are_removed(cluster) is not None

    cluster.compacted_reads[COMPACTED].at_s = 39.0
    assert tombstones_are_removed(cluster) is None
    cluster.compacted_reads[COMPACTED].at_s = 60.0
    history.failed_disks.add(2)
    assert tombstones_are_removed(cluster) is None


def test_a_value_may_be_gone_where_an_unacknowledged_tombstone_may_have_deleted_it() -> None:
    history = history_of((VALUE, 0), (OTHER, 2))
    read = FinalRead()
    read.records = list(DELETED)
    cluster: Any = SimpleNamespace(tier=history, compacted_reads={COMPACTED: read})
    assert newest_values_survive_compaction(cluster) is not None

    history.on_send(Send("deleting-1", COMPACTED, (TOMBSTONE,), -1, 20.0))

    assert newest_values_survive_compaction(cluster) is None


@pytest.mark.parametrize("state", TransactionState)
def test_a_copy_in_a_compacted_topic_is_there_if_its_transaction_was_committed_and_only_then(
    state: TransactionState,
) -> None:
    copy = b"copier-1/3/1<7"
    transaction = Transaction("copier-1", 0, COMPACTED, 8)
    transaction.state = state
    send = Send("copier-1/3", COMPACTED, (copy,), -1, 0.0)
    send.state, send.transaction, send.offset = SendState.ACKNOWLEDGED, transaction, 5
    outcomes = []
    for copies in ([(5, copy)], []):
        cluster = resting([*READS["nothing was removed"][0], *copies])
        cluster.tier.on_send(send)
        cluster.tier.on_acknowledged(Acknowledged(send))
        cluster.compacted_reads[COMPACTED].committed = copies
        read = TableRead("t", COMPACTED, 0, tuple(copies), 6, table_of(copies), 0.0, 1.0)
        is_wrong_table = tables_are_up_to_date(cluster.tier, read) is not None
        is_wrong = (newest_values_survive_compaction(cluster) or compacted_transactions_are_over(cluster)) is not None
        assert is_wrong_table == is_wrong
        outcomes.append(is_wrong)
        cluster.tier.on_destroyed(TRANSACTIONS_TOPIC, 0)
        assert compacted_transactions_are_over(cluster) is None

    assert outcomes == [state is TransactionState.ABORTED, state is TransactionState.COMMITTED]


def test_an_open_transaction_in_a_compacted_topic_at_rest_is_a_violation() -> None:
    cluster = resting(READS["nothing was removed"][0])
    cluster.compacted_reads[COMPACTED].high_watermark = 4
    cluster.compacted_reads[COMPACTED].last_stable_offset = 3

    assert compacted_transactions_are_over(cluster) == "compacted-0: last stable offset 3, high watermark 4"
