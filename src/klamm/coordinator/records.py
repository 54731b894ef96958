"""The records of `__consumer_offsets`, byte for byte. Source: GroupMetadataManager.scala (3.9), its message schemas.

Each key and each value begins with its version. Keys of other versions are another coordinator's, and left alone.
"""

import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.group import Group
from klamm.coordinator.member import Member
from klamm.coordinator.states import EMPTY, STABLE
from klamm.coordinator.versioned_records import (
    UnknownRecord,
    decode_record,
    decode_record_in_steps,
    encode_record,
    encode_record_in_steps,
    result_of,
    version_of,
)
from klamm.model.ids import TopicPartition, shared_partition
from klamm.runtime.time_slices import PIECE
from klamm.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

_KEY: Final = "a key in __consumer_offsets"
_OFFSET: Final = "a committed offset in __consumer_offsets"
_GROUP: Final = "a group in __consumer_offsets"
_SUBSCRIPTION: Final = "a subscription"
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_WITH_EXPIRE_TIMESTAMP: Final = 1
_WITH_REBALANCE_TIMEOUT: Final = 1
_NEWEST_VALUE: Final = 4
_NO_TIMESTAMP: Final = -1
_PARTITION: Final = struct.Struct(">i")
_USUAL_VALUE: Final = struct.Struct(">hqihq")
"""An offset as most clients commit it: version 3, offset, leader epoch, no bytes of metadata, commit timestamp."""
_USUAL_VERSION: Final = 3
_MAX_KNOWN_KEYS: Final = 10_000


class OffsetKey(NamedTuple):
    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


# ---- keys


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the encoded key of the record that holds the group's committed offset of the partition."""
    return encode_record(OffsetCommitKey(group_id, partition.topic, partition.partition), _OFFSET_KEY)


def group_key(group_id: str) -> bytes:
    """Return the encoded key of the record that holds the group's metadata."""
    return encode_record(GroupMetadataKey(group_id), _GROUP_KEY)


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Decode a record's key, of an offset or a group; None for a version of another kind. Raises UnknownRecord."""
    version = version_of(key, _KEY)
    if 0 <= version <= _OFFSET_KEY:
        offset = decode_record(OffsetCommitKey, key, version, _KEY)
        return OffsetKey(offset.group, shared_partition(offset.topic, offset.partition))
    if version == _GROUP_KEY:
        return GroupKey(decode_record(GroupMetadataKey, key, version, _KEY).group)
    return None


class KeyReader:
    """Decodes many keys: a group commits again and again for the partitions of a few topics."""

    def __init__(self) -> None:
        self._offset_keys: dict[bytes, tuple[str, str]] = {}
        """Group and topic by the bytes before the partition number."""

    def read(self, key: bytes) -> OffsetKey | GroupKey | None:
        """Decode a key as `read_key` does. Raises UnknownRecord."""
        known = self._offset_keys.get(key[: -_PARTITION.size])
        if known is not None:
            group_id, topic = known
            (number,) = _PARTITION.unpack_from(key, len(key) - _PARTITION.size)
            return OffsetKey(group_id, shared_partition(topic, number))
        decoded = read_key(key)
        if isinstance(decoded, OffsetKey) and offset_key(*decoded) == key:
            if len(self._offset_keys) == _MAX_KNOWN_KEYS:
                self._offset_keys.clear()
            self._offset_keys[key[: -_PARTITION.size]] = decoded.group_id, decoded.partition.topic
        return decoded


# ---- offsets


def offset_value(offset: Offset, version: int) -> bytes:
    """Encode the value of an offset record in this version.

    An offset with an expire time of its own is encoded in the only version that has one.
    """
    if offset.expire_timestamp is not None:
        version = _WITH_EXPIRE_TIMESTAMP
    expire = _NO_TIMESTAMP if offset.expire_timestamp is None else offset.expire_timestamp
    value = OffsetCommitValue(offset.offset, offset.leader_epoch, offset.metadata, offset.commit_timestamp, expire)
    return encode_record(value, version)


def read_offset_value(value: bytes) -> Offset:
    """Decode the value of an offset record. Raises UnknownRecord for an unknown version."""
    if len(value) == _USUAL_VALUE.size:
        version, committed, leader_epoch, metadata_bytes, commit_timestamp = _USUAL_VALUE.unpack(value)
        if version == _USUAL_VERSION and metadata_bytes == 0:
            return Offset(committed, leader_epoch, "", commit_timestamp)
    read = decode_record(OffsetCommitValue, value, version_of(value, _OFFSET), _OFFSET)
    expire = None if read.expire_timestamp == _NO_TIMESTAMP else read.expire_timestamp
    return Offset(read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, expire)


# ---- groups


def group_value(group: Group, assignments: Mapping[str, bytes], version: int) -> bytes:
    """Encode the group's record in this version, with an assignment for each member."""
    return result_of(group_value_in_steps(group, assignments, version))


def group_value_in_steps(group: Group, assignments: Mapping[str, bytes], version: int) -> Generator[None, None, bytes]:
    """Encode as `group_value` does, and pause after each piece of a large group.

    The caller gives up where another rebalance began during a pause. A static member that is replaced meanwhile is
    encoded under the id that it had before.
    """
    since = group.state_since_ms
    value = GroupMetadataValue(
        group.protocol_type or "",
        group.generation,
        group.protocol_name,
        group.leader_id,
        _NO_TIMESTAMP if since is None else since,
        [],
    )
    members = list(group.members.items())
    for start in range(0, len(members), PIECE):
        if start:
            yield
        piece = members[start : start + PIECE]
        value.members.extend(_member_value(group, name, member, assignments[name]) for name, member in piece)
    return (yield from encode_record_in_steps(value, version))


def _member_value(group: Group, member_id: str, member: Member, assignment: bytes) -> MemberMetadata:
    """Return the member as it is stored in the group's metadata record."""
    protocol = group.protocol_name
    assert protocol is not None, f"group {group.group_id} has members and no protocol"
    return MemberMetadata(
        member_id,
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
    return result_of(read_group_value_in_steps(group_id, value))


def read_group_value_in_steps(group_id: str, value: bytes) -> Generator[None, None, Group]:
    """Decode as `read_group_value` does, and pause after each piece of a large group. Raises UnknownRecord."""
    version = version_of(value, _GROUP)
    read = yield from decode_record_in_steps(GroupMetadataValue, value, version, _GROUP)
    since = None if read.current_state_timestamp == _NO_TIMESTAMP else read.current_state_timestamp
    group = Group(group_id, since)
    group.generation = read.generation
    group.protocol_type = read.protocol_type or None
    group.protocol_name = read.protocol
    for number, stored in enumerate(read.members, start=1):
        group.add(_read_member(read, stored, version))
        if number % PIECE == 0:
            yield
    group.leader_id = read.leader
    if group.members:
        group.state = STABLE
    assert group.state in (EMPTY, STABLE)
    for number, _ in enumerate(group.read_subscriptions(subscribed_topics), start=1):
        if number % PIECE == 0:
            yield
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


def subscribed_topics(subscription: bytes) -> Sequence[str] | None:
    """The topics of a member's subscription; None where it cannot be decoded: some clients put other metadata there."""
    try:
        if version_of(subscription, _SUBSCRIPTION) < 0:
            return None
        return decode_record(ConsumerProtocolSubscription, subscription, 0, _SUBSCRIPTION).topics
    except UnknownRecord:
        return None


def read_assignment(assignment: bytes) -> dict[str, Sequence[int]]:
    """The partition numbers by topic that a consumer's assignment names; empty where it cannot be read."""
    try:
        read = decode_record(ConsumerProtocolAssignment, assignment, 0, "an assignment")
    except UnknownRecord:
        return {}
    return {t.topic: t.partitions for t in read.assigned_partitions}
