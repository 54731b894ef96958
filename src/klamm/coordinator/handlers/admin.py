"""Listing, describing and deleting groups. Source: GroupCoordinator.scala (3.9)."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.group import Group
from klamm.coordinator.handlers import removal
from klamm.coordinator.states import DEAD, EMPTY, STABLE
from klamm.model.errors import ErrorCode

CLASSIC: Final = "classic"
"""The type of all groups here, as ListGroups names it."""


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


class DescribedGroup(NamedTuple):
    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


async def list_groups(
    context: CoordinatorContext, states: Iterable[str], types: Iterable[str]
) -> tuple[ErrorCode, list[ListedGroup]]:
    """List the loaded groups of these states and types, ignoring case, in time slices; an empty filter passes all.

    A group that is removed or unloaded meanwhile is left out.
    """
    if not context.is_active:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if context.groups.is_loading else ErrorCode.NONE
    slices = context.slices
    passed_types = await slices.dict_of((name.lower(), None) for name in types)
    if passed_types and CLASSIC not in passed_types:
        return error, []
    passed = await slices.dict_of((state.lower(), None) for state in states)
    groups = list(context.groups)  # some may be removed between two slices
    return error, await slices.list_of(
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
        for group in groups
        if group.state is not DEAD and (not passed or group.state.lower() in passed)
    )


def describe_group(context: CoordinatorContext, group_id: str) -> DescribedGroup:
    """Describe a group: state, protocol, members. One that does not exist is described as dead, without an error."""
    if error := context.availability(group_id, allows_empty=True):
        return DescribedGroup(error)
    group = context.groups.get(group_id)
    if group is None:
        return DescribedGroup(ErrorCode.NONE, DEAD.value)
    return DescribedGroup(
        ErrorCode.NONE,
        group.state.value,
        group.protocol_type or "",
        (group.protocol_name or "") if group.state is STABLE else "",
        tuple(_described_members(group)),
    )


def _described_members(group: Group) -> list[DescribedMember]:
    """The members of the group; metadata and assignments are included only if the group is stable."""
    protocol = group.protocol_name
    members = group.members.values()
    if group.state is not STABLE or protocol is None:
        return [DescribedMember(m.member_id, m.instance_id, m.client_id, m.client_host) for m in members]
    return [
        DescribedMember(m.member_id, m.instance_id, m.client_id, m.client_host, m.metadata(protocol), m.assignment)
        for m in members
    ]


async def delete_groups(context: CoordinatorContext, group_ids: Sequence[str]) -> dict[str, ErrorCode]:
    """Delete the groups that have no members, with their offsets; returns the error of each."""
    errors: dict[str, ErrorCode] = {}
    async for group_id in context.slices.each(dict.fromkeys(group_ids)):
        errors[group_id] = await _delete(context, group_id)
    return errors


async def _delete(context: CoordinatorContext, group_id: str) -> ErrorCode:
    """Delete one group and its offsets if it is empty; return the error code."""
    if error := context.availability(group_id, allows_empty=True):
        return error
    group = context.groups.get(group_id)
    if group is None or group.state is DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    await removal.remove_group(context, group)
    return ErrorCode.NONE
