"""Offsets that a producer commits as part of its transaction. The cases are those of GroupMetadataManagerTest (3.9)."""

import asyncio

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.handlers.offsets import CommitRequest, Errors, TransactionalCommitRequest
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.records import batches

PRODUCER = ProducerIdAndEpoch(7, 2)


async def commit(room: Room, offsets: dict[TopicPartition, int], **changes: object) -> Errors:
    request = CommitRequest(GROUP, {p: Offset(offset) for p, offset in offsets.items()})
    changed = request._replace(**changes)  # type: ignore[arg-type]
    return await room.groups.commit_transactional_offsets(TransactionalCommitRequest(PRODUCER, changed))


@pytest.mark.parametrize("commits", [True, False])
def test_transactional_offsets_are_visible_after_their_transaction_commits(commits: bool) -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 3})
        assert await commit(room, {P0: 5, P1: 6}) == {P0: ErrorCode.NONE, P1: ErrorCode.NONE}
        assert room.fetch([P0, P1]) == {P0: 3, P1: -1}
        assert room.fetch([P0], require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT}

        room.groups.on_transaction_completed(PRODUCER.producer_id, [0], commits)

        assert room.fetch([P0, P1], require_stable=True) == ({P0: 5, P1: 6} if commits else {P0: 3, P1: -1})

    play(body)


def test_the_batch_of_a_txn_offset_commit_is_transactional_and_has_the_producer_id() -> None:
    async def body(room: Room) -> None:
        await commit(room, {P0: 5})
        [header] = batches(room.log.partitions[0])
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
        assert header.is_transactional

    play(body)


def test_a_txn_offset_commit_of_a_generation_that_an_unknown_group_never_had_creates_no_group() -> None:
    async def body(room: Room) -> None:
        assert await commit(room, {P0: 5}, member_id="m", generation=1) == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert await room.groups.list_groups([], []) == (ErrorCode.NONE, [])

    play(body)


def test_a_later_consumer_commit_wins_over_an_earlier_transactional_offset() -> None:
    async def body(room: Room) -> None:
        await commit(room, {P0: 5})
        await room.commit({P0: 9})
        room.groups.on_transaction_completed(PRODUCER.producer_id, [0], True)
        assert room.fetch([P0]) == {P0: 9}

    play(body)


def test_an_unreplicated_txn_offset_commit_is_unstable_and_a_failed_commit_is_dropped() -> None:
    async def body(room: Room) -> None:
        room.log.held, room.log.errors = [], [ErrorCode.NOT_ENOUGH_REPLICAS]
        waiting = asyncio.ensure_future(commit(room, {P0: 5}))
        await settle()
        assert room.fetch([P0], require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        room.log.release()
        assert await waiting == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert room.fetch([P0], require_stable=True) == {P0: -1}
        room.groups.on_transaction_completed(PRODUCER.producer_id, [0], True)
        assert room.fetch([P0]) == {P0: -1}

    play(body)


def test_txn_offset_commit_checks_member_and_generation_if_the_request_names_them() -> None:
    async def body(room: Room) -> None:
        assert await commit(room, {P0: 1}, generation=3, member_id="m") == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        [member] = await room.stable()
        names = {"member_id": member.member_id}
        assert await commit(room, {P0: 1}) == {P0: ErrorCode.NONE}
        assert await commit(room, {P0: 1}, generation=member.generation, **names) == {P0: ErrorCode.NONE}
        assert await commit(room, {P0: 1}, generation=9, **names) == {P0: ErrorCode.ILLEGAL_GENERATION}
        assert await commit(room, {P0: 1}, generation=1, member_id="x") == {P0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert await commit(room, {P0: 1}, instance_id="x") == {P0: ErrorCode.UNKNOWN_MEMBER_ID}

    play(body)


def test_the_next_coordinator_loads_transactional_offsets_of_an_open_transaction() -> None:
    async def body(room: Room) -> None:
        await commit(room, {P0: 5})
        other = room.restart()
        other.groups._ownership.elected(0, 1)
        await settle()
        assert other.fetch([P0], require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        other.groups.on_transaction_completed(PRODUCER.producer_id, [0], True)
        assert other.fetch([P0]) == {P0: 5}
        await other.groups.close()

    play(body)


def test_a_txn_offset_commit_with_the_old_id_of_a_static_member_is_fenced() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(instance_id="i")
        await room.join_now(instance_id="i")
        errors = await commit(room, {P0: 5}, member_id=member.member_id, instance_id="i", generation=1)
        assert errors == {P0: ErrorCode.FENCED_INSTANCE_ID}

    play(body)


def test_a_txn_offset_commit_with_too_large_metadata_is_refused() -> None:
    async def body(room: Room) -> None:
        offsets = {P0: Offset(1, metadata="x" * 4096), P1: Offset(1, metadata="x" * 4097)}
        request = TransactionalCommitRequest(PRODUCER, CommitRequest(GROUP, offsets))
        errors = await room.groups.commit_transactional_offsets(request)
        assert errors == {P0: ErrorCode.NONE, P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        room.groups.on_transaction_completed(PRODUCER.producer_id, [0], True)
        assert room.fetch() == {P0: 1}

    play(body)


def test_a_txn_offset_commit_acknowledged_after_its_transaction_ended_leaves_nothing_pending() -> None:
    async def body(room: Room) -> None:
        room.log.held = []
        waiting = asyncio.ensure_future(commit(room, {P0: 5}))
        await settle()
        room.groups.on_transaction_completed(PRODUCER.producer_id, [0], False)
        room.log.release()
        assert await waiting == {P0: ErrorCode.NONE}
        assert room.fetch([P0], require_stable=True) == {P0: -1}

    play(body)


def test_the_end_of_a_txn_offset_commit_to_a_deleted_group_leaves_the_commits_of_its_successor() -> None:
    async def body(room: Room) -> None:
        room.log.held = []
        first = asyncio.ensure_future(commit(room, {P0: 5}))
        await settle()
        deletion = asyncio.ensure_future(room.groups.delete_groups([GROUP]))
        await settle()
        second = asyncio.ensure_future(commit(room, {P1: 6}))
        await settle()
        room.log.release()
        await asyncio.gather(first, second, deletion)

        room.groups.on_transaction_completed(PRODUCER.producer_id, [0], True)

        assert room.fetch([P1], require_stable=True) == {P1: 6}

    play(body)
