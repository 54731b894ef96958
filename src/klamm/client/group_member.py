"""A member of a consumer group in the classic protocol: join, heartbeat, commit, leave, as steps for either driver.

The caller stops reading before it joins again, and sends heartbeats while it reads. Source: ConsumerCoordinator.java,
AbstractCoordinator.java (3.9). The member gives up its partitions before each rebalance, and can join the cooperative
ones of others, as Kafka's client does whose list of assignors is not entirely cooperative.
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from klamm.client.assignors import ASSIGNORS
from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata, partition_counts
from klamm.client.committed_offsets import (
    NO_MEMBERSHIP,
    Membership,
    committed_of,
    first_partition_error,
    numbers_by_topic,
    offset_commit_request,
    offset_fetch_request,
)
from klamm.client.errors import RequestRefused, RetriableError, retriable_or_raise
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.routing import CoordinatorRoute, CoordinatorType
from klamm.client.steps import Steps, Wait
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.errors import WireError
from klamm.wire.messages import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

CONSUMER: Final = "consumer"
_SUBSCRIPTION_VERSION: Final = 1
_NEWEST_SUBSCRIPTION: Final = 3
_ASSIGNMENT_VERSION: Final = 1
_VERSION: Final = struct.Struct(">h")
_NO_MEMBER_ID: Final = ""
_LEAVES_WITH_MEMBERS: Final = 3
_BEYOND_REBALANCE_S: Final = 5.0
"""How much longer than the rebalance timeout the answer to JoinGroup may take. Source: JOIN_GROUP_TIMEOUT_LAPSE."""


class MembershipLost(KlammError):
    """The member's generation is over: its partitions may be others' now. Join again."""

    def __init__(self, group_id: str, code: int) -> None:
        why = "a rebalance is in progress"
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            why = "its session expired, or a rebalance went on without it"
        super().__init__(f"group {group_id}: the generation of this member is over ({ErrorCode(code).name}): {why}")
        self.code = code


class Heartbeat(Enum):
    """What the coordinator answers to a heartbeat."""

    STABLE = auto()
    REBALANCE = auto()
    """Stop reading, commit, and join again."""


class MemberSettings(NamedTuple):
    group_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    """A static member's (KIP-345)."""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_s: float = 3.0


class GroupMember:
    """One member; `assigned` is what it may read in this generation, after `join`."""

    def __init__(self, cluster: ClusterMetadata, settings: MemberSettings) -> None:
        self.settings = settings
        self.assigned: tuple[TopicPartition, ...] = ()
        self.membership = Membership(instance_id=settings.instance_id)
        self.is_leader = False
        self._cluster = cluster
        self._coordinator = CoordinatorRoute(cluster, CoordinatorType.GROUP, settings.group_id)
        self._group_topics: Sequence[str] = ()
        """The topics of all members, once this one is the group's leader."""
        self._counts: dict[str, int] = {}
        """The number of partitions of those that existed when it became the leader."""

    # ---- joining

    def join(self, backoff: Backoff, reason: str = "") -> Steps[tuple[TopicPartition, ...]]:
        """Join the group or its next generation; return the partitions to read.

        Raises Unreachable, RequestRefused.
        """
        self.assigned = ()
        while True:
            joined = yield from self._join_once(backoff, reason)
            assignment = None if joined is None else (yield from self._sync(backoff, joined))
            if assignment is not None:
                self.assigned = tuple(sorted(assigned_partitions(assignment)))
                return self.assigned
            cause = RetriableError("a rebalance began again before this member had its assignment")
            yield Wait(backoff.next_wait_s(f"joining group {self.settings.group_id}", cause))

    def _join_once(self, backoff: Backoff, reason: str) -> Steps[JoinGroupResponse | None]:
        """Send JoinGroup, again with the given member id where one is required; None: start over."""
        while True:
            answer: JoinGroupResponse = yield from self._ask(self._join_request(reason), backoff)
            match answer.error_code:
                case ErrorCode.NONE:
                    backoff.restart()  # the answer may take as long as the rebalance
                    self.membership = self.membership._replace(
                        generation=answer.generation_id, member_id=answer.member_id
                    )
                    self.is_leader = answer.leader == answer.member_id
                    return answer
                case ErrorCode.MEMBER_ID_REQUIRED:
                    self.membership = self.membership._replace(member_id=answer.member_id)
                case _:
                    self._on_join_error(answer.error_code)
                    return None

    def _join_request(self, reason: str) -> Request:
        """JoinGroup with every assignor; the answer comes when the group's members have joined."""
        settings = self.settings
        metadata = _encoded_subscription(settings.topics)
        message = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.membership.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in ASSIGNORS],
            reason=reason or None,
        )
        return Request(ApiKey.JOIN_GROUP, message, oldest=5 if settings.instance_id else 0)

    def _on_join_error(self, code: int) -> None:
        """Prepare another JoinGroup after an error. Raises RequestRefused where none can help."""
        if code in _LOST:
            self._forget_membership(code)
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            retriable_or_raise(f"group {self.settings.group_id}", code)

    def _sync(self, backoff: Backoff, joined: JoinGroupResponse) -> Steps[bytes | None]:
        """Send SyncGroup, as leader with everyone's assignment; return this member's, None where it has to rejoin."""
        assignments: list[SyncGroupRequestAssignment] = []
        if self.is_leader:
            assignments = yield from self._assign(joined, backoff)
        message = SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.membership.generation,
            member_id=self.membership.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=CONSUMER,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = yield from self._ask(Request(ApiKey.SYNC_GROUP, message), backoff)
        if answer.error_code:
            self._on_join_error(answer.error_code)
            return None
        assignment: bytes = answer.assignment
        return assignment

    def _assign(self, joined: JoinGroupResponse, backoff: Backoff) -> Steps[list[SyncGroupRequestAssignment]]:
        """As leader of the group, decide which partitions each member reads.

        The decision stays empty where a static member comes back as leader: the assignment before it left is kept. It
        watches the topics in either case (KIP-814).
        """
        members = sorted(joined.members, key=_in_kafkas_order)
        subscriptions = {member.member_id: _subscription(member) for member in members}
        topics = {member: subscription.topics for member, subscription in subscriptions.items()}
        self._group_topics = sorted({t for names in topics.values() for t in names})
        self._counts = yield from self._partition_counts(self._group_topics, backoff)
        if joined.skip_assignment:
            return []
        decided = ASSIGNORS[joined.protocol_name or ""](topics, self._counts, _owners(subscriptions))
        return [SyncGroupRequestAssignment(m, encoded_assignment(found)) for m, found in decided.items()]

    def _partition_counts(self, topics: Sequence[str], backoff: Backoff) -> Steps[dict[str, int]]:
        """The number of partitions of each topic that exists."""
        while True:
            try:
                found = yield from self._cluster.refresh(topics)
            except RetriableError as error:
                yield Wait(backoff.next_wait_s("asking for metadata", error))
            else:
                return partition_counts(found)

    def has_partition_change(self, backoff: Backoff) -> Steps[bool]:
        """Whether topics have other partitions than the leader assigned, so that it should join again."""
        if not self.is_leader:
            return False
        return (yield from self._partition_counts(self._group_topics, backoff)) != self._counts

    # ---- while it is a member

    def heartbeat(self, backoff: Backoff) -> Steps[Heartbeat]:
        """Tell the coordinator that the member lives. Raises MembershipLost, Unreachable, RequestRefused."""
        generation, member_id, instance_id = self.membership
        message = HeartbeatRequest(self.settings.group_id, generation, member_id, instance_id)
        answer = yield from self._ask(Request(ApiKey.HEARTBEAT, message), backoff)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Heartbeat.REBALANCE
        self._check_membership(answer.error_code)
        return Heartbeat.STABLE

    def committed(
        self, partitions: Collection[TopicPartition], backoff: Backoff
    ) -> Steps[dict[TopicPartition, OffsetAndEpoch]]:
        """The group's committed offsets of these partitions. Raises Unreachable, RequestRefused."""
        return (yield from fetch_committed(self._coordinator, partitions, backoff))

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndEpoch], backoff: Backoff) -> Steps[None]:
        """Commit the next offsets to read. Raises MembershipLost, Unreachable, RequestRefused."""
        try:
            yield from commit(self._coordinator, offsets, backoff, self.membership)
        except MembershipLost as lost:
            if lost.code in _LOST:
                self._forget_membership(lost.code)
            raise

    def leave(self, backoff: Backoff, reason: str = "") -> Steps[None]:
        """Leave the group at once; a static member keeps its place. Raises Unreachable."""
        member_id, instance_id = self.membership.member_id, self.membership.instance_id
        if member_id == _NO_MEMBER_ID or instance_id is not None:
            return

        def build(version: int) -> LeaveGroupRequest:
            """Build the LeaveGroup request for this version."""
            if version < _LEAVES_WITH_MEMBERS:
                return LeaveGroupRequest(self.settings.group_id, member_id)
            identity = MemberIdentity(member_id, None, reason or None)
            return LeaveGroupRequest(self.settings.group_id, members=[identity])

        yield from self._ask(Request(ApiKey.LEAVE_GROUP, build), backoff)
        self._forget_membership(ErrorCode.UNKNOWN_MEMBER_ID)

    def _check_membership(self, code: int) -> None:
        """Raise MembershipLost where the group does not know the member, RequestRefused for other errors."""
        if code in _LOST:
            self._forget_membership(code)
            raise MembershipLost(self.settings.group_id, code)
        if code:
            raise RequestRefused(subject=f"group {self.settings.group_id}", code=code)

    def _forget_membership(self, code: int) -> None:
        """Forget the generation, and where the group does not know it the member id, too.

        A member that joins under a new id leaves the old one in the group, whose rebalance then waits for it.
        """
        member_id = self.membership.member_id if code == ErrorCode.ILLEGAL_GENERATION else _NO_MEMBER_ID
        self.membership = Membership(member_id=member_id, instance_id=self.settings.instance_id)
        self.assigned = ()
        self.is_leader = False

    def _ask(self, request: Request, backoff: Backoff) -> Steps[Any]:
        """Send the request to the group's coordinator, wherever that is now, and return the response."""
        timeout_s = None
        if request.key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
            timeout_s = self.settings.rebalance_timeout_ms / 1000 + _BEYOND_REBALANCE_S
        return self._coordinator.ask(request, lambda answer: answer.error_code, backoff, lambda: timeout_s)


_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


# ---- offsets, with a membership and without


def fetch_committed(
    coordinator: CoordinatorRoute, partitions: Collection[TopicPartition], backoff: Backoff
) -> Steps[dict[TopicPartition, OffsetAndEpoch]]:
    """A group's committed offsets; waits for open transactions. Raises Unreachable, RequestRefused."""
    request = offset_fetch_request(coordinator.key, partitions, require_stable=True)
    while True:
        answer = yield from coordinator.ask(request, lambda a: a.error_code, backoff)
        code = answer.error_code or first_partition_error(answer)
        if not code:
            return committed_of(answer)
        cause = RetriableError(retriable_or_raise(f"group {coordinator.key}", code))
        yield Wait(backoff.next_wait_s("reading committed offsets", cause))


def commit(
    coordinator: CoordinatorRoute,
    offsets: Mapping[TopicPartition, OffsetAndEpoch],
    backoff: Backoff,
    member: Membership = NO_MEMBERSHIP,
) -> Steps[None]:
    """Commit offsets. Raises MembershipLost, Unreachable, RequestRefused."""
    request = offset_commit_request(coordinator.key, offsets, member)
    while offsets:
        answer = yield from coordinator.ask(request, first_partition_error, backoff)
        code = first_partition_error(answer)
        if not code:
            return
        if code in _LOST or code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise MembershipLost(coordinator.key, code)
        cause = RetriableError(retriable_or_raise(f"group {coordinator.key}", code))
        yield Wait(backoff.next_wait_s("committing offsets", cause))


# ---- the consumer's own data in JoinGroup and SyncGroup


def _in_kafkas_order(member: JoinGroupResponseMember) -> tuple[bool, str]:
    """Static members first, by instance id, then the others by member id. Source: MemberInfo.java."""
    is_dynamic = member.group_instance_id is None
    return is_dynamic, member.member_id if member.group_instance_id is None else member.group_instance_id


def _encoded_subscription(topics: Sequence[str]) -> bytes:
    """Encode the topics that this consumer subscribes to, as JoinGroup passes them to the group's leader."""
    message = ConsumerProtocolSubscription(topics=tuple(sorted(topics)))
    return _VERSION.pack(_SUBSCRIPTION_VERSION) + message.encode(_SUBSCRIPTION_VERSION)


def _subscription(member: JoinGroupResponseMember) -> ConsumerProtocolSubscription:
    """What a member subscribes to and owns. Raises KlammError where its metadata is not a consumer's subscription."""
    metadata = member.metadata
    version = _VERSION.unpack_from(metadata)[0] if len(metadata) >= _VERSION.size else 0
    try:
        try:
            return ConsumerProtocolSubscription.decode(
                metadata, max(0, min(version, _NEWEST_SUBSCRIPTION)), _VERSION.size
            )
        except WireError:  # some clients (Sarama) name version 1 and send version 0
            return ConsumerProtocolSubscription.decode(metadata, 0, _VERSION.size)
    except WireError as error:
        raise KlammError(
            f"Cannot read the subscription of member {member.member_id}: {error}. Stop it, or use another group."
        ) from error


def _owners(subscriptions: Mapping[str, ConsumerProtocolSubscription]) -> dict[TopicPartition, str]:
    """Who reads each partition until now; of two who say so, the one whose generation is later."""
    owners: dict[TopicPartition, str] = {}
    for member, subscription in sorted(subscriptions.items(), key=lambda item: item[1].generation_id):
        for owned in subscription.owned_partitions:
            owners |= dict.fromkeys((TopicPartition(owned.topic, number) for number in owned.partitions), member)
    return owners


def encoded_assignment(partitions: Collection[TopicPartition]) -> bytes:
    """A member's partitions, as SyncGroup carries them."""
    topics = [AssignedPartitions(topic, numbers) for topic, numbers in numbers_by_topic(partitions)]
    return _VERSION.pack(_ASSIGNMENT_VERSION) + ConsumerProtocolAssignment(topics).encode(_ASSIGNMENT_VERSION)


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a consumer's assignment; empty where it has none, or is not in the consumers' format."""
    try:
        read = ConsumerProtocolAssignment.decode(assignment, 0, _VERSION.size)
    except WireError:
        return ()
    return tuple(TopicPartition(t.topic, number) for t in read.assigned_partitions for number in t.partitions)
