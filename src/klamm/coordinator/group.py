"""A group in memory: its members, its generation, what it reads. Source: GroupMetadata.scala (3.9).

Nothing here awaits. `handlers/` change a group between two awaits; the rules are in `states.py` and `decisions/`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from klamm.coordinator.committed_offsets import GroupOffsets
from klamm.coordinator.member import Member, answer, select_protocol
from klamm.coordinator.requests import JoinedMember, JoinResult, Protocols, SyncResult
from klamm.coordinator.states import COMPLETING_REBALANCE, EMPTY, STABLE, GroupState, can_move
from klamm.model.errors import ErrorCode

CONSUMER = "consumer"
"""The protocol type of consumers; other clients, such as Kafka Connect, have their own."""

ReadTopics = Callable[[bytes], Sequence[str] | None]
"""A member's metadata -> the topics that it subscribes to; None where it cannot be read."""


class Group:
    def __init__(self, group_id: str, now_ms: int | None, state: GroupState = EMPTY) -> None:
        self.group_id = group_id
        self.state = state
        self.state_since_ms = now_ms
        """None for a group whose record does not say."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.pending_members: dict[str, asyncio.TimerHandle] = {}
        """Ids that were given out and have not joined yet, with the timers that forget them."""
        self.pending_sync: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup."""
        self.subscribed_topics: frozenset[str] | None = None
        """None where they are not known."""
        self.new_member_added = False
        """Since the initial delay of the first rebalance began, which then starts again."""
        self.in_initial_delay = False
        self.join_timer: asyncio.TimerHandle | None = None
        self.sync_timer: asyncio.TimerHandle | None = None
        self.late_timer: asyncio.TimerHandle | None = None
        """Reports for whom a rebalance waits."""
        self.awaiting_join = 0
        """Members whose JoinGroup waits."""
        self.offsets = GroupOffsets()
        self.storing = asyncio.Lock()
        """Held while the record of the group is made, so that records reach the log in order."""
        self.journal_cause = ""
        """The journal's id of the last rebalance."""
        self._supported: Counter[str] = Counter()
        """How many members support each protocol."""

    def move(self, target: GroupState, now_ms: int) -> None:
        """Change the state of the group and record the time; asserts that the change is valid."""
        assert can_move(self.state, target), f"group {self.group_id}: {self.state} -> {target}"
        self.state = target
        self.state_since_ms = now_ms

    # ---- facts

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members are consumers: the protocol type is `consumer`."""
        return self.protocol_type == CONSUMER

    @property
    def has_all_members_joined(self) -> bool:
        """Whether every member has sent JoinGroup, and no assigned member id is still unused."""
        return not self.pending_members and self.awaiting_join == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_in_generation(self, generation: int) -> bool:
        """Whether this is the generation, and no rebalance has begun since."""
        return self.generation == generation and self.state in (COMPLETING_REBALANCE, STABLE)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols shares at least one with all other members."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        has_common = any(self._supported[name] == len(self.members) for name, _ in protocols)
        return self.protocol_type == protocol_type and has_common

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic; true also where the subscriptions are not known."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def members_for_leader(self) -> Iterator[JoinedMember]:
        """Yield all members with their metadata, as the JoinGroup response to the leader has them.

        It ends early where another rebalance begins meanwhile.
        """
        generation, protocol = self.generation, self.protocol_name
        assert protocol is not None
        for member in list(self.members.values()):
            if not self.is_in_generation(generation):
                return
            yield JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))

    def join_result(self, member: Member, for_leader: Sequence[JoinedMember] | None = None) -> JoinResult:
        """Return the JoinGroup response for this member; only the leader's has the list of members.

        It is `for_leader` where the caller has made it already.
        """
        members: Sequence[JoinedMember] = ()
        if member.member_id == self.leader_id:
            members = tuple(self.members_for_leader()) if for_leader is None else for_leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            members,
        )

    # ---- members

    def add(self, member: Member) -> None:
        """Add the member; the first one becomes leader of the group and sets its protocol type."""
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or a member id that is still unused; a leader is replaced."""
        if (member := self.members.pop(member_id, None)) is not None:
            self._count_protocols(member, -1)
            self.awaiting_join -= member.awaits_join
            member.stop_session_timer()
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.pending_sync.pop(member_id, None)

    def forget_pending(self, member_id: str) -> None:
        """Remove a member id that no client has used to join, and cancel its timer.

        Does nothing where there is none.
        """
        if (timer := self.pending_members.pop(member_id, None)) is not None:
            timer.cancel()

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Replace the member's protocols and timeouts by those of its newest JoinGroup request."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give a static member a new member id. Requests that wait under the old id get FENCED_INSTANCE_ID."""
        old_member_id = self.static_members[instance_id]
        member = self.members.pop(old_member_id)
        self.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
        member.answer_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            del self.pending_sync[old_member_id]
            self.pending_sync[new_member_id] = None
        return member

    def await_join(self, member: Member) -> "asyncio.Future[JoinResult]":
        """Return the future of the member's JoinGroup response.

        An earlier JoinGroup of the member that still waits gets REBALANCE_IN_PROGRESS.
        """
        self.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_reply = asyncio.get_running_loop().create_future()
        self.awaiting_join += 1
        return member.join_reply

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer the member's waiting JoinGroup request, if there is one."""
        reply, member.join_reply = member.join_reply, None
        self.awaiting_join -= answer(reply, result)

    def _count_protocols(self, member: Member, sign: int) -> None:
        """Add `sign`, 1 or -1, to the number of members that support each protocol of the member."""
        for name in {name for name, _ in member.protocols}:
            self._supported[name] += sign

    # ---- generations

    def elect_joined_leader(self) -> bool:
        """Replace a leader that has not joined by a member that has; False where no member has joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaits_join:
            return True
        joined = next((m for m in self.members.values() if m.awaits_join), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def next_protocol(self) -> str:
        """The protocol that a generation of the current members would use."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        return select_protocol((member.protocols for member in self.members.values()), candidates)

    def start_generation(self, now_ms: int) -> None:
        """Begin the next generation with the members that joined; without members the group becomes empty.

        Its subscribed topics are not known before `read_subscriptions`.
        """
        self.generation += 1
        if self.members:
            self.protocol_name = self.next_protocol()
            target = COMPLETING_REBALANCE
        else:
            self.protocol_name = None
            target = EMPTY
        self.subscribed_topics = None
        self.move(target, now_ms)
        self.pending_sync.clear()

    def read_subscriptions(self, read_topics: ReadTopics) -> Iterator[None]:
        """Read the subscribed topics from the members' metadata, and pause after each; only a consumer group has them.

        They are set at the end, unless another rebalance has begun by then.
        """
        generation, name = self.generation, self.protocol_name
        topics: set[str] = set()
        known: set[bytes] = set()  # the members of a group mostly have the same metadata
        self.subscribed_topics = None
        if not self.is_consumer_group or (self.members and name is None):
            return
        for member in list(self.members.values()):
            if not self.is_in_generation(generation):
                return
            assert name is not None
            metadata = member.metadata(name)
            if metadata not in known:
                known.add(metadata)
                read = read_topics(metadata)
                if read is None:
                    return
                topics.update(read)
            yield
        if not self.members or self.is_in_generation(generation):
            self.subscribed_topics = frozenset(topics)

    # ---- timers

    def stop_join_timer(self) -> None:
        """Cancel the timer that ends the wait for members to join, and end the initial delay."""
        self.in_initial_delay = False
        if self.join_timer is not None:
            self.join_timer.cancel()
            self.join_timer = None
        if self.late_timer is not None:
            self.late_timer.cancel()
            self.late_timer = None

    def stop_sync_timer(self) -> None:
        """Cancel the timer that ends the wait for members to sync."""
        if self.sync_timer is not None:
            self.sync_timer.cancel()
            self.sync_timer = None

    def stop_timers(self) -> None:
        """Cancel all timers of the group, but not those of its members' sessions."""
        self.stop_join_timer()
        self.stop_sync_timer()
        for member_id in list(self.pending_members):
            self.forget_pending(member_id)
