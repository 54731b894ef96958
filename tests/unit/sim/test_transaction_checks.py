"""What the tier of whole nodes takes for an aborted read, a torn transaction, a lost or a second copy."""

from typing import cast

import pytest

from klamm.client.read_committed import Aborted
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.clients.consumer import records_from
from klamm.sim.cluster_tier.history import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TierHistory, TopicFacts
from klamm.sim.cluster_tier.invariants.clients import sequences_continue
from klamm.sim.cluster_tier.invariants.rest import FinalRead, RestingCluster
from klamm.sim.cluster_tier.invariants.transactions import (
    fenced_producers_write_nothing,
    no_transaction_stays_open,
    only_committed_transactions_are_read,
    records_are_copied_once,
    transactions_are_whole,
)
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs
from klamm.sim.cluster_tier.trace import (
    Acknowledged,
    Polled,
    PowerLost,
    ProducerStarted,
    Send,
    SendState,
    SequenceRefused,
    Transaction,
    TransactionState,
)
from klamm.sim.disk import SimulatedDisk
from klamm.sim.history.history import History
from klamm.wire.records.build import ControlType, EndMarker, build_batch, build_end_marker
from klamm.wire.records.record import NewRecord

SOURCE, A, B = TopicPartition("t1", 0), TopicPartition("t2", 0), TopicPartition("t3", 0)
ABORTED, COMMITTING, COMMITTED = TransactionState
FACTS = TopicFacts(3, 2, is_synced=False, has_retention=False)


class Resting:
    """A cluster at rest with two records in `t1-0`, and copies in `t2-0` and `t3-0`."""

    def __init__(self) -> None:
        self.tier = TierHistory(History(), {})
        self.tier.topics = dict.fromkeys(("t1", "t2", "t3"), FACTS)
        self.final_reads = {p: FinalRead() for p in (SOURCE, A, B)}
        self.final_reads[SOURCE].committed = [(0, b"x"), (1, b"y")]
        self.copied_offsets = {("copier", SOURCE): 2}

    @property
    def cluster(self) -> RestingCluster:
        return cast(RestingCluster, self)

    def copy(self, state: TransactionState, *copies: tuple[TopicPartition, int]) -> Transaction:
        """A transaction with one acknowledged batch for each copy, of which nothing is read yet."""
        transaction = Transaction("copier", 1, SOURCE, 2)
        transaction.state = state
        for p, original in copies:
            send = Send("copier/1", p, (b"%d<%d" % (len(self.tier.sends), original),), -1, 0.0)
            send.state, send.transaction = SendState.ACKNOWLEDGED, transaction
            transaction.sends.append(send)
            self.tier.on_send(send)
        return transaction

    def read(self, transaction: Transaction, *partitions: TopicPartition) -> None:
        """Let consumers of committed data read these partitions' records of the transaction."""
        for send in transaction.sends:
            if send.partition in partitions:
                self.final_reads[send.partition].committed.extend((0, value) for value in send.values)


@pytest.mark.parametrize(
    ("state", "read", "is_whole"),
    [
        (COMMITTED, (A, B), True),
        (COMMITTED, (A,), False),
        (COMMITTED, (), False),
        (COMMITTING, (A, B), True),
        (COMMITTING, (), True),
        (COMMITTING, (B,), False),
        (ABORTED, (), True),
        (ABORTED, (A, B), False),
    ],
)
def test_a_transaction_of_which_only_a_part_is_readable_is_a_violation(
    state: TransactionState, read: tuple[TopicPartition, ...], is_whole: bool
) -> None:
    resting = Resting()
    resting.read(resting.copy(state, (A, 0), (B, 1)), *read)

    assert (transactions_are_whole(resting.cluster) is None) is is_whole


def test_lost_offsets_excuse_no_partly_readable_transaction() -> None:
    resting = Resting()
    resting.read(resting.copy(COMMITTED, (A, 0), (B, 1)), B)
    resting.tier.on_destroyed(OFFSETS_TOPIC, 0)

    assert transactions_are_whole(resting.cluster) is not None


@pytest.mark.parametrize("touched", [A, TRANSACTIONS_TOPIC])
def test_a_partly_readable_transaction_is_no_violation_if_a_disk_lost_records(touched: TopicPartition) -> None:
    resting = Resting()
    resting.read(resting.copy(COMMITTED, (A, 0), (B, 1)), B)
    resting.tier.on_destroyed(touched, 0)

    assert transactions_are_whole(resting.cluster) is None


def test_a_power_loss_of_transaction_states_excuses_no_partly_readable_transaction() -> None:
    resting = Resting()
    resting.read(resting.copy(COMMITTED, (A, 0), (B, 1)), B)
    resting.tier.on_power_lost(PowerLost(1, {TRANSACTIONS_TOPIC: 0}, {TRANSACTIONS_TOPIC: 0}, {}))

    assert transactions_are_whole(resting.cluster) is not None


@pytest.mark.parametrize(
    ("copies", "committed_offset", "broken"),
    [
        ([0, 1], 2, ""),
        ([0], 1, ""),
        ([0], 2, "offset 1 was not copied"),
        ([0, 1, 1], 2, "offset 1 was copied 2 times"),
        ([0, 1], 1, "offset 1 was copied 1 times"),
    ],
)
def test_a_record_before_the_committed_offset_without_exactly_one_copy_is_a_violation(
    copies: list[int], committed_offset: int, broken: str
) -> None:
    resting = Resting()
    resting.copied_offsets = {("copier", SOURCE): committed_offset}
    for original in copies:
        resting.read(resting.copy(COMMITTED, (A, original)), A)

    wrong = records_are_copied_once(resting.cluster)

    assert (broken in (wrong or "")) if broken else wrong is None


def test_a_last_stable_offset_below_the_high_watermark_at_the_end_is_a_violation() -> None:
    resting = Resting()
    resting.final_reads[A].high_watermark = 5
    resting.final_reads[A].last_stable_offset = 5
    assert no_transaction_stays_open(resting.cluster) is None

    resting.final_reads[A].last_stable_offset = 3

    assert no_transaction_stays_open(resting.cluster) == "t2-0: last stable offset 3, high watermark 5"


@pytest.mark.parametrize(
    ("state", "aborted", "is_allowed"),
    [
        (COMMITTED, frozenset(), True),
        (ABORTED, frozenset(), False),
        (ABORTED, frozenset({7}), True),
        (ABORTED, None, True),
    ],
)
def test_an_aborted_record_read_by_a_read_committed_consumer_is_a_violation(
    state: TransactionState, aborted: frozenset[int] | None, is_allowed: bool
) -> None:
    resting = Resting()
    [value] = resting.copy(state, (A, 0)).sends[0].values
    event = Polled("c", A, 1, 0, 7, ((7, value),), 8, 0, aborted=aborted)

    assert (only_committed_transactions_are_read(resting.tier, event) is None) is is_allowed


@pytest.mark.parametrize(("fenced_at_s", "is_allowed"), [(3.0, True), (2.0, True), (1.0, False)])
def test_a_record_written_by_a_fenced_producer_is_a_violation(fenced_at_s: float, is_allowed: bool) -> None:
    resting = Resting()
    send = resting.copy(ABORTED, (A, 0)).sends[0]
    send.attempted_s = 2.0
    resting.tier.on_producer_started(ProducerStarted("copier", 2, fenced_at_s))

    assert (fenced_producers_write_nothing(resting.tier, Acknowledged(send)) is None) is is_allowed


def test_the_transaction_check_distinguishes_markers_and_aborted_records_from_visible_records() -> None:
    def record(offset: int, producer_id: int) -> bytes:
        content = [NewRecord(b"%d" % offset, None, 0)]
        return build_batch(
            content,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    marker = bytearray(build_end_marker(EndMarker(ControlType.ABORT, 0), 5, 0, 0))
    marker[:8] = (2).to_bytes(8)
    content = record(0, 5) + record(1, 6) + bytes(marker) + record(3, 5)

    found = records_from(content, 0, [Aborted(0, 5)])

    assert (found.control, found.aborted) == (frozenset({2}), frozenset({0}))
    assert found.visible == [(1, b"1"), (3, b"3")]


# ---- sequences after a deletion

FIRST_OF_TWO = 4
"""The offset of the producer's last batch, which has two records."""


def refused_after_a_deletion(before: int, *, expired_before: int = 0, has_retention: bool = False) -> bool:
    """Whether it is a violation that a transaction's next batch is refused, after these records were deleted."""
    resting = Resting()
    transaction = resting.copy(COMMITTED, (A, 0), (A, 1))
    for send, offset in zip(transaction.sends, (0, FIRST_OF_TWO), strict=True):
        send.values, send.offset = (b"x", b"y"), offset
    disk = SimulatedDisk(Rng(1))
    disk.make_directories("/data1/t2-0")
    disk.open(f"/data1/t2-0/{expired_before:020}.log", create=True)
    resting.tier.disks = {1: DiskLogs(disk)}
    resting.tier.topics["t2"] = FACTS._replace(has_retention=has_retention)
    resting.tier.deleted_before[A] = before
    next_send = resting.copy(ABORTED, (A, 2)).sends[0]
    return sequences_continue(resting.tier, SequenceRefused(next_send, "OUT_OF_ORDER_SEQUENCE_NUMBER")) is not None


def test_a_transaction_may_be_refused_only_where_all_batches_of_its_producer_are_deleted() -> None:
    end = FIRST_OF_TWO + 2

    assert [refused_after_a_deletion(before) for before in (0, end - 1, end)] == [True, True, False]
    assert not refused_after_a_deletion(0, expired_before=end, has_retention=True)
    assert refused_after_a_deletion(0, expired_before=end - 1, has_retention=True)
    assert refused_after_a_deletion(0, expired_before=end)


def test_a_refused_sequence_is_a_violation_outside_transactions_and_where_the_producer_wrote_nothing_before() -> None:
    resting = Resting()
    resting.tier.deleted_before[A] = 9
    plain = Send("producer", A, (b"p",), -1, 0.0)
    first = resting.copy(ABORTED, (A, 0)).sends[0]
    first.producer = "copier/2"

    for send in (plain, first):
        assert sequences_continue(resting.tier, SequenceRefused(send, "OUT_OF_ORDER_SEQUENCE_NUMBER")) is not None
