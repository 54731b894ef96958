"""Taking groups over and giving them up. Cases of GroupMetadataManagerTest (3.9)."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play
from tests.unit.coordinator.test_offsets import SUBSCRIBED

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.records import group_key, offset_key, offset_value
from klamm.coordinator.states import EMPTY, PREPARING_REBALANCE, STABLE
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.time_slices import COUNTED_ITEMS, CountedSlices
from klamm.wire.records import ControlType, EndMarker, NewRecord, build_batch, build_end_marker, header_at
from klamm.wire.records.batch import sealed_batch


async def take_over(room: Room, epoch: int = 1) -> Room:
    """Another coordinator that has loaded the log."""
    other = room.restart()
    other.groups._ownership.elected(0, epoch)
    await asyncio.sleep(1)
    return other


async def write(room: Room, batch: bytes) -> None:
    await room.log.append(0, batch, -1, 0)


def offset_records(*offsets: int | None, group: str = GROUP) -> list[NewRecord]:
    """A record for each partition from 0 on; None is a tombstone."""
    partitions = (P0, P1)
    return [
        NewRecord(None if o is None else offset_value(Offset(o, commit_timestamp=1), 3), offset_key(group, p))
        for p, o in zip(partitions, offsets, strict=False)
    ]


async def write_transactional(room: Room, records: Sequence[NewRecord], producer: int = 7) -> None:
    await write(room, build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True))


async def write_marker(room: Room, kind: ControlType, producer: int = 7) -> None:
    await write(room, build_end_marker(EndMarker(kind, 0), producer, 0, 1))


def test_a_loaded_group_and_its_offsets_equal_those_that_were_stored() -> None:
    async def body(room: Room) -> None:
        leader, follower = await room.stable(2)
        await room.commit({P0: 5}, member_id=leader.member_id, generation=1)
        other = await take_over(room)
        assert other.fetch() == {P0: 5}
        assert other.heartbeat(follower) is ErrorCode.NONE
        assert (await other.sync(follower)).assignment == b"1"
        loaded, before = other.group(), room.group()
        assert (loaded.state, loaded.generation, loaded.leader_id) == (STABLE, 1, leader.member_id)
        assert loaded.state_since_ms == before.state_since_ms or loaded.state_since_ms is not None

    play(body)


def test_members_of_a_loaded_group_get_a_full_session_timeout_for_their_first_heartbeat() -> None:
    async def body(room: Room) -> None:
        silent, alive = await room.stable(2)
        other = await take_over(room)
        await asyncio.sleep(8)
        assert other.heartbeat(alive) is ErrorCode.NONE
        await asyncio.sleep(3)
        assert other.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
        assert other.heartbeat(alive) is ErrorCode.REBALANCE_IN_PROGRESS

    play(body)


def test_loading_groups_lets_later_records_replace_earlier_records_and_tombstones_remove() -> None:
    async def body(room: Room) -> None:
        await write(room, build_batch(offset_records(5, 7)))
        await write(room, build_batch(offset_records(6, None)))
        assert (await take_over(room)).fetch() == {P0: 6}

    play(body)


def test_a_group_that_was_removed_and_created_again_is_loaded() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        [stored] = room.log.records()
        await write(room, build_batch([NewRecord(None, group_key(GROUP))]))
        assert (await take_over(room)).groups.describe_group(GROUP).state == "Dead"
        await write(room, build_batch([NewRecord(stored.value, stored.key)]))
        assert (await take_over(room)).heartbeat(member) is ErrorCode.NONE

    play(body)


def test_a_loaded_group_with_more_members_than_allowed_starts_a_rebalance() -> None:
    async def body(room: Room) -> None:
        await room.stable(3)
        other = room.restart(replace(room.settings, group_max_size=2))
        other.groups._ownership.elected(0, 1)
        await settle()
        assert other.group().state is PREPARING_REBALANCE

    play(body)


MANY = 1_000
MANY_PARTITIONS = [TopicPartition("orders", number) for number in range(MANY)]
PASSES = MANY // COUNTED_ITEMS


def many_offsets() -> list[NewRecord]:
    value = offset_value(Offset(5, commit_timestamp=1), 3)
    return [NewRecord(value, offset_key(GROUP, partition)) for partition in MANY_PARTITIONS]


async def passes_until_loaded(room: Room) -> tuple[Room, int]:
    """Another coordinator that has loaded the log, and how many passes of the loop others had meanwhile."""
    other = room.restart()
    other.groups._ownership.elected(0, 1)
    passes = 0
    while other.groups.availability(GROUP):
        await asyncio.sleep(0)
        passes += 1
    return other, passes


def test_loading_one_large_batch_of_offsets_lets_other_requests_be_served_meanwhile() -> None:
    async def body(room: Room) -> None:
        await write(room, build_batch(many_offsets()))
        other, passes = await passes_until_loaded(room)
        assert passes >= PASSES
        assert other.fetch() == dict.fromkeys(MANY_PARTITIONS, 5)

    play(body)


def test_loading_the_commit_of_a_large_transaction_lets_other_requests_be_served_meanwhile() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, many_offsets())
        _, before = await passes_until_loaded(room)
        await write_marker(room, ControlType.COMMIT)
        other, passes = await passes_until_loaded(room)
        assert passes >= before + PASSES - 1
        assert other.fetch() == dict.fromkeys(MANY_PARTITIONS, 5)

    play(body)


def test_the_offsets_of_an_unloaded_group_are_freed_while_other_requests_are_served() -> None:
    async def body(room: Room) -> None:
        await write(room, build_batch(many_offsets()))
        other = await take_over(room)
        group = other.group()
        other.groups._ownership.resigned(0, 2)
        assert other.groups.availability(GROUP) is ErrorCode.NOT_COORDINATOR
        passes = 0
        while group.offsets.committed:
            await asyncio.sleep(0)
            passes += 1
        assert passes >= PASSES - 1

    play(body)


class ClosedSlices(CountedSlices):
    """Counts how often the work was ended."""

    closed = 0

    def close(self) -> None:
        super().close()
        self.closed += 1


def test_the_garbage_collector_has_all_objects_again_when_loads_and_unloads_have_ended() -> None:
    async def body(room: Room) -> None:
        await write(room, build_batch(many_offsets()))
        other = room.restart()
        ownership = other.groups._ownership
        slices = ownership._slices = ClosedSlices()

        for number in range(3):
            ownership.elected(number, 1)
        while ownership.partition(1).loading is not None:
            assert slices.closed == 0
            await asyncio.sleep(0)
        assert (ownership.partition(2).loading is not None, slices.closed) == (True, 0)
        await settle()
        assert slices.closed == 1

        ownership.resigned(0, 2)
        assert slices.closed == 1
        await settle()
        assert slices.closed == 2

    play(body)


def test_loaded_offsets_are_no_work_for_the_garbage_collector() -> None:
    async def body(room: Room) -> None:
        for group in ("a", "b"):
            await write(room, build_batch(offset_records(5, 7, group=group)))
        other = await take_over(room)
        first, second = (other.group(group).offsets.committed for group in ("a", "b"))
        assert not any(gc.is_tracked(c) or gc.is_tracked(c.offset) for c in (*first.values(), *second.values()))
        assert all(one is same for one, same in zip(first, second, strict=True))

    play(body)


# ---- transactions


def test_loaded_transactional_offsets_are_visible_after_their_transaction_commits() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5))
        pending = await take_over(room)
        assert pending.fetch([P0]) == {P0: -1}
        assert pending.fetch([P0], require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        pending.groups.on_transaction_completed(7, [0], True)
        assert pending.fetch([P0], require_stable=True) == {P0: 5}
        await write_marker(room, ControlType.COMMIT)
        assert (await take_over(room)).fetch() == {P0: 5}

    play(body)


@pytest.mark.parametrize(("is_commit", "committed"), [(True, 5), (False, -1)])
def test_a_transaction_marker_written_during_the_load_ends_the_transaction_of_loaded_offsets(
    is_commit: bool, committed: int
) -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5))
        other = room.restart()
        other.groups._ownership.elected(0, 1)

        other.groups.on_transaction_completed(7, [0], is_commit)
        other.groups.on_transaction_completed(7, [0], not is_commit)  # of the next one, which has no offsets here
        await asyncio.sleep(1)

        assert other.fetch([P0], require_stable=True) == {P0: committed}

    play(body)


def test_a_transaction_marker_written_during_an_earlier_load_ends_no_transaction() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5))
        ownership = room.groups._ownership
        ownership.resigned(0, 1)
        ownership.elected(0, 2)
        room.groups.on_transaction_completed(7, [0], True)
        ownership.resigned(0, 3)
        ownership.elected(0, 4)
        await asyncio.sleep(1)
        assert room.fetch([P0], require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT}

    play(body)


def test_loading_groups_drops_offsets_of_an_aborted_transaction() -> None:
    async def body(room: Room) -> None:
        await write(room, build_batch(offset_records(3)))
        await write_transactional(room, offset_records(5))
        pending = await take_over(room)
        pending.groups.on_transaction_completed(7, [0], False)
        assert pending.fetch(require_stable=True) == {P0: 3}
        await write_marker(room, ControlType.ABORT)
        assert (await take_over(room)).fetch(require_stable=True) == {P0: 3}

    play(body)


def test_loading_groups_lets_a_consumer_commit_replace_an_earlier_transactional_commit() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5))
        await write(room, build_batch(offset_records(9)))
        await write_marker(room, ControlType.COMMIT)
        assert (await take_over(room)).fetch() == {P0: 9}

    play(body)


def test_loading_groups_lets_a_transactional_commit_replace_an_earlier_consumer_commit() -> None:
    async def body(room: Room) -> None:
        await write(room, build_batch(offset_records(9)))
        await write_transactional(room, offset_records(5))
        await write_marker(room, ControlType.COMMIT)
        assert (await take_over(room)).fetch() == {P0: 5}

    play(body)


def test_a_loaded_transaction_marker_ends_only_the_transaction_of_its_producer() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5), producer=7)
        await write_transactional(room, offset_records(6, 8), producer=8)
        await write_marker(room, ControlType.COMMIT, producer=8)
        other = await take_over(room)
        assert other.fetch([P0, P1]) == {P0: 6, P1: 8}
        other.groups.on_transaction_completed(7, [0], True)
        assert other.fetch([P0, P1]) == {P0: 6, P1: 8}  # its record is the older one

    play(body)


# ---- what cannot be read


def test_loading_groups_skips_unreadable_records_and_loads_the_others() -> None:
    async def body(room: Room) -> None:
        bad = [
            NewRecord(b"\x00\x09", offset_key(GROUP, P1)),  # a value of the future
            NewRecord(b"x", b"\x00\x63other"),  # a key of another coordinator
            NewRecord(b"x", b""),
            NewRecord(b"\x00\x03short", group_key(GROUP)),
        ]
        await write(room, build_batch([*offset_records(5), *bad]))
        assert (await take_over(room)).fetch() == {P0: 5}

    play(body)


def test_loading_groups_skips_a_batch_with_a_wrong_crc_and_loads_the_others() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        before = len(room.log.partitions[0])
        await room.commit({P0: 6})
        await room.commit({P1: 7})
        damaged = bytearray(room.log.partitions[0])
        damaged[damaged.index(b"orders", before) + len("orders") + 14] ^= 1  # in the committed offset
        room.log.partitions[0] = bytes(damaged)
        assert (await take_over(room)).fetch() == {P0: 5, P1: 7}

    play(body)


def test_loading_groups_reads_in_pieces_and_yields_to_the_event_loop() -> None:
    async def body(room: Room) -> None:
        for number in range(300):
            await write(room, build_batch(offset_records(number, group=f"g{number}")))
        other = room.restart()
        reads = []
        read = room.log.read

        async def counted(partition: int, offset: int, max_bytes: int) -> bytes:
            reads.append(offset)
            return await read(partition, offset, max_bytes)

        room.log.read = counted  # type: ignore[method-assign]
        other.groups._ownership.elected(0, 1)
        await asyncio.sleep(1)
        assert len(other.groups._context.groups) == 300
        assert reads == sorted(reads)
        assert len(reads) > 2

    play(body, offsets_load_buffer_size=10_000)


# ---- markers that concern other groups


def test_loading_a_marker_of_a_transaction_without_offsets_changes_nothing() -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 5})
        room.groups.on_transaction_completed(7, [0], True)
        assert room.fetch(require_stable=True) == {P0: 5}

    play(body)


def test_a_transaction_marker_affects_only_groups_of_the_partitions_that_contain_the_marker() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5, group="a"))
        await write_transactional(room, offset_records(6, group="b"))
        other = await take_over(room)
        other.groups.on_transaction_completed(7, [1], True)  # no group is kept there
        unstable = {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        assert other.fetch([P0], group_id="a", require_stable=True) == unstable
        other.groups.on_transaction_completed(7, [0, 1], True)
        assert other.fetch(group_id="a", require_stable=True) == {P0: 5}
        assert other.fetch(group_id="b", require_stable=True) == {P0: 6}

    play(body)


# ---- what a log may hold


def test_an_empty_group_is_loaded_with_its_offsets_and_the_time_it_became_empty() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(protocols=SUBSCRIBED)
        await room.commit({P0: 5}, member_id=member.member_id, generation=1)
        await asyncio.sleep(11)
        other = await take_over(room)
        loaded, before = other.group(), room.group()
        assert (loaded.state, loaded.generation, loaded.protocol_type) == (EMPTY, 2, "consumer")
        assert (loaded.state_since_ms, loaded.subscribed_topics) == (before.state_since_ms, frozenset())
        assert other.fetch() == {P0: 5}

    play(body)


def test_a_loaded_group_has_the_subscribed_topics_of_its_members() -> None:
    async def body(room: Room) -> None:
        await room.stable(protocols=SUBSCRIBED)
        assert (await take_over(room)).group().subscribed_topics == frozenset({"orders"})

    play(body)


def test_a_loaded_group_with_unreadable_member_metadata_has_unknown_topics() -> None:
    async def body(room: Room) -> None:
        await room.stable(protocols=(("range", b"garbage"),))
        loaded = (await take_over(room)).group()
        assert (loaded.state, loaded.subscribed_topics) == (STABLE, None)

    play(body)


def test_loading_only_aborted_transactional_offsets_creates_no_group() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5))
        await write_marker(room, ControlType.ABORT)
        assert (await (await take_over(room)).groups.list_groups([], []))[1] == []

    play(body)


def test_loading_groups_ends_several_transactions_of_a_producer_one_after_the_other() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(1, 1))
        await write_marker(room, ControlType.COMMIT)
        await write_transactional(room, offset_records(2, 2))
        await write_marker(room, ControlType.ABORT)
        await write_transactional(room, offset_records(3))
        other = await take_over(room)
        assert other.fetch() == {P0: 1, P1: 1}
        assert other.fetch(require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT, P1: 1}

    play(body)


def test_loading_offsets_stored_after_the_removal_of_a_group_creates_that_group_again() -> None:
    async def body(room: Room) -> None:
        await room.stable()
        await write(room, build_batch([NewRecord(None, group_key(GROUP))]))
        await write(room, build_batch(offset_records(5)))
        other = await take_over(room)
        assert (other.group().state, other.group().generation) == (EMPTY, 0)
        assert other.fetch() == {P0: 5}

    play(body)


def test_a_batch_larger_than_the_load_buffer_of_the_coordinator_is_loaded() -> None:
    async def body(room: Room) -> None:
        await room.stable(protocols=(("range", b"x" * 5_000),))
        await write(room, build_batch(offset_records(5)))
        other = await take_over(room)
        assert (other.group().state, other.fetch()) == (STABLE, {P0: 5})

    play(body, offsets_load_buffer_size=1_000)


def test_loading_groups_ends_when_the_log_returns_no_records() -> None:
    async def body(room: Room) -> None:
        await write(room, build_batch(offset_records(5)))
        room.log.ends[0] += 10
        other = await take_over(room)
        assert other.fetch() == {P0: 5}

    play(body)


def test_loading_groups_ignores_a_control_batch_without_a_transaction_marker() -> None:
    async def body(room: Room) -> None:
        await write_transactional(room, offset_records(5))
        marker = build_end_marker(EndMarker(ControlType.COMMIT, 0), 7, 0, 1)
        emptied = header_at(marker)._replace(record_count=0)
        await write(room, sealed_batch(emptied, b""))
        await write(room, build_batch(offset_records(None, 8)))
        other = await take_over(room)
        assert other.fetch([P0, P1], require_stable=True) == {P0: ErrorCode.UNSTABLE_OFFSET_COMMIT, P1: 8}

    play(body)


def test_the_duration_of_loading_groups_is_measured() -> None:
    async def body(room: Room) -> None:
        other = await take_over(room)
        assert other.groups.counts.partition_loads.count == 1

    play(body)
