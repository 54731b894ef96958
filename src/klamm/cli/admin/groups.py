"""Read groups: members, assignments, committed offsets and lag. Source: ConsumerGroupCommand.java (3.9)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import ask_every_broker, read_cluster
from klamm.cli.admin.refusals import Refusal
from klamm.client.committed_offsets import (
    committed_of,
    first_partition_error,
    numbers_by_topic,
    offset_commit_request,
    offset_fetch_request,
    partition_errors,
)
from klamm.client.errors import code_name
from klamm.client.group_member import assigned_partitions
from klamm.client.leaders import OffsetAndEpoch, offsets_of
from klamm.client.offsets import LATEST
from klamm.client.versions import Request
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

CONSUMER: Final = "consumer"
DEAD: Final = "Dead"
GROUP_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", DEAD, "Assigning", "Reconciling")
"""Of all types of groups in Kafka 3.9."""
GROUP_TYPES: Final = ("classic", "consumer")
INACTIVE: Final = ("Empty", DEAD)
"""States in which offsets may be reset: no member would continue from its own position."""
_FILTERS_STATES: Final = 4
_FILTERS_TYPES: Final = 5


class ListedGroup(NamedTuple):
    group: str
    protocol_type: str
    state: str
    coordinator: BrokerId


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """What it is assigned; empty where the assignment is not a consumer's."""


class Group(NamedTuple):
    name: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[Member, ...]

    @property
    def owners(self) -> dict[TopicPartition, Member]:
        """The group member to which each partition is assigned."""
        return {partition: member for member in self.members for partition in member.partitions}


class Lag(NamedTuple):
    """How far a group has read one partition."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    """None where the partition does not exist any more."""
    member: Member | None

    @property
    def lag(self) -> int | None:
        """The number of records between the committed offset and the log end; None where one of them is not known."""
        return None if self.committed is None or self.end is None else self.end - self.committed


# ---- groups


async def list_groups(
    admin: Admin, states: Sequence[str] = (), types: Sequence[str] = ()
) -> tuple[list[ListedGroup], list[Refusal]]:
    """The groups of all coordinators, sorted, and the errors of brokers that could not list theirs."""

    def request(version: int) -> ListGroupsRequest:
        """Build the ListGroups request for this version; versions without a filter of states return all groups."""
        if types and version < _FILTERS_TYPES:
            raise CannotAsk("the broker cannot filter groups by type. Omit --type, or upgrade the broker.")
        return ListGroupsRequest(
            states_filter=tuple(states) if version >= _FILTERS_STATES else (),
            types_filter=tuple(types) if version >= _FILTERS_TYPES else (),
        )

    answers, refused = await ask_every_broker(admin, ApiKey.LIST_GROUPS, request, "groups")
    found = [
        ListedGroup(g.group_id, g.protocol_type, g.group_state, broker)
        for broker, answer in answers.items()
        for g in answer.groups
    ]
    return sorted(found), refused


async def describe_group(admin: Admin, name: str) -> Group:
    """Describe a group: state, protocol, members. A group that does not exist has the state Dead. Raises CannotAsk."""
    request = Request(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=(name,)))
    answer = await admin.ask_coordinator(name, request, lambda a: a.groups[0].error_code)
    described = answer.groups[0]
    if described.error_code:
        raise CannotAsk(f"Cannot describe group {name}: {code_name(described.error_code)}. Check its name.")
    is_consumer = described.protocol_type == CONSUMER
    members = tuple(_member(member, is_consumer) for member in described.members)
    return Group(name, described.group_state, described.protocol_type, described.protocol_data, members)


def _member(described: DescribedGroupMember, is_consumer: bool) -> Member:
    """Return the member of a DescribeGroups response; only consumers have assigned partitions."""
    partitions = assigned_partitions(described.member_assignment) if is_consumer else ()
    return Member(
        described.member_id, described.group_instance_id, described.client_id, described.client_host, partitions
    )


async def delete_group(admin: Admin, name: str) -> Refusal | None:
    """Delete a group without members, and its offsets; returns the error, if any."""
    request = Request(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=(name,)))
    answer = await admin.ask_coordinator(name, request, lambda a: a.results[0].error_code)
    result: DeletableGroupResult = answer.results[0]
    return Refusal(f"group {name}", result.error_code, None) if result.error_code else None


# ---- offsets


async def read_offsets(
    admin: Admin, name: str, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """The committed offsets of these partitions, or of all (None) that have one. Raises CannotAsk."""
    request = offset_fetch_request(name, partitions)
    answer = await admin.ask_coordinator(name, request, lambda a: a.error_code)
    if answer.error_code:
        raise CannotAsk(f"Cannot read the offsets of group {name}: {code_name(answer.error_code)}. Check its name.")
    return offsets_of(committed_of(answer))


async def read_lag(admin: Admin, group: Group) -> list[Lag]:
    """Read committed offset and log end of every partition that the group has read or is assigned. Raises CannotAsk."""
    offsets = await read_offsets(admin, group.name)
    owners = group.owners
    partitions = sorted({*offsets, *owners})
    ends = await read_ends(admin, partitions, LATEST)
    return [Lag(p, offsets.get(p), ends.get(p), owners.get(p)) for p in partitions]


async def read_ends(admin: Admin, partitions: Collection[TopicPartition], time: int) -> dict[TopicPartition, int]:
    """Read the offsets of the partitions at a timestamp, EARLIEST or LATEST.

    Missing ones are left out. Raises CannotAsk.
    """
    names = sorted({partition.topic for partition in partitions})
    topics = (await read_cluster(admin, names)).topics if names else {}
    existing = [p for p in partitions if p.topic in topics and p.partition in topics[p.topic].partitions]
    return await admin.list_offsets(dict.fromkeys(existing, time)) if existing else {}


async def commit_offsets(admin: Admin, name: str, offsets: Mapping[TopicPartition, int]) -> list[Refusal]:
    """Commit offsets for a group without members; returns the errors by partition. Raises CannotAsk."""
    request = offset_commit_request(name, {p: OffsetAndEpoch(offset) for p, offset in offsets.items()})
    answer = await admin.ask_coordinator(name, request, first_partition_error)
    return _partition_refusals(name, answer)


async def delete_offsets(admin: Admin, name: str, partitions: Collection[TopicPartition]) -> list[Refusal]:
    """Delete committed offsets; returns the errors by partition, or of the group. Raises CannotAsk."""
    topics = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers])
        for topic, numbers in numbers_by_topic(partitions)
    ]
    request = Request(ApiKey.OFFSET_DELETE, OffsetDeleteRequest(name, topics))
    answer = await admin.ask_coordinator(name, request, lambda a: a.error_code)
    if answer.error_code:
        return [Refusal(f"group {name}", answer.error_code, None)]
    return _partition_refusals(name, answer)


def _partition_refusals(name: str, answer: Any) -> list[Refusal]:
    """Return a refusal for each partition of the response that has an error."""
    return [
        Refusal(subject=f"group {name}, {partition}", code=code, message=None)
        for partition, code in partition_errors(answer)
    ]
