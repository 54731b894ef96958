"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.cluster_state import cache, partition, update
from tests.unit.broker.node_parts import build
from tests.unit.broker.test_group_handlers import exchange, versions
from tests.unit.coordinator.groups_room import GROUP, P0, P1, Room, play

from klamm.broker.dispatch import Dispatcher
from klamm.broker.handlers import group_offsets
from klamm.broker.handlers.group_offsets import GroupOffsetsApis
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.routes import routes
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.net.client_connection import ClientConnection, Peer
from klamm.sim.world import SimulatedClock
from klamm.wire import messages as m
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, encode_request
from klamm.zk.errors import ConnectionLoss

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ZooKeeper:
    def __init__(self) -> None:
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.is_lost = False

    async def write_consumer_offset(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        if self.is_lost:
            raise ConnectionLoss("set", "/consumers")
        self.offsets[group_id, partition] = offset

    async def read_consumer_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        if self.is_lost:
            raise ConnectionLoss("get", "/consumers")
        return self.offsets.get((group_id, partition))


class Apis:
    """The cluster has the partitions 0 and 1 of `orders`, unless it is given."""

    def __init__(self, room: Room, *, allows_static: bool = True, known: MetadataCache | None = None) -> None:
        self.zookeeper = ZooKeeper()
        self.room = room
        clock = SimulatedClock(room.loop)
        self.handlers = GroupOffsetsApis(
            room.groups,
            known or cache(),
            clock,
            lambda: self.zookeeper,
            metadata_max_bytes=10,
            allows_static=allows_static,
        )

    async def commit(self, version: int, *partitions: m.OffsetCommitRequestPartition, **fields: Any) -> dict[int, int]:
        topics = [m.OffsetCommitRequestTopic("orders", list(partitions))]
        message = m.OffsetCommitRequest(GROUP, topics=topics, **fields)
        response = await exchange(self.handlers.commit, ApiKey.OFFSET_COMMIT, version, message)
        return {p.partition_index: p.error_code for t in response.topics for p in t.partitions}

    async def fetch(self, version: int, *partitions: int, everything: bool = False) -> Any:
        """The response of version 0 to 7, or the group's of version 8 and 9."""
        if version < 8:
            topics = None if everything else [m.OffsetFetchRequestTopic("orders", partitions)]
            message = m.OffsetFetchRequest(GROUP, topics)
            return await exchange(self.handlers.fetch, ApiKey.OFFSET_FETCH, version, message)
        asked = None if everything else [m.OffsetFetchRequestTopics("orders", partitions)]
        message = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(GROUP, topics=asked)])
        response = await exchange(self.handlers.fetch, ApiKey.OFFSET_FETCH, version, message)
        [group] = response.groups
        assert group.group_id == GROUP
        return group

    async def delete(self, *partitions: int) -> m.OffsetDeleteResponse:
        topic = m.OffsetDeleteRequestTopic("orders", [m.OffsetDeleteRequestPartition(p) for p in partitions])
        message = m.OffsetDeleteRequest(GROUP, [topic])
        response: m.OffsetDeleteResponse = await exchange(self.handlers.delete, ApiKey.OFFSET_DELETE, 0, message)
        return response


def committed(index: int, offset: int, metadata: str | None = "m", epoch: int = -1) -> m.OffsetCommitRequestPartition:
    return m.OffsetCommitRequestPartition(index, offset, epoch, committed_metadata=metadata)


def offsets_of(response: Any) -> dict[int, tuple[int, str, int]]:
    return {
        p.partition_index: (p.committed_offset, p.metadata, p.error_code)
        for topic in response.topics
        for p in topic.partitions
    }


@versions(group_offsets.OFFSET_COMMIT)
def test_every_offset_commit_version_stores_offsets_of_known_partitions(version: int) -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        errors = await apis.commit(version, committed(0, 5), committed(1, 7, None), committed(9, 1))
        assert errors == {0: NONE, 1: NONE, 9: UNKNOWN}
        if version == 0:
            assert apis.zookeeper.offsets == {(GROUP, P0): 5, (GROUP, P1): 7}
            assert room.fetch() == {}
        else:
            assert room.fetch() == {P0: 5, P1: 7}
            assert room.group().offsets.committed[P1].offset.metadata == ""

    play(body)


@versions(group_offsets.OFFSET_FETCH)
def test_every_offset_fetch_version_returns_the_committed_offsets(version: int) -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        await apis.commit(min(version, 9), committed(0, 5))
        response = await apis.fetch(version, 0, 1)
        if version == 0:
            assert offsets_of(response) == {0: (5, "", NONE), 1: (-1, "", UNKNOWN)}
        else:
            assert offsets_of(response) == {0: (5, "m", NONE), 1: (-1, "", NONE)}
        assert response.error_code == NONE

    play(body)


@pytest.mark.parametrize("version", range(2, 10))
def test_offset_fetch_for_all_partitions_returns_those_with_a_committed_offset(version: int) -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        await apis.commit(9, committed(1, 7, epoch=3))
        response = await apis.fetch(version, everything=True)
        assert offsets_of(response) == {1: (7, "m", NONE)}
        [partition] = response.topics[0].partitions
        assert partition.committed_leader_epoch == (3 if version >= 5 else -1)

    play(body)


@pytest.mark.parametrize("version", range(1, 10))
def test_every_offset_fetch_version_returns_the_error_of_a_group(version: int) -> None:
    async def body(room: Room) -> None:
        room.groups._ownership.resigned(0, 1)
        response = await Apis(room).fetch(version, 0)
        if version == 1:
            assert offsets_of(response) == {0: (-1, "", ErrorCode.NOT_COORDINATOR)}
        else:
            assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])

    play(body)


@pytest.mark.parametrize("version", range(1, 10))
def test_no_offset_fetch_version_is_answered_where_another_broker_may_be_coordinator(version: int) -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        await apis.commit(9, committed(0, 5))
        room.log.is_confirmed = False
        for everything in (False, True) if version >= 2 else (False,):
            response = await apis.fetch(version, 0, everything=everything)
            if version == 1:
                assert offsets_of(response) == {0: (-1, "", ErrorCode.NOT_COORDINATOR)}
            else:
                assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])

    play(body)


def test_an_offset_fetch_of_many_groups_confirms_the_leadership_of_each_partition_once() -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        await apis.commit(9, committed(0, 5))
        names = [GROUP, "other", "third"]
        message = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(name, topics=None) for name in names])
        response = await exchange(apis.handlers.fetch, ApiKey.OFFSET_FETCH, 9, message)
        assert [(group.group_id, group.error_code) for group in response.groups] == [(name, NONE) for name in names]
        assert room.log.confirmations == [0]

    play(body)


def test_the_retention_time_of_an_offset_commit_sets_when_the_offset_expires() -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        await apis.commit(2, committed(0, 5), retention_time_ms=1_000)
        await apis.commit(2, committed(1, 5))
        stored = room.group().offsets.committed
        assert stored[P0].offset.expire_timestamp == room.now_ms() + 1_000
        assert stored[P1].offset.expire_timestamp is None

    play(body)


def test_an_offset_with_the_longest_retention_time_never_expires() -> None:
    async def body(room: Room) -> None:
        assert await Apis(room).commit(2, committed(0, 5), retention_time_ms=2**63 - 1) == {0: NONE}
        assert room.group().offsets.committed[P0].offset.expire_timestamp == 2**63 - 1
        assert list(room.log.stored()) == ["orders-0: 5"]

    play(body)


def test_offset_commit_version_1_sets_the_commit_timestamp() -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        await apis.commit(1, m.OffsetCommitRequestPartition(0, 5, commit_timestamp=77), committed(1, 5))
        stored = room.group().offsets.committed
        assert stored[P0].offset.commit_timestamp == 77
        assert stored[P1].offset.commit_timestamp == room.now_ms()

    play(body)


def test_an_offset_commit_with_only_unknown_partitions_creates_no_group() -> None:
    async def body(room: Room) -> None:
        assert await Apis(room).commit(9, committed(9, 1)) == {9: UNKNOWN}
        assert (await room.groups.list_groups([], []))[1] == []

    play(body)


def test_an_offset_commit_of_a_static_member_is_refused_while_older_brokers_are_possible() -> None:
    async def body(room: Room) -> None:
        errors = await Apis(room, allows_static=False).commit(7, committed(0, 5), group_instance_id="i", member_id="m")
        assert errors == {0: ErrorCode.UNSUPPORTED_VERSION}

    play(body)


def test_offset_commit_version_0_checks_metadata_size_and_answers_errors_without_zookeeper() -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        errors = await apis.commit(0, committed(0, 5, "x" * 11))
        assert errors == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        apis.zookeeper.is_lost = True
        assert await apis.commit(0, committed(0, 5)) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}
        assert offsets_of(await apis.fetch(0, 0)) == {0: (-1, "", ErrorCode.UNKNOWN_SERVER_ERROR)}

    play(body)


def test_offset_delete_deletes_the_offsets_of_known_partitions() -> None:
    async def body(room: Room) -> None:
        apis = Apis(room)
        assert (await apis.delete(0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await apis.commit(9, committed(0, 5), committed(1, 7))
        response = await apis.delete(0, 9)
        errors = {p.partition_index: p.error_code for t in response.topics for p in t.partitions}
        assert (response.error_code, errors) == (NONE, {0: NONE, 9: UNKNOWN})
        assert room.fetch() == {P1: 7}

    play(body)


MANY = 1_000
LARGE = 5_000
"""So many partitions make a request large: it is divided, see `MAX_BYTES_AT_ONCE`."""
RESPONSE_HEAD_BYTES = 8
"""The size and the correlation id."""


def many_partitions() -> MetadataCache:
    return cache(update({"orders": [partition(number, 1) for number in range(MANY)]}))


def test_offset_delete_of_many_partitions_succeeds_where_the_group_has_offsets_of_the_first_ones_only(
    tmp_path: Path,
) -> None:
    """The group is removed with its last offset, long before the last partition."""
    topic = m.OffsetDeleteRequestTopic("orders", [m.OffsetDeleteRequestPartition(p) for p in range(LARGE)])
    head = RequestHeader(ApiKey.OFFSET_DELETE, 0, 1, "c")
    frame = b"".join(encode_request(head, m.OffsetDeleteRequest(GROUP, [topic])))[4:]
    connection = ClientConnection(Peer("PLAINTEXT", "h", 1))

    async def body(room: Room) -> None:
        apis = Apis(room, known=cache(update({"orders": [partition(number, 1) for number in range(LARGE)]})))
        await apis.commit(9, committed(0, 5), committed(1, 7))
        [route] = [route for route in routes(build(tmp_path)[0]) if route.offered is group_offsets.OFFSET_DELETE]
        dispatcher = Dispatcher([route._replace(handle=apis.handlers.delete)])

        async def delete() -> m.OffsetDeleteResponse:
            answer: Any = await dispatcher(frame, connection)  # type: ignore[misc]
            decoded: m.OffsetDeleteResponse = m.OffsetDeleteResponse.decode(b"".join(answer), 0, RESPONSE_HEAD_BYTES)
            return decoded

        response = await delete()

        errors = [p.error_code for t in response.topics for p in t.partitions]
        assert (response.error_code, errors) == (NONE, [NONE] * LARGE)
        assert room.fetch() == {}
        assert (await delete()).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(body)


@pytest.mark.parametrize("version", [7, 9])
def test_offset_fetch_for_all_of_many_partitions_works_in_time_slices(version: int) -> None:
    async def body(room: Room) -> None:
        apis = Apis(room, known=many_partitions())
        await apis.commit(9, *(committed(number, number) for number in range(MANY)))

        fetching = asyncio.create_task(apis.fetch(version, everything=True))
        await asyncio.sleep(0)
        assert not fetching.done()
        gone = [TopicPartition("orders", number) for number in range(MANY // 2, MANY)]
        assert (await room.groups.delete_offsets(GROUP, gone))[0] == NONE

        found = offsets_of(await fetching)
        assert (-1, "", NONE) not in found.values()
        assert MANY - 1 not in found
        assert all(found[number] == (number, "m", NONE) for number in range(MANY // 2))

    play(body)
