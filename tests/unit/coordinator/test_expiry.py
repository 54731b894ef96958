"""Offsets that expire, and those of deleted topics. Cases of GroupMetadataManagerTest (3.9), KIP-211."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.failing import fail_once
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play
from tests.unit.coordinator.test_loading import offset_records, take_over, write_transactional
from tests.unit.coordinator.test_offsets import SUBSCRIBED

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.handlers import removal
from klamm.coordinator.handlers.offsets import CommitRequest, TransactionalCommitRequest
from klamm.coordinator.requests import LeavingMember, ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

OTHER = TopicPartition("other", 0)
SHORT: dict[str, Any] = {"offsets_retention_ms": 60_000, "offsets_retention_check_interval_ms": 10_000}


def test_offsets_of_a_group_that_never_had_members_expire_by_their_commit_time() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        await asyncio.sleep(30)
        await room.commit({P1: 7})
        await asyncio.sleep(45)  # 75
        assert room.fetch() == {P1: 7}
        await asyncio.sleep(30)
        assert room.groups.describe_group("flights").state == "Dead"
        assert list(room.log.stored())[2:] == ["orders-0: removed", "orders-1: removed"]
        assert room.groups.counts.offset_expirations == 2

    play(body, **SHORT)


def test_offsets_of_a_group_with_members_do_not_expire() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(protocols=SUBSCRIBED)
        await room.commit({P0: 5, OTHER: 7}, member_id=member.member_id, generation=1)
        for _ in range(25):
            await asyncio.sleep(5)
            room.heartbeat(member)
        assert room.fetch() == {P0: 5}  # but those of topics that no member reads do

    play(body, **SHORT)


def test_an_offset_does_not_expire_while_a_transaction_has_another_one_that_compaction_would_remove() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5, P1: 5})
        later = CommitRequest(GROUP, {P0: Offset(8)})
        await room.groups.commit_transactional_offsets(TransactionalCommitRequest(ProducerIdAndEpoch(7, 2), later))
        await asyncio.sleep(75)

        room.groups.on_transaction_completed(7, [0], True)

        assert room.fetch() == {P0: 8}
        assert list(room.log.stored())[3:] == ["orders-1: removed"]

    play(body, **SHORT)


def test_offsets_expire_also_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        fail_once(monkeypatch, removal, "expired_offsets")
        with capture_logs() as lines:
            await asyncio.sleep(100)
        assert room.fetch([P0]) == {P0: -1}
        assert [line for line in lines if line["event"].startswith("unexpected error")]

    play(body, **SHORT)


def test_offsets_of_an_empty_group_expire_after_the_time_since_the_group_became_empty() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(protocols=SUBSCRIBED)
        await room.commit({P0: 5}, member_id=member.member_id, generation=1)
        for _ in range(20):
            await asyncio.sleep(5)
            room.heartbeat(member)
        await asyncio.sleep(10 + 55)
        assert room.fetch() == {P0: 5}
        await asyncio.sleep(20)
        assert room.groups.describe_group("flights").state == "Dead"
        assert list(room.log.stored())[-2:] == ["orders-0: removed", "group removed"]

    play(body, **SHORT)


def test_an_offset_committed_after_its_group_became_empty_is_kept_for_the_retention_time() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(protocols=SUBSCRIBED)
        await room.commit({P1: 7}, member_id=member.member_id, generation=1)
        room.groups.leave_group(GROUP, [LeavingMember(member.member_id)])
        await asyncio.sleep(50)
        await room.commit({P0: 5})  # as `klamm groups reset-offsets` does
        await asyncio.sleep(50)
        assert room.fetch([P0]) == {P0: 5}
        await asyncio.sleep(20)
        assert room.fetch([P0]) == {P0: -1}

    play(body, **SHORT)


def test_an_offset_expires_after_the_retention_time_given_in_its_commit() -> None:
    async def body(room: Room) -> None:
        expires = Offset(5, commit_timestamp=room.now_ms(), expire_timestamp=room.now_ms() + 20_000)
        await room.groups.commit_offsets(CommitRequest("flights", {P0: expires}))
        await room.commit({P1: 7})
        await asyncio.sleep(35)
        assert room.fetch() == {P1: 7}

    play(body, **SHORT)


def test_an_offset_does_not_expire_while_another_commit_is_being_replicated() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        await asyncio.sleep(55)
        room.log.held = []
        waiting = asyncio.ensure_future(room.commit({P0: 6}))
        await asyncio.sleep(20)
        assert room.fetch() == {P0: 5}
        room.log.release()
        await waiting
        assert room.fetch() == {P0: 6}

    play(body, **SHORT)


def test_committed_offsets_of_deleted_partitions_are_removed() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5, OTHER: 7})
        await room.commit({P0: 9}, group_id="second")
        room.groups.on_partitions_deleted([P0])
        await settle()
        assert room.fetch() == {OTHER: 7}
        assert room.groups.describe_group("second").state == "Dead"

    play(body)


def test_an_unfinished_offset_commit_is_dropped_when_its_partition_is_deleted() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5, OTHER: 7})
        room.log.held = []
        waiting = asyncio.ensure_future(room.commit({P0: 6}))
        await settle()
        room.groups.on_partitions_deleted([P0])
        await settle()
        room.log.release()
        await waiting
        assert room.fetch() == {OTHER: 7}

    play(body)


def test_a_groups_first_unfinished_offset_commit_is_dropped_when_its_partition_is_deleted() -> None:
    async def body(room: Room) -> None:
        await room.commit({OTHER: 7})
        room.log.held = []
        waiting = asyncio.ensure_future(room.commit({P0: 6}))
        await settle()
        room.groups.on_partitions_deleted([P0])
        room.log.release()
        await waiting
        assert room.fetch() == {OTHER: 7}

    play(body)


def test_the_next_coordinator_does_not_have_an_unfinished_offset_commit_of_a_deleted_partition() -> None:
    async def body(room: Room) -> None:
        await room.commit({OTHER: 7})
        held: list[asyncio.Future[None]] = []
        room.log.held = held
        waiting = asyncio.ensure_future(room.commit({P0: 6}))
        await settle()
        room.log.held = None
        room.groups.on_partitions_deleted([P0])
        held[0].set_result(None)
        await waiting
        assert list(room.log.stored())[-2:] == ["orders-0: 6", "orders-0: removed"]
        other = await take_over(room)
        assert other.fetch() == {OTHER: 7}

    play(body)


def test_offsets_of_a_partition_that_is_deleted_while_its_group_is_loaded_are_removed() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5, OTHER: 7})
        await room.commit({P0: 9}, group_id="second")
        await write_transactional(room, offset_records(6))
        other = room.restart()
        other.groups._ownership.elected(0, 1)
        other.groups.on_partitions_deleted([P0])
        await settle()
        assert other.fetch([P0, OTHER], require_stable=True) == {P0: -1, OTHER: 7}
        assert other.groups.describe_group("second").state == "Dead"
        assert list(room.log.stored()).count("orders-0: removed") == 2

        await room.commit({P0: 1})
        again = await take_over(room, 2)
        assert again.fetch([P0]) == {P0: 1}

    play(body)


def test_a_partition_that_was_deleted_during_an_earlier_load_keeps_its_offsets() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        other = room.restart()
        ownership = other.groups._ownership
        ownership.elected(0, 1)
        other.groups.on_partitions_deleted([P0])
        ownership.resigned(0, 2)
        ownership.elected(0, 3)
        await settle()
        assert other.fetch() == {P0: 5}

    play(body)


def test_an_unfinished_txn_offset_commit_is_dropped_when_its_partition_is_deleted() -> None:
    async def body(room: Room) -> None:
        room.log.held = []
        offsets = {P0: Offset(6), OTHER: Offset(7)}
        producer = ProducerIdAndEpoch(1, 0)
        request = TransactionalCommitRequest(producer, CommitRequest(GROUP, offsets))
        waiting = asyncio.ensure_future(room.groups.commit_transactional_offsets(request))
        await settle()
        room.groups.on_partitions_deleted([P0])
        room.log.release()
        assert await waiting == {P0: ErrorCode.NONE, OTHER: ErrorCode.NONE}
        room.groups.on_transaction_completed(producer.producer_id, [0], True)
        assert room.fetch([P0, OTHER], require_stable=True) == {P0: -1, OTHER: 7}

    play(body)


def test_an_offset_does_not_expire_while_a_loaded_transaction_has_another_one() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        await write_transactional(room, offset_records(6))
        other = await take_over(room)
        await asyncio.sleep(75)
        assert other.fetch() == {P0: 5}
        other.groups.on_transaction_completed(7, [0], True)
        assert other.fetch() == {P0: 6}

    play(body, **SHORT)
