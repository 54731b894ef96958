"""The records of `__consumer_offsets`, byte for byte as Apache Kafka 3.9 writes them."""

import pytest
from msgspec.structs import replace

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.group import Group
from klamm.coordinator.member import Member
from klamm.coordinator.records import (
    GroupKey,
    KeyReader,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
    subscribed_topics,
)
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.states import COMPLETING_REBALANCE, EMPTY, STABLE
from klamm.coordinator.versioned_records import UnknownRecord
from klamm.model.ids import TopicPartition
from klamm.wire.messages import ConsumerProtocolSubscription, OwnedPartitions

P3 = TopicPartition("t", 3)


def test_keys_of_consumer_offsets_records_are_encoded_as_in_kafka() -> None:
    assert offset_key("g", P3) == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert group_key("g") == bytes.fromhex("0002 0001 67")
    assert read_key(offset_key("g", P3)) == OffsetKey("g", P3)
    assert read_key(bytes.fromhex("0000 0001 67 0001 74 00000003")) == OffsetKey("g", P3)
    assert read_key(group_key("g")) == GroupKey("g")
    assert read_key(bytes.fromhex("0003 0001 67")) is None
    assert read_key(bytes.fromhex("ffff 0001 67")) is None


@pytest.mark.parametrize("key", ["", "00", "0001", "0001 0005 67", "0002 ffff"])
def test_a_malformed_key_of_a_consumer_offsets_record_is_refused(key: str) -> None:
    with pytest.raises(UnknownRecord):
        read_key(bytes.fromhex(key))


def test_a_reader_of_many_keys_decodes_each_as_a_single_one() -> None:
    reader = KeyReader()
    offset_keys = [
        offset_key(g, TopicPartition(t, n)) for t in ("t", "tt") for g in ("g", "gt") for n in (3, 1, 1 << 30)
    ]
    others = [
        group_key("g"),
        b"\x00\x03\x00\x01g",
        b"\x00\x00" + offset_keys[0][2:],
        offset_keys[0] + b"\x00\x00\x00\x07",
    ]
    keys = [*offset_keys, *others]
    assert [reader.read(key) for key in [*keys, *keys]] == [read_key(key) for key in keys] * 2
    with pytest.raises(UnknownRecord):
        reader.read(offset_keys[0][:-1])


OFFSET = Offset(42, 7, "m", 1_000)
VALUES = {
    0: "0000 000000000000002a 0001 6d 00000000000003e8",
    1: "0001 000000000000002a 0001 6d 00000000000003e8 ffffffffffffffff",
    2: "0002 000000000000002a 0001 6d 00000000000003e8",
    3: "0003 000000000000002a 00000007 0001 6d 00000000000003e8",
    4: "0004 000000000000002a 00000007 02 6d 00000000000003e8 00",
}


@pytest.mark.parametrize("version", VALUES)
def test_the_offset_commit_value_of_each_version_is_encoded_as_in_kafka(version: int) -> None:
    assert offset_value(OFFSET, version) == bytes.fromhex(VALUES[version])
    read = read_offset_value(bytes.fromhex(VALUES[version]))
    assert read == (OFFSET if version >= 3 else replace(OFFSET, leader_epoch=-1))


def test_an_offset_with_its_own_expiry_is_stored_in_the_version_with_an_expiry_field() -> None:
    expiring = replace(OFFSET, expire_timestamp=2_000)
    value = offset_value(expiring, 3)
    assert value == bytes.fromhex("0001 000000000000002a 0001 6d 00000000000003e8 00000000000007d0")
    assert read_offset_value(value) == replace(expiring, leader_epoch=-1)


@pytest.mark.parametrize(("version", "metadata"), [(0, "mm\0\0"), (2, "mm\0\0"), (3, ""), (4, "")])
def test_an_offset_commit_value_of_24_bytes_is_decoded_as_its_version_says(version: int, metadata: str) -> None:
    committed = Offset(-2, 7 if version >= 3 else -1, metadata, 1 << 40)

    value = offset_value(committed, version)

    assert len(value) == 24, "the size of most values, which are of version 3 and without metadata"
    assert read_offset_value(value) == committed


@pytest.mark.parametrize("value", ["", "0005 00", "0003 0000", "0003 000000000000002a 00000007 0001 00000000000003e8"])
def test_a_malformed_offset_commit_value_is_refused(value: str) -> None:
    with pytest.raises(UnknownRecord):
        read_offset_value(bytes.fromhex(value))


def group() -> Group:
    made = Group("g", 1_000)
    made.add(Member("m", "i", "c", "/1", 60_000, 10_000, "consumer", (("range", b"\x01\x02"),)))
    made.generation, made.protocol_name, made.state = 3, "range", COMPLETING_REBALANCE
    return made


HEAD = "0008 636f6e73756d6572 00000003 0005 72616e6765 0001 6d"
GROUP_VALUES = {
    0: f"0000 {HEAD} 00000001 0001 6d 0001 63 0002 2f31 00002710 00000002 0102 00000001 61",
    1: f"0001 {HEAD} 00000001 0001 6d 0001 63 0002 2f31 0000ea60 00002710 00000002 0102 00000001 61",
    2: f"0002 {HEAD} 00000000000003e8 00000001 0001 6d 0001 63 0002 2f31 0000ea60 00002710 00000002 0102 00000001 61",
    3: f"0003 {HEAD} 00000000000003e8 00000001 0001 6d 0001 69 0001 63 0002 2f31 0000ea60 00002710 00000002 0102"
    " 00000001 61",
}


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_the_group_metadata_value_of_each_version_is_encoded_as_in_kafka(version: int) -> None:
    value = bytes.fromhex(GROUP_VALUES[version])
    assert group_value(group(), {"m": b"a"}, version) == value
    read = read_group_value("g", value)
    [member] = read.members.values()
    assert (read.state, read.generation, read.leader_id, read.protocol_name) == (STABLE, 3, "m", "range")
    assert read.state_since_ms == (1_000 if version >= 2 else None)
    assert member.rebalance_timeout_ms == (60_000 if version else 10_000)
    assert member.instance_id == ("i" if version >= 3 else None)
    assert (member.assignment, member.metadata("range"), member.protocol_type) == (b"a", b"\x01\x02", "consumer")


def test_a_flexible_group_metadata_value_of_a_newer_broker_is_decoded() -> None:
    value = group_value(group(), {"m": b"a"}, 4)
    assert group_value(read_group_value("g", value), {"m": b"a"}, 3) == bytes.fromhex(GROUP_VALUES[3])


def test_a_group_without_members_is_stored_with_null_protocol_and_leader() -> None:
    empty = Group("g", 1_000)
    value = group_value(empty, {}, 3)
    assert value == bytes.fromhex("0003 0000 00000000 ffff ffff 00000000000003e8 00000000")
    assert read_group_value("g", value).state is EMPTY
    assert read_group_value("g", value).protocol_type is None


@pytest.mark.parametrize("value", ["", "0005 00", "0003 0000"])
def test_a_malformed_group_metadata_value_is_refused(value: str) -> None:
    with pytest.raises(UnknownRecord):
        read_group_value("g", bytes.fromhex(value))


def subscription(version: int, *topics: str) -> bytes:
    made = ConsumerProtocolSubscription(topics=topics, owned_partitions=[OwnedPartitions("t", (1,))])
    return version.to_bytes(2) + made.encode(version)


def topics_of_group(subscriptions: list[bytes]) -> frozenset[str] | None:
    """The topics of a group of consumers with these subscriptions."""
    read = Group("g", 0, STABLE)
    for number, content in enumerate(subscriptions):
        read.add(Member(f"m{number}", None, "c", "h", 1, 1, "consumer", (("range", content),)))
    read.protocol_name = "range"
    list(read.read_subscriptions(subscribed_topics))
    return read.subscribed_topics


def test_a_groups_subscribed_topics_are_those_of_all_members_in_any_subscription_version() -> None:
    subscriptions = [subscription(version, "all", f"v{version}") for version in range(4)]
    assert topics_of_group(subscriptions) == frozenset({"all", "v0", "v1", "v2", "v3"})


@pytest.mark.parametrize("unreadable", [b"", b"\x00", b"\x00\x00", b"\x00\x00\x00\x00\x00\x09", b"\xff\xff\x00\x00"])
def test_a_member_subscription_of_unknown_format_makes_the_groups_topics_unknown(unreadable: bytes) -> None:
    assert topics_of_group([subscription(0, "t"), unreadable]) is None


def test_consumer_offsets_values_have_by_default_the_newest_version_without_tagged_fields() -> None:
    settings = GroupSettings()
    assert offset_value(OFFSET, settings.offset_value_version) == bytes.fromhex(VALUES[3])
    assert group_value(group(), {"m": b"a"}, settings.group_value_version) == bytes.fromhex(GROUP_VALUES[3])


def test_unknown_tagged_fields_of_a_consumer_offsets_record_are_skipped() -> None:
    tagged = "01 63 02 abcd"  # one field with tag 99 and two bytes
    assert read_offset_value(bytes.fromhex(VALUES[4].removesuffix("00") + tagged)) == OFFSET
    value = group_value(group(), {"m": b"a"}, 4)
    assert value[-2:] == b"\x00\x00"  # no tagged fields: of the member, of the group
    read = read_group_value("g", value[:-2] + bytes.fromhex(tagged) + bytes.fromhex(tagged))
    assert group_value(read, {"m": b"a"}, 4) == value
