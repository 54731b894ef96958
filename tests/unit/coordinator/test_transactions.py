"""Partitions of a transaction, its end, its markers. The cases are those of TransactionCoordinatorTest and
TransactionMarkerRequestCompletionHandlerTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.transactions_room import ID, P0, P1, P2, Room, play

from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.ports import NoLeader
from klamm.coordinator.transactions.states import COMPLETE_COMMIT, PREPARE_COMMIT
from klamm.coordinator.transactions.transaction import Transaction
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

COMPLETE = {True: "Commit", False: "Abort"}


# ---- partitions


def test_add_partitions_to_txn_writes_only_partitions_not_yet_in_the_transaction() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        assert await room.add(producer, P1) == ErrorCode.NONE
        assert await room.add(producer, P0, P1) == ErrorCode.NONE
        assert room.stored()[1:] == [f"Ongoing 1000/0 {P0}", f"Ongoing 1000/0 {P0} {P1}"]

    play(body)


def test_add_partitions_to_txn_of_an_unknown_producer_is_refused() -> None:
    async def body(room: Room) -> None:
        asked = ProducerIdAndEpoch(1_000, 0)
        assert await room.add(asked, P0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        producer = await room.producer()
        assert await room.add(producer._replace(producer_id=5), P0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await room.add(producer._replace(epoch=1), P0) == ErrorCode.PRODUCER_FENCED
        assert await room.coordinator.add_partitions("", producer, frozenset()) == ErrorCode.INVALID_REQUEST

    play(body)


def test_verify_only_confirms_only_partitions_of_the_open_transaction() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        assert room.verify(producer, [P0, P1]) == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
        assert room.verify(producer._replace(epoch=9), [P0]) == {P0: ErrorCode.PRODUCER_FENCED}
        assert room.verify(producer._replace(producer_id=9), [P0]) == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        room.leaders.held = asyncio.Event()
        await room.end(producer)
        assert room.verify(producer, [P0]) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}

    play(body)


# ---- the end


@pytest.mark.parametrize("commit", [True, False])
def test_ending_a_transaction_writes_a_marker_into_every_partition(commit: bool) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)

        assert await room.end(producer, commit=commit) == ErrorCode.NONE
        await settle()

        [marker] = room.leaders.markers
        assert (marker.producer_id, marker.epoch, marker.is_commit, marker.coordinator_epoch) == (1_000, 0, commit, 0)
        assert marker.partitions == {P0, P1}
        kind = COMPLETE[commit]
        assert room.stored()[2:] == [f"Prepare{kind} 1000/0 {P0} {P1}", f"Complete{kind} 1000/0"]

    play(body)


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_txn_gets_the_same_answer_and_the_opposite_decision_is_refused(commit: bool) -> None:
    async def body(room: Room) -> None:
        room.leaders.held = asyncio.Event()
        producer = await room.ongoing(P0)
        await room.end(producer, commit=commit)
        await settle()
        room.transaction.pending, pending = None, room.transaction.pending
        assert await room.end(producer, commit=commit) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await room.end(producer, commit=not commit) == ErrorCode.INVALID_TXN_STATE
        room.transaction.pending = pending
        room.leaders.held.set()
        await settle()
        assert await room.end(producer, commit=commit) == ErrorCode.NONE
        assert await room.end(producer, commit=not commit) == ErrorCode.INVALID_TXN_STATE

    play(body)


def test_a_repeated_request_is_not_answered_from_memory_where_another_broker_may_be_coordinator() -> None:
    """The answer to EndTxn would be that of an earlier transaction: the later one would stay open, or be aborted."""

    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        room.log.is_confirmed = False
        assert await room.add(producer, P0) is ErrorCode.NOT_COORDINATOR
        assert await room.end(producer) is ErrorCode.NONE  # it was stored
        await settle()
        assert await room.end(producer) is ErrorCode.NOT_COORDINATOR
        room.log.is_confirmed = True
        assert await room.end(producer) is ErrorCode.NONE

    play(body)


def test_an_end_txn_without_a_transaction_or_of_another_producer_is_refused() -> None:
    async def body(room: Room) -> None:
        assert await room.end(ProducerIdAndEpoch(1_000, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        producer = await room.producer()
        assert await room.end(producer) == ErrorCode.INVALID_TXN_STATE
        assert await room.end(producer._replace(epoch=1)) == ErrorCode.PRODUCER_FENCED
        assert await room.end(producer._replace(producer_id=1)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await room.coordinator.end_transaction("", producer, is_commit=True) == ErrorCode.INVALID_REQUEST

    play(body)


def test_an_end_txn_that_cannot_be_stored_leaves_the_transaction_open() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        room.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert await room.end(producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert room.leaders.markers == []
        assert await room.end(producer) == ErrorCode.NONE

    play(body)


# ---- markers


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_refused_transaction_marker_is_sent_again_to_the_partitions_new_leader(error: ErrorCode) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.leaders.errors[P1] = [error]
        await room.end(producer)
        await settle()
        assert room.transaction.partitions == {P1}
        room.leaders.leaders[P1] = Address("two", 9092)
        await asyncio.sleep(1)

        assert [sorted(m.partitions) for m in room.leaders.markers] == [[P0, P1], [P1]]
        assert room.transaction.state is COMPLETE_COMMIT

    play(body)


def test_a_transaction_marker_without_a_response_is_sent_again() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.leaders.lost = 2
        await room.end(producer)
        await asyncio.sleep(1)
        assert [sorted(m.partitions) for m in room.leaders.markers] == [[P0, P1]] * 3
        assert room.transaction.state is COMPLETE_COMMIT

    play(body)


def test_transaction_markers_wait_for_a_leader_and_are_skipped_for_deleted_partitions() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1, P2)
        room.leaders.leaders |= {P1: NoLeader.UNAVAILABLE, P2: NoLeader.UNKNOWN}
        room.leaders.gone = frozenset((P2,))
        await room.end(producer)
        await asyncio.sleep(5)
        assert (room.transaction.state, room.transaction.partitions) == (PREPARE_COMMIT, frozenset((P1,)))
        assert room.coordinator.counts.unavailable_leaders == 1
        del room.leaders.leaders[P1]
        await asyncio.sleep(1)
        assert room.transaction.state is COMPLETE_COMMIT
        assert [sorted(m.partitions) for m in room.leaders.markers] == [[P0], [P1]]

    play(body)


@pytest.mark.parametrize("gone", [frozenset(), None], ids=["not deleted", "nobody can find out"])
def test_partitions_that_the_metadata_lacks_get_their_transaction_markers_later(
    gone: frozenset[TopicPartition] | None,
) -> None:
    """A broker that has just registered knows no partition: its transactions would be torn."""

    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.leaders.leaders[P1] = NoLeader.UNKNOWN
        room.leaders.gone = gone
        await room.end(producer)
        await asyncio.sleep(5)
        assert (room.transaction.state, room.transaction.partitions) == (PREPARE_COMMIT, frozenset((P1,)))
        del room.leaders.leaders[P1]
        await asyncio.sleep(1)
        assert room.transaction.state is COMPLETE_COMMIT
        assert [sorted(m.partitions) for m in room.leaders.markers] == [[P0], [P1]]

    play(body)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_transaction_coordinator_writes_no_more_markers_and_no_final_state(error: ErrorCode) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.leaders.errors[P1] = [error]
        await room.end(producer)
        await asyncio.sleep(5)
        assert len(room.leaders.markers) == 1
        assert room.transaction.state is PREPARE_COMMIT

    play(body)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_transaction_coordinator_that_is_elected_again_writes_its_markers_again(error: ErrorCode) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.leaders.errors[P1] = [error]
        await room.end(producer)
        await asyncio.sleep(5)
        await room.elect(0)
        assert len(room.leaders.markers) == 1

        await room.elect(2)  # after another coordinator in epoch 1, of which this broker was not told

        assert [(m.coordinator_epoch, m.partitions) for m in room.leaders.markers[1:]] == [(2, frozenset((P1,)))]
        assert room.transaction.state is COMPLETE_COMMIT
        assert await room.add(producer, P0) == ErrorCode.NONE

    play(body)


def test_a_fenced_marker_that_was_sent_before_the_coordinators_newest_election_is_sent_again() -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        room.leaders.errors[P0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        room.leaders.held = asyncio.Event()
        await room.end(producer)
        await settle()
        await room.elect(2)
        room.leaders.held.set()
        await asyncio.sleep(1)
        assert [m.coordinator_epoch for m in room.leaders.markers] == [0, 2]
        assert room.transaction.state is COMPLETE_COMMIT

    play(body)


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_partition_that_permanently_refuses_markers_does_not_block_the_transactions_end(error: ErrorCode) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0, P1)
        room.leaders.errors[P1] = [error]
        await room.end(producer)
        await settle()
        assert room.transaction.state is COMPLETE_COMMIT

    play(body)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # also where the log moves to another log directory
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_writing_the_final_transaction_state_is_retried_while_the_log_is_unavailable(error: ErrorCode) -> None:
    async def body(room: Room) -> None:
        producer = await room.ongoing(P0)
        room.leaders.held = asyncio.Event()
        await room.end(producer)
        room.log.errors = [ErrorCode.NOT_ENOUGH_REPLICAS, error]
        room.leaders.held.set()
        await settle()
        assert room.coordinator.counts.completion_retries == 1
        assert await room.end(producer) == ErrorCode.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(1)
        assert room.transaction.state is COMPLETE_COMMIT
        assert room.coordinator.counts.completion_retries == 0

    play(body)


# ---- tools


def test_transactions_are_described_and_listed_by_state_producer_id_and_duration() -> None:
    async def body(room: Room) -> None:
        await room.ongoing(P0)
        await asyncio.sleep(5)

        described = room.coordinator.describe_transaction(ID)
        assert (described.error, described.state, described.partitions) == (ErrorCode.NONE, "Ongoing", frozenset((P0,)))
        assert room.coordinator.describe_transaction("other").error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert room.coordinator.describe_transaction("").error == ErrorCode.INVALID_REQUEST

        async def listed(producers: tuple[int, ...] = (), states: tuple[str, ...] = (), duration_ms: int = -1) -> int:
            found = await room.coordinator.list_transactions(producers, states, duration_ms)
            return len(found.transactions)

        assert [await listed(), await listed((1_000,)), await listed((5,))] == [1, 1, 0]
        assert [await listed(states=(state,)) for state in ("Ongoing", "Empty", "Nonsense")] == [1, 0, 0]
        assert [await listed(duration_ms=4_000), await listed(duration_ms=5_000)] == [1, 0]
        found = await room.coordinator.list_transactions((), ("Ongoing", "Nonsense"), -1)
        assert (found.unknown_states, len(found.transactions)) == (["Nonsense"], 1)

    play(body)


def test_many_transactions_are_listed_in_time_slices() -> None:
    async def body(room: Room) -> None:
        [owned] = room.coordinator._context.transactions
        owned.transactions |= {f"t{n}": Transaction(f"t{n}", n, 1_000, 0) for n in range(1_000)}

        listing = asyncio.create_task(room.coordinator.list_transactions((), (), -1))
        await asyncio.sleep(0)

        assert not listing.done()
        assert len((await listing).transactions) == 1_000

    play(body)


def test_a_closed_transaction_coordinator_answers_describe_and_list_with_not_available() -> None:
    async def body(room: Room) -> None:
        await room.coordinator.close()
        assert room.coordinator.describe_transaction(ID).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await room.coordinator.list_transactions((), (), -1)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(body)
