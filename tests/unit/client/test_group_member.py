"""A consumer group's member: joining, assigning as leader, and what it does after each error."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.unit.client.test_routing import ONE, TWO, Brokers

from klamm.client.assignors import assign_cooperatively, assign_in_turns, assign_ranges
from klamm.client.backoff import Backoff
from klamm.client.errors import ConnectionLost, RequestRefused, Unreachable
from klamm.client.group_member import (
    GroupMember,
    Heartbeat,
    MemberSettings,
    MembershipLost,
    assigned_partitions,
    encoded_assignment,
)
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.partitioners import murmur2
from klamm.client.steps import Steps
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.wire.messages import (
    ConsumerProtocolSubscription,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OwnedPartitions,
    SyncGroupRequest,
    SyncGroupResponse,
)

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
METADATA = b"\x00\x01" + ConsumerProtocolSubscription(topics=("orders",)).encode(1)


class Coordinators:
    """A coordinator that answers JoinGroup and others with the scripted errors first."""

    def __init__(self, **errors: list[int]) -> None:
        self.errors = errors
        self.at = ONE
        self.partitions = 3
        self.assigned: Mapping[str, tuple[TopicPartition, ...]] = {}
        self.joined: list[str] = []
        self.left: list[str] = []
        self.others: list[JoinGroupResponseMember] = []
        self.protocol = "range"
        self.skips_assignment = False
        self.on_join: Callable[[], None] = lambda: None

    def answer(self, address: Address, message: Any) -> Any:
        match message:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(coordinators=[Coordinator("g", 1, *self.at, 0, None)])
            case MetadataRequest():
                partitions = [MetadataResponsePartition(partition_index=n) for n in range(self.partitions)]
                return MetadataResponse(
                    brokers=[MetadataResponseBroker(1, *ONE)],
                    topics=[MetadataResponseTopic(name="orders", partitions=partitions)],
                )
        if address != self.at:
            raise ConnectionLost(f"{address} is gone")
        code = self._error(type(message).__name__.removesuffix("Request"))
        match message:
            case JoinGroupRequest():
                self.joined.append(message.member_id)
                self.on_join()
                me = message.member_id or "m1"
                if code:
                    return JoinGroupResponse(error_code=code, member_id=me)
                members = [JoinGroupResponseMember(me, None, METADATA), *self.others]
                return JoinGroupResponse(
                    generation_id=5,
                    protocol_name=self.protocol,
                    leader=me,
                    skip_assignment=self.skips_assignment,
                    member_id=me,
                    members=members,
                )
            case SyncGroupRequest():
                self.assigned = {a.member_id: assigned_partitions(a.assignment) for a in message.assignments}
                mine = self.assigned.get(message.member_id, ())
                return SyncGroupResponse(error_code=code, assignment=encoded_assignment(mine))
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=code)
            case OffsetCommitRequest():
                partition = OffsetCommitResponsePartition(0, code)
                return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("orders", [partition])])
            case LeaveGroupRequest():
                self.left += [m.member_id for m in message.members]
                return LeaveGroupResponse(error_code=code)
        raise AssertionError(message)

    def _error(self, name: str) -> int:
        waiting = self.errors.get(name, [])
        return waiting.pop(0) if waiting else 0


class Room:
    def __init__(self, **errors: list[int]) -> None:
        self.coordinators = Coordinators(**errors)
        self.brokers = Brokers(self.coordinators.answer)
        self.member = GroupMember(self.brokers.cluster, MemberSettings("g", ("orders",)))

    def run(self, steps: Steps[Any]) -> Any:
        return self.brokers.run(steps)

    def backoff(self) -> Backoff:
        return Backoff(lambda: self.brokers.now_s, 10.0)

    def join(self) -> tuple[TopicPartition, ...]:
        found: tuple[TopicPartition, ...] = self.run(self.member.join(self.backoff()))
        return found


def test_a_group_member_without_an_id_joins_again_with_the_id_from_the_coordinator() -> None:
    room = Room(JoinGroup=[ErrorCode.MEMBER_ID_REQUIRED])
    assert room.join() == (P0, P1, P2)
    assert room.coordinators.joined == ["", "m1"]
    assert room.member.membership[:2] == (5, "m1")


def test_the_group_leader_orders_static_members_before_dynamic_members_in_assignments() -> None:
    room = Room()
    room.coordinators.others = [
        JoinGroupResponseMember("a0", None, METADATA), JoinGroupResponseMember("z9", "static", METADATA)
    ]  # fmt: skip
    assert room.join() == (P2,)
    assert room.coordinators.assigned == {"z9": (P0,), "a0": (P1,), "m1": (P2,)}


def owning(version: int, generation: int, *numbers: int) -> bytes:
    """The metadata of a cooperative member that reads these partitions."""
    message = ConsumerProtocolSubscription(
        topics=("orders",), owned_partitions=[OwnedPartitions("orders", numbers)], generation_id=generation
    )
    return version.to_bytes(2, "big") + message.encode(version)


def test_the_leader_of_a_cooperative_group_takes_no_partition_that_another_member_still_reads() -> None:
    room = Room()
    room.coordinators.protocol = "cooperative-sticky"
    room.coordinators.others = [JoinGroupResponseMember("a0", None, owning(1, -1, 0, 1, 2))]
    assert room.join() == ()
    assert room.coordinators.assigned == {"a0": (P1, P2), "m1": ()}

    room.coordinators.others = [JoinGroupResponseMember("a0", None, owning(1, -1, 1, 2))]
    assert room.join() == (P0,)
    assert room.coordinators.assigned == {"a0": (P1, P2), "m1": (P0,)}


def test_of_two_members_that_claim_a_partition_the_one_of_the_later_generation_owns_it() -> None:
    room = Room()
    room.coordinators.protocol = "cooperative-sticky"
    room.coordinators.others = [
        JoinGroupResponseMember("a0", None, owning(3, 4, 0, 1)), JoinGroupResponseMember("b0", None, owning(2, 3, 1, 2))
    ]  # fmt: skip
    assert room.join() == ()
    assert room.coordinators.assigned == {"a0": (P1,), "b0": (P2,), "m1": ()}


def test_a_subscription_that_names_version_1_and_ends_after_version_0_is_read() -> None:
    room = Room()
    short = b"\x00\x01" + ConsumerProtocolSubscription(topics=("orders",)).encode(0)
    room.coordinators.others = [JoinGroupResponseMember("a0", None, short)]
    assert room.join() == (P2,)
    assert room.coordinators.assigned == {"a0": (P0, P1), "m1": (P2,)}


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x01\xff\xff", b"\xff\xff\x00\x00\x00\x01"])
def test_a_subscription_that_cannot_be_read_names_the_member(metadata: bytes) -> None:
    room = Room()
    room.coordinators.others = [JoinGroupResponseMember("a0", None, metadata)]
    with pytest.raises(KlammError, match="Cannot read the subscription of member a0"):
        room.join()


AGAIN = {
    "unknown member": ({"JoinGroup": [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID]}, ["", "m1", ""]),
    "rebalance in JoinGroup": ({"JoinGroup": [ErrorCode.REBALANCE_IN_PROGRESS]}, ["", ""]),
    "loading": ({"JoinGroup": [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]}, ["", ""]),
    "moved": ({"JoinGroup": [ErrorCode.NOT_COORDINATOR]}, ["", ""]),
    "rebalance in SyncGroup": ({"SyncGroup": [ErrorCode.REBALANCE_IN_PROGRESS]}, ["", "m1"]),
    "unknown in SyncGroup": ({"SyncGroup": [ErrorCode.UNKNOWN_MEMBER_ID]}, ["", ""]),
    "old generation in SyncGroup": ({"SyncGroup": [ErrorCode.ILLEGAL_GENERATION]}, ["", "m1"]),
}


@pytest.mark.parametrize(("errors", "joined"), AGAIN.values(), ids=AGAIN)
def test_a_group_member_joins_again_after_a_retriable_join_or_sync_error(
    errors: dict[str, list[int]], joined: list[str]
) -> None:
    room = Room(**errors)
    assert room.join() == (P0, P1, P2)
    assert room.coordinators.joined == joined
    assert room.brokers.now_s > 0  # it waited


@pytest.mark.parametrize("code", [ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.FENCED_INSTANCE_ID,
                                  ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED])  # fmt: skip
def test_a_group_member_fails_with_the_error_name_after_a_fatal_join_or_sync_error(code: ErrorCode) -> None:
    with pytest.raises(RequestRefused, match=code.name):
        Room(JoinGroup=[code]).join()
    with pytest.raises(RequestRefused, match=code.name):
        Room(SyncGroup=[code]).join()


def test_a_group_member_looks_its_coordinator_up_again_after_not_coordinator() -> None:
    room = Room()
    room.join()
    room.coordinators.at = TWO
    assert room.run(room.member.heartbeat(room.backoff())) is Heartbeat.STABLE
    room.coordinators.at = Address("nowhere", 1)
    room.brokers.on_ask = _lost
    with pytest.raises(Unreachable, match="the coordinator of the group g does not answer"):
        room.run(room.member.heartbeat(room.backoff()))


def _lost(address: Address, _message: Any) -> Any:
    raise ConnectionLost(f"{address} is gone")


def test_a_group_members_heartbeat_reports_rebalances_lost_membership_and_refusals() -> None:
    room = Room(Heartbeat=[ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND])
    room.join()
    assert room.run(room.member.heartbeat(room.backoff())) is Heartbeat.REBALANCE
    with pytest.raises(MembershipLost, match=r"UNKNOWN_MEMBER_ID\): its session expired"):
        room.run(room.member.heartbeat(room.backoff()))
    assert room.member.membership.member_id == ""
    assert room.member.assigned == ()
    with pytest.raises(RequestRefused):
        room.run(room.member.heartbeat(room.backoff()))


def test_a_group_member_retries_a_timed_out_commit_and_reports_lost_membership() -> None:
    codes = [
        ErrorCode.REQUEST_TIMED_OUT, 0, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]  # fmt: skip
    room = Room(OffsetCommit=list(codes))
    room.join()
    room.run(room.member.commit({P0: OffsetAndEpoch(7, 3)}, room.backoff()))
    with pytest.raises(MembershipLost, match="a rebalance is in progress"):
        room.run(room.member.commit({P0: OffsetAndEpoch(7, 3)}, room.backoff()))
    assert room.member.membership.member_id == "m1"  # it joins again as itself
    with pytest.raises(MembershipLost, match="ILLEGAL_GENERATION"):
        room.run(room.member.commit({P0: OffsetAndEpoch(7, 3)}, room.backoff()))
    assert room.member.membership[:2] == (-1, "m1")
    with pytest.raises(RequestRefused, match="OFFSET_METADATA_TOO_LARGE"):
        room.run(room.member.commit({P0: OffsetAndEpoch(7, 3)}, room.backoff()))


def test_leaving_a_group_sends_leave_group_for_dynamic_members_but_not_for_static_members() -> None:
    dynamic, static = Room(), Room()
    static.member = GroupMember(static.brokers.cluster, MemberSettings("g", ("orders",), "one"))
    for room in (dynamic, static):
        room.join()
        room.run(room.member.leave(room.backoff()))
    assert (dynamic.coordinators.left, static.coordinators.left) == (["m1"], [])


def test_only_the_group_leader_rejoins_when_a_topic_gets_new_partitions() -> None:
    room = Room()
    assert not room.run(room.member.has_partition_change(room.backoff()))
    room.join()
    assert not room.run(room.member.has_partition_change(room.backoff()))
    room.coordinators.partitions = 4
    assert room.run(room.member.has_partition_change(room.backoff()))
    room.member.is_leader = False
    assert not room.run(room.member.has_partition_change(room.backoff()))


def test_a_static_leader_that_comes_back_assigns_nothing_and_still_watches_the_topics() -> None:
    room = Room()
    room.coordinators.skips_assignment = True
    room.join()
    assert room.coordinators.assigned == {}
    assert not room.run(room.member.has_partition_change(room.backoff()))
    room.coordinators.partitions = 4
    assert room.run(room.member.has_partition_change(room.backoff()))


def test_the_group_leader_rejoins_when_a_topic_of_the_group_is_created() -> None:
    room = Room()
    room.coordinators.partitions = 0
    room.join()
    assert not room.run(room.member.has_partition_change(room.backoff()))
    room.coordinators.partitions = 1
    assert room.run(room.member.has_partition_change(room.backoff()))


def test_a_join_that_takes_longer_than_the_timeout_is_followed_by_another_one_after_a_rebalance() -> None:
    room = Room(SyncGroup=[ErrorCode.REBALANCE_IN_PROGRESS])

    def wait_for_others() -> None:
        room.brokers.now_s += 100

    room.coordinators.on_join = wait_for_others

    assert room.join() == (P0, P1, P2)
    assert room.coordinators.joined == ["", "m1"]


# ---- assignors: the examples of RangeAssignor.java and RoundRobinAssignor.java


def tp(*names: str) -> list[TopicPartition]:
    return [TopicPartition(name[:2], int(name[3:])) for name in names]


def test_the_range_assignor_distributes_partitions_like_kafkas() -> None:
    both = {"c0": ("t0", "t1"), "c1": ("t0", "t1")}
    assert assign_ranges(both, {"t0": 3, "t1": 3}, {}) == {
        "c0": tp("t0p0", "t0p1", "t1p0", "t1p1"), "c1": tp("t0p2", "t1p2")
    }  # fmt: skip
    assert assign_ranges({"c0": ("t0",), "c1": ("t1",), "c2": ("t1",)}, {"t0": 1, "t1": 1}, {}) == {
        "c0": tp("t0p0"), "c1": tp("t1p0"), "c2": []
    }  # fmt: skip
    assert assign_ranges(both, {"t2": 1}, {}) == {"c0": [], "c1": []}


def test_the_round_robin_assignor_distributes_partitions_like_kafkas() -> None:
    both = {"c0": ("t0", "t1"), "c1": ("t0", "t1")}
    assert assign_in_turns(both, {"t0": 3, "t1": 3}, {}) == {
        "c0": tp("t0p0", "t0p2", "t1p1"), "c1": tp("t0p1", "t1p0", "t1p2")
    }  # fmt: skip
    different = {"c0": ("t0",), "c1": ("t0", "t1"), "c2": ("t0", "t1", "t2")}
    assert assign_in_turns(different, {"t0": 1, "t1": 2, "t2": 3}, {}) == {
        "c0": tp("t0p0"), "c1": tp("t1p0"), "c2": tp("t1p1", "t2p0", "t2p1", "t2p2")
    }  # fmt: skip


TWO_TOPICS = ("t0", "t1")
STICKY = {
    "none has an owner": ({"c0": TWO_TOPICS, "c1": TWO_TOPICS}, {}, {"c0": "t0p0 t0p2 t1p1", "c1": "t0p1 t1p0 t1p2"}),
    "all stay": (
        {"c0": TWO_TOPICS, "c1": TWO_TOPICS},
        {"c0": "t0p1 t1p0 t1p2", "c1": "t0p0 t0p2 t1p1"},
        {"c0": "t0p1 t1p0 t1p2", "c1": "t0p0 t0p2 t1p1"},
    ),
    "only those of a member that is gone move": (
        {"c0": TWO_TOPICS, "c1": TWO_TOPICS},
        {"c0": "t0p0 t0p1", "c1": "t0p2 t1p0", "dead": "t1p1 t1p2"},
        {"c0": "t0p0 t0p1 t1p1", "c1": "t0p2 t1p0 t1p2"},
    ),
    "those that a new member will get are taken away first": (
        {"c0": TWO_TOPICS, "c1": TWO_TOPICS, "new": TWO_TOPICS},
        {"c0": "t0p0 t0p1 t0p2", "c1": "t1p0 t1p1 t1p2"},
        {"c0": "t0p1 t0p2", "c1": "t1p1 t1p2", "new": ""},
    ),
    "a topic that its owner does not subscribe to any more waits for it": (
        {"c0": ("t0",), "c1": TWO_TOPICS},
        {"c0": "t0p0 t0p1 t0p2 t1p0", "c1": "t1p1 t1p2"},
        {"c0": "t0p0 t0p1 t0p2", "c1": "t1p1 t1p2"},
    ),
    "nobody subscribes to t1": ({"c0": ("t0",), "c1": ("t0",)}, {"c1": "t0p1"}, {"c0": "t0p0 t0p2", "c1": "t0p1"}),
    "a partition that does not exist": ({"c0": ("t0",)}, {"c0": "t0p0 t0p7 t9p0"}, {"c0": "t0p0 t0p1 t0p2"}),
}  # fmt: skip


@pytest.mark.parametrize(("subscriptions", "owned", "assigned"), STICKY.values(), ids=STICKY)
def test_the_cooperative_sticky_assignor_moves_as_few_partitions_as_a_balance_needs(
    subscriptions: dict[str, tuple[str, ...]], owned: dict[str, str], assigned: dict[str, str]
) -> None:
    owners = {p: member for member, names in owned.items() for p in tp(*names.split())}

    found = assign_cooperatively(subscriptions, {"t0": 3, "t1": 3}, owners)

    assert found == {member: tp(*names.split()) for member, names in assigned.items()}


HASHES = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107, b"": 275646681}


@pytest.mark.parametrize(("key", "value"), HASHES.items(), ids=map(str, HASHES))
def test_the_murmur2_hash_of_a_key_equals_kafkas(key: bytes, value: int) -> None:
    assert murmur2(key) == value & 0xFFFF_FFFF
