"""The records of `__consumer_offsets`, byte for byte. Source: GroupMetadataManager.scala (3.9), its message schemas.

Each key and each value begins with its version. Keys of other versions are another coordinator's, and left alone.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.group import Group
from klamm.coordinator.member import Member
from klamm.coordinator.states import EMPTY, STABLE
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.wire.codec import WireMessage
from klamm.wire.errors import WireError
from klamm.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

_VERSION: Final = struct.Struct(">h")
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_WITH_EXPIRE_TIMESTAMP: Final = 1
_WITH_REBALANCE_TIMEOUT: Final = 1
_NEWEST_VALUE: Final = 4
_NO_TIMESTAMP: Final = -1


class UnknownRecord(KlammError):
    """A record of a version that no 3.9 coordinator writes, or that cannot be decoded."""


class OffsetKey(NamedTuple):
    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


# ---- keys


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the encoded key of the record that holds the group's committed offset of the partition."""
    return _with_version(OffsetCommitKey(group_id, partition.topic, partition.partition), _OFFSET_KEY)


def group_key(group_id: str) -> bytes:
    """Return the encoded key of the record that holds the group's metadata."""
    return _with_version(GroupMetadataKey(group_id), _GROUP_KEY)


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Decode a record's key, of an offset or a group; None for a version of another kind. Raises UnknownRecord."""
    version = _version_of(key)
    try:
        if 0 <= version <= _OFFSET_KEY:
            offset = OffsetCommitKey.decode(key, version, _VERSION.size)
            return OffsetKey(offset.group, TopicPartition(offset.topic, offset.partition))
        if version == _GROUP_KEY:
            return GroupKey(GroupMetadataKey.decode(key, version, _VERSION.size).group)
    except WireError as error:
        raise UnknownRecord(
            f"a key with the record version {version} in __consumer_offsets cannot be decoded: {error}"
        ) from error
    return None


# ---- offsets


def offset_value(offset: Offset, version: int) -> bytes:
    """Encode the value of an offset record in this version.

    An offset with an expire time of its own is encoded in the only version that has one.
    """
    if offset.expire_timestamp is not None:
        version = _WITH_EXPIRE_TIMESTAMP
    expire = _NO_TIMESTAMP if offset.expire_timestamp is None else offset.expire_timestamp
    value = OffsetCommitValue(offset.offset, offset.leader_epoch, offset.metadata, offset.commit_timestamp, expire)
    return _with_version(value, version)


def read_offset_value(value: bytes) -> Offset:
    """Decode the value of an offset record. Raises UnknownRecord for an unknown version."""
    version = _version_of(value)
    try:
        read = OffsetCommitValue.decode(value, version, _VERSION.size)
    except WireError as error:
        raise UnknownRecord(
            f"a committed offset with the record version {version} in __consumer_offsets cannot be decoded: {error}"
        ) from error
    expire = None if read.expire_timestamp == _NO_TIMESTAMP else read.expire_timestamp
    return Offset(read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, expire)


# ---- groups


def group_value(group: Group, assignments: Mapping[str, bytes], version: int) -> bytes:
    """Encode the group's record in this version, with an assignment for each member."""
    since = group.state_since_ms
    value = GroupMetadataValue(
        group.protocol_type or "",
        group.generation,
        group.protocol_name,
        group.leader_id,
        _NO_TIMESTAMP if since is None else since,
        [_member_value(group, member, assignments[member.member_id]) for member in group.members.values()],
    )
    return _with_version(value, version)


def _member_value(group: Group, member: Member, assignment: bytes) -> MemberMetadata:
    """Return the member as it is stored in the group's metadata record."""
    protocol = group.protocol_name
    assert protocol is not None, f"group {group.group_id} has members and no protocol"
    return MemberMetadata(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.metadata(protocol),
        assignment,
    )


def read_group_value(group_id: str, value: bytes) -> Group:
    """Decode a group's record: the group is stable, or empty where it has no members. Raises UnknownRecord."""
    version = _version_of(value)
    try:
        read = GroupMetadataValue.decode(value, version, _VERSION.size)
    except WireError as error:
        raise UnknownRecord(
            f"a group with the record version {version} in __consumer_offsets cannot be decoded: {error}"
        ) from error
    since = None if read.current_state_timestamp == _NO_TIMESTAMP else read.current_state_timestamp
    group = Group(group_id, since)
    group.generation = read.generation
    group.protocol_type = read.protocol_type or None
    group.protocol_name = read.protocol
    for stored in read.members:
        group.add(_read_member(read, stored, version))
    group.leader_id = read.leader
    if group.members:
        group.state = STABLE
    assert group.state in (EMPTY, STABLE)
    group.read_subscriptions(subscribed_topics)
    return group


def _read_member(group: GroupMetadataValue, stored: MemberMetadata, version: int) -> Member:
    """Return the member that a group's metadata record of this version holds."""
    has_rebalance_timeout = version >= _WITH_REBALANCE_TIMEOUT
    return Member(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.rebalance_timeout if has_rebalance_timeout else stored.session_timeout,
        stored.session_timeout,
        group.protocol_type,
        ((group.protocol or "", stored.subscription),),
        stored.assignment,
    )


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members' subscriptions; None where one of them cannot be decoded.

    Some clients put other metadata there.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            if _version_of(subscription) < 0:
                return None
            topics.update(ConsumerProtocolSubscription.decode(subscription, 0, _VERSION.size).topics)
        except (UnknownRecord, WireError):
            return None
    return frozenset(topics)


def read_assignment(assignment: bytes) -> dict[str, Sequence[int]]:
    """The partition numbers by topic that a consumer's assignment names; empty where it cannot be read."""
    try:
        read = ConsumerProtocolAssignment.decode(assignment, 0, _VERSION.size)
    except WireError:
        return {}
    return {t.topic: t.partitions for t in read.assigned_partitions}


def _with_version(record: WireMessage, version: int) -> bytes:
    """Return the record encoded in this version, after two bytes with the version."""
    return _VERSION.pack(version) + record.encode(version)


def _version_of(record: bytes) -> int:
    """Return the version that the first two bytes name. Raises UnknownRecord where there are fewer."""
    if len(record) < _VERSION.size:
        raise UnknownRecord(f"a key or value of {len(record)} bytes in __consumer_offsets is too short for its version")
    version: int = _VERSION.unpack_from(record)[0]
    return version
