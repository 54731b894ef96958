"""ListGroups, DescribeGroups, DeleteGroups. Source: KafkaApis.scala, GroupCoordinatorAdapter.scala (3.9)."""

from typing import Final

from klamm.broker.api_rules import Operation
from klamm.broker.dispatch import Offered, Request
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.handlers.admin import CLASSIC
from klamm.model.errors import ErrorCode
from klamm.runtime.time_slices import Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseDescribedGroup,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

LIST_GROUPS: Final = Offered(ApiKey.LIST_GROUPS, 0, 5)
DESCRIBE_GROUPS: Final = Offered(ApiKey.DESCRIBE_GROUPS, 0, 5)
DELETE_GROUPS: Final = Offered(ApiKey.DELETE_GROUPS, 0, 2)
CONSUMER_GROUP_DESCRIBE: Final = Offered(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 0)
ALL_GROUP_OPERATIONS: Final = sum(1 << o for o in (Operation.READ, Operation.DELETE, Operation.DESCRIBE))
"""What may be done with a group: with no authorizer everything is allowed."""
_TELLS_OPERATIONS: Final = 3


class GroupAdmin:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def list(self, request: Request, message: ListGroupsRequest) -> ListGroupsResponse:
        """Answer ListGroups: the groups this broker coordinates that pass the filters of state and type."""
        error, groups = await self._coordinator.list_groups(message.states_filter, message.types_filter)
        return ListGroupsResponse(
            error_code=error,
            groups=await request.slices.list_of(
                ListedGroup(g.group_id, g.protocol_type, g.state, CLASSIC) for g in groups
            ),
        )

    async def describe(self, request: Request, message: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Answer DescribeGroups: state, protocol and members of each group."""
        shows_operations = message.include_authorized_operations and request.version >= _TELLS_OPERATIONS
        groups = [await self._describe(group_id, request.slices) for group_id in message.groups]
        for group in groups:
            if shows_operations and not group.error_code:
                group.authorized_operations = ALL_GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    async def _describe(self, group_id: str, slices: Slices) -> DescribeGroupsResponseDescribedGroup:
        """Return the description of one group, or its error, in the form of the response.

        The group is described as it is at one moment; the members of a large one are converted in time slices.
        """
        group = self._coordinator.describe_group(group_id)
        return DescribeGroupsResponseDescribedGroup(
            error_code=group.error,
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol,
            members=await slices.list_of(DescribedGroupMember(*member) for member in group.members),
        )

    async def delete(self, request: Request, message: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """Answer DeleteGroups: delete each group that is empty."""
        errors = await self._coordinator.delete_groups(message.groups_names)
        results = (DeletableGroupResult(name, error) for name, error in errors.items())
        return DeleteGroupsResponse(results=await request.slices.list_of(results))

    def refuse_next_generation(
        self, request: Request, message: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        """Answer ConsumerGroupDescribe with UNSUPPORTED_VERSION; clients then use DescribeGroups."""
        group, unsupported = ConsumerGroupDescribeResponseDescribedGroup, ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(groups=[group(unsupported, group_id=name) for name in message.group_ids])
