"""Members of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. Source: KafkaApis.scala, GroupCoordinatorAdapter.

ConsumerGroupHeartbeat, of the next generation of groups, is advertised and refused, as by every broker with ZooKeeper.
"""

from ipaddress import IPv6Address
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.requests import JoinRequest, LeavingMember, SyncRequest
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

JOIN_GROUP: Final = Offered(ApiKey.JOIN_GROUP, 0, 9)
SYNC_GROUP: Final = Offered(ApiKey.SYNC_GROUP, 0, 5)
HEARTBEAT: Final = Offered(ApiKey.HEARTBEAT, 0, 4)
LEAVE_GROUP: Final = Offered(ApiKey.LEAVE_GROUP, 0, 5)
CONSUMER_GROUP_HEARTBEAT: Final = Offered(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 0)

_REQUIRES_MEMBER_ID: Final = 4
_NULLABLE_PROTOCOL: Final = 7
_SKIPS_ASSIGNMENT: Final = 9
_NAMES_PROTOCOL: Final = 5
_LEAVES_IN_BATCHES: Final = 3


class GroupMembers:
    """`allows_static`: whether all brokers of this inter.broker.protocol.version keep instance ids."""

    def __init__(self, coordinator: GroupCoordinator, *, allows_static: bool) -> None:
        self._coordinator = coordinator
        self._allows_static = allows_static

    async def join(self, request: Request, message: JoinGroupRequest) -> JoinGroupResponse:
        """Answer JoinGroup: add the member to the group, and answer when the rebalance is complete."""
        if self._is_refused(message.group_instance_id):
            return _join_error(request.version, ErrorCode.UNSUPPORTED_VERSION)
        result = await self._coordinator.join_group(await _join_request(request, message))
        name = result.protocol_name
        return JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation,
            protocol_type=result.protocol_type,
            protocol_name=name or "" if request.version < _NULLABLE_PROTOCOL else name,
            leader=result.leader,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=await request.slices.list_of(JoinGroupResponseMember(*member) for member in result.members),
        )

    async def sync(self, request: Request, message: SyncGroupRequest) -> SyncGroupResponse:
        """Answer SyncGroup: return the member's assignment, once the leader of the group has sent it."""
        if self._is_refused(message.group_instance_id):
            return SyncGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if request.version >= _NAMES_PROTOCOL and None in (message.protocol_type, message.protocol_name):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        result = await self._coordinator.sync_group(
            SyncRequest(
                message.group_id,
                message.generation_id,
                message.member_id,
                message.group_instance_id,
                message.protocol_type,
                message.protocol_name,
                await request.slices.dict_of((part.member_id, part.assignment) for part in message.assignments),
            )
        )
        return SyncGroupResponse(
            error_code=result.error,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )

    def heartbeat(self, request: Request, message: HeartbeatRequest) -> HeartbeatResponse:
        """Answer Heartbeat: extend the member's session; the error tells whether it must rejoin."""
        if self._is_refused(message.group_instance_id):
            return HeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        error = self._coordinator.heartbeat(
            message.group_id, message.member_id, message.group_instance_id, message.generation_id
        )
        return HeartbeatResponse(error_code=error)

    def leave(self, request: Request, message: LeaveGroupRequest) -> LeaveGroupResponse:
        """Answer LeaveGroup: remove the members from the group.

        Up to version 2 a request has one member, and its error is that of the whole response.
        """
        if request.version < _LEAVES_IN_BATCHES:
            result = self._coordinator.leave_group(message.group_id, [LeavingMember(message.member_id)])
            return LeaveGroupResponse(error_code=result.error or result.members[0])
        members = [LeavingMember(m.member_id, m.group_instance_id, m.reason) for m in message.members]
        result = self._coordinator.leave_group(message.group_id, members)
        return LeaveGroupResponse(
            error_code=result.error,
            members=[
                MemberResponse(member.member_id, member.instance_id, error)
                for member, error in zip(members, result.members, strict=False)
            ],
        )

    def refuse_next_generation(
        self, request: Request, message: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Answer ConsumerGroupHeartbeat with UNSUPPORTED_VERSION; clients then use the classic protocol."""
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    def _is_refused(self, instance_id: str | None) -> bool:
        """Whether a static member is refused, because older brokers would load it as a dynamic member."""
        return instance_id is not None and not self._allows_static


async def _join_request(request: Request, message: JoinGroupRequest) -> JoinRequest:
    """Return the join for the coordinator, with the defaults of the request's version."""
    rebalance_timeout_ms = message.session_timeout_ms if request.version == 0 else message.rebalance_timeout_ms
    return JoinRequest(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        request.client_id or "",
        _java_address(request.peer.host),
        rebalance_timeout_ms,
        message.session_timeout_ms,
        message.protocol_type,
        tuple(await request.slices.list_of((p.name, bytes(p.metadata)) for p in message.protocols)),
        requires_known_member_id=request.version >= _REQUIRES_MEMBER_ID and message.group_instance_id is None,
        can_skip_assignment=request.version >= _SKIPS_ASSIGNMENT,
        reason=message.reason,
    )


def _join_error(version: int, error: ErrorCode) -> JoinGroupResponse:
    """Return a JoinGroup response with this error, and with a protocol name that the version can encode."""
    name = "" if version < _NULLABLE_PROTOCOL else None
    return JoinGroupResponse(error_code=error, protocol_name=name)


def _java_address(host: str) -> str:
    """The address as Java prints one without a name: `/127.0.0.1`, `/0:0:0:0:0:0:0:1`."""
    if ":" not in host:
        return f"/{host}"
    address, _, scope = host.partition("%")
    parts = (f"{int(part, 16):x}" for part in IPv6Address(address).exploded.split(":"))
    return f"/{':'.join(parts)}{'%' + scope if scope else ''}"
