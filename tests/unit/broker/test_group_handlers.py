"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the requests of administrators, in every version."""

import inspect
from typing import Any

import pytest
from tests.unit.broker.cluster_state import request
from tests.unit.coordinator.groups_room import GROUP, P0, RANGE, Room, play
from tests.unit.coordinator.test_large_groups import ObservedSlices

from klamm.broker.dispatch import Offered
from klamm.broker.handlers import group_admin, groups
from klamm.broker.handlers.group_admin import GroupAdmin
from klamm.broker.handlers.groups import GroupMembers
from klamm.coordinator.requests import SyncRequest
from klamm.model.errors import ErrorCode
from klamm.runtime.time_slices import PIECE
from klamm.wire import messages as m
from klamm.wire.api import ApiKey, api


def versions(offered: Offered) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(offered.min_version, offered.max_version + 1))


async def exchange(handle: Any, key: ApiKey, version: int, message: Any) -> Any:
    """Send the request over the wire and back."""
    received = api(key).request.decode(message.encode(version), version)
    response = handle(request(key, version), received)
    if inspect.isawaitable(response):
        response = await response
    return api(key).response.decode(response.encode(version), version)


def members_of(room: Room, *, allows_static: bool = True) -> GroupMembers:
    return GroupMembers(room.groups, allows_static=allows_static)


def join_message(version: int, member_id: str = "", instance_id: str | None = None) -> m.JoinGroupRequest:
    return m.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=-1 if version == 0 else 60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(*RANGE[0])],
    )


async def join(room: Room, version: int, instance_id: str | None = None) -> m.JoinGroupResponse:
    """Join as a client of this version does: from version 4 on with the member id that it is given first."""
    handle = members_of(room).join
    given = ""
    if version >= 4 and instance_id is None:
        required = await exchange(handle, ApiKey.JOIN_GROUP, version, join_message(version))
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert required.protocol_name == (None if version >= 7 else "")
        given = required.member_id
    joined: m.JoinGroupResponse = await exchange(
        handle, ApiKey.JOIN_GROUP, version, join_message(version, given, instance_id)
    )
    return joined


@versions(groups.JOIN_GROUP)
def test_every_join_group_version_adds_a_member_to_the_group(version: int) -> None:
    async def body(room: Room) -> None:
        joined = await join(room, version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
        assert joined.leader == joined.member_id == joined.members[0].member_id
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        member = room.group().members[joined.member_id]
        assert (member.client_id, member.client_host) == ("c", "/10.0.0.1")
        assert member.rebalance_timeout_ms == (60_000 if version else 10_000)

    play(body)


@versions(groups.SYNC_GROUP)
def test_every_sync_group_version_returns_the_assignment(version: int) -> None:
    async def body(room: Room) -> None:
        joined = await join(room, 9)
        message = m.SyncGroupRequest(
            GROUP,
            1,
            joined.member_id,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[m.SyncGroupRequestAssignment(joined.member_id, b"mine")],
        )
        synced = await exchange(members_of(room).sync, ApiKey.SYNC_GROUP, version, message)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
        assert synced.protocol_name == ("range" if version >= 5 else None)

    play(body)


def test_a_sync_group_request_of_version_5_without_a_protocol_is_refused() -> None:
    async def body(room: Room) -> None:
        message = m.SyncGroupRequest(GROUP, 1, "m", protocol_type="consumer")
        synced = await exchange(members_of(room).sync, ApiKey.SYNC_GROUP, 5, message)
        assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    play(body)


@versions(groups.HEARTBEAT)
def test_every_heartbeat_version_accepts_a_member_and_refuses_an_old_generation(version: int) -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        handle = members_of(room).heartbeat
        alive = m.HeartbeatRequest(GROUP, 1, member.member_id)
        assert (await exchange(handle, ApiKey.HEARTBEAT, version, alive)).error_code == ErrorCode.NONE
        late = m.HeartbeatRequest(GROUP, 0, member.member_id)
        assert (await exchange(handle, ApiKey.HEARTBEAT, version, late)).error_code == ErrorCode.ILLEGAL_GENERATION

    play(body)


@versions(groups.LEAVE_GROUP)
def test_every_leave_group_version_removes_members(version: int) -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        handle = members_of(room).leave
        for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            if version < 3:
                message = m.LeaveGroupRequest(GROUP, member.member_id)
                left = await exchange(handle, ApiKey.LEAVE_GROUP, version, message)
                assert left.error_code == expected
            else:
                message = m.LeaveGroupRequest(GROUP, members=[m.MemberIdentity(member.member_id)])
                left = await exchange(handle, ApiKey.LEAVE_GROUP, version, message)
                assert left.error_code == ErrorCode.NONE
                assert [(x.member_id, x.error_code) for x in left.members] == [(member.member_id, expected)]

    play(body)


@pytest.mark.parametrize("version", [0, 5])
def test_leave_group_at_a_broker_that_is_not_coordinator_gets_one_top_level_error(version: int) -> None:
    async def body(room: Room) -> None:
        room.groups._ownership.resigned(0, 1)
        message = m.LeaveGroupRequest(GROUP, members=[m.MemberIdentity("m")] if version else [])
        left = await exchange(members_of(room).leave, ApiKey.LEAVE_GROUP, version, message)
        assert (left.error_code, left.members) == (ErrorCode.NOT_COORDINATOR, [])

    play(body)


def test_static_members_are_refused_while_old_brokers_of_the_cluster_may_not_support_them() -> None:
    async def body(room: Room) -> None:
        handlers = members_of(room, allows_static=False)
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        joined = await exchange(handlers.join, ApiKey.JOIN_GROUP, 5, join_message(5, instance_id="i"))
        assert joined.error_code == unsupported
        sync = m.SyncGroupRequest(GROUP, 1, "m", "i")
        assert (await exchange(handlers.sync, ApiKey.SYNC_GROUP, 3, sync)).error_code == unsupported
        beat = m.HeartbeatRequest(GROUP, 1, "m", "i")
        assert (await exchange(handlers.heartbeat, ApiKey.HEARTBEAT, 3, beat)).error_code == unsupported

    play(body)


def test_the_join_group_response_from_version_9_tells_the_leader_to_skip_the_assignment() -> None:
    async def body(room: Room) -> None:
        first = await join(room, 9, "i")
        await room.groups.sync_group(_sync_of(first))
        again = await join(room, 9, "i")
        assert (again.skip_assignment, again.leader, len(again.members)) == (True, again.member_id, 1)
        older = await join(room, 8, "i")
        assert (older.skip_assignment, older.leader, older.members) == (False, again.member_id, [])

    play(body)


def _sync_of(joined: m.JoinGroupResponse) -> SyncRequest:
    return SyncRequest(GROUP, joined.generation_id, joined.member_id, "i", assignments={joined.member_id: b"x"})


# ---- administrators


@versions(group_admin.LIST_GROUPS)
def test_every_list_groups_version_lists_groups(version: int) -> None:
    async def body(room: Room) -> None:
        await room.stable()
        await room.commit({P0: 1}, group_id="simple")
        message = m.ListGroupsRequest(states_filter=("stable",) if version >= 4 else ())
        listed = await exchange(GroupAdmin(room.groups).list, ApiKey.LIST_GROUPS, version, message)
        assert [(g.group_id, g.protocol_type) for g in listed.groups][:1] == [(GROUP, "consumer")]
        assert len(listed.groups) == (1 if version >= 4 else 2)
        assert listed.groups[0].group_state == ("Stable" if version >= 4 else "")
        assert listed.groups[0].group_type == ("classic" if version >= 5 else "")

    play(body)


@versions(group_admin.DESCRIBE_GROUPS)
def test_every_describe_groups_version_describes_groups(version: int) -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable(instance_id="i")
        message = m.DescribeGroupsRequest((GROUP, "x"), include_authorized_operations=version >= 3)
        described = await exchange(GroupAdmin(room.groups).describe, ApiKey.DESCRIBE_GROUPS, version, message)
        known, unknown = described.groups
        assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
        assert known.members[0].group_instance_id == ("i" if version >= 4 else None)
        assert (known.members[0].member_id, known.members[0].client_host) == (member.member_id, "/127.0.0.1")
        assert known.authorized_operations == ((1 << 3 | 1 << 6 | 1 << 8) if version >= 3 else -(2**31))
        assert (unknown.error_code, unknown.group_state) == (ErrorCode.NONE, "Dead")

    play(body)


def test_the_members_of_a_large_group_are_described_in_time_slices() -> None:
    async def body(room: Room) -> None:
        await room.stable(2 * PIECE)
        checkpoints: list[None] = []
        slices = ObservedSlices(lambda: checkpoints.append(None))
        asked = request(ApiKey.DESCRIBE_GROUPS, 5)._replace(slices=slices)
        described = await GroupAdmin(room.groups).describe(asked, m.DescribeGroupsRequest((GROUP,)))
        assert [member.member_assignment for member in described.groups[0].members] == [
            str(number).encode() for number in range(2 * PIECE)
        ]
        assert len(checkpoints) == 2

    play(body)


@versions(group_admin.DELETE_GROUPS)
def test_every_delete_groups_version_deletes_groups(version: int) -> None:
    async def body(room: Room) -> None:
        await room.commit({P0: 1}, group_id="simple")
        message = m.DeleteGroupsRequest(("simple", "x", "simple"))
        deleted = await exchange(GroupAdmin(room.groups).delete, ApiKey.DELETE_GROUPS, version, message)
        assert [(r.group_id, r.error_code) for r in deleted.results] == [
            ("simple", ErrorCode.NONE),
            ("x", ErrorCode.GROUP_ID_NOT_FOUND),
        ]

    play(body)


@pytest.mark.parametrize(
    ("host", "text"),
    [("127.0.0.1", "/127.0.0.1"), ("::1", "/0:0:0:0:0:0:0:1"), ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0")],
)
def test_describe_groups_returns_member_hosts_formatted_like_java_addresses(host: str, text: str) -> None:
    assert groups._java_address(host) == text


def test_requests_of_the_new_consumer_group_protocol_get_unsupported_version() -> None:
    async def body(room: Room) -> None:
        handle, key = members_of(room).refuse_next_generation, ApiKey.CONSUMER_GROUP_HEARTBEAT
        refused = await exchange(handle, key, 0, m.ConsumerGroupHeartbeatRequest("g", "m", 0))
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        describe, key = GroupAdmin(room.groups).refuse_next_generation, ApiKey.CONSUMER_GROUP_DESCRIBE
        response = await exchange(describe, key, 0, m.ConsumerGroupDescribeRequest(("g",)))
        assert [(g.group_id, g.error_code) for g in response.groups] == [("g", ErrorCode.UNSUPPORTED_VERSION)]

    play(body)
