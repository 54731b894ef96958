"""Members of a consumer group: they join, read, commit what they have read, and go, with a word or without one."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.committed_offsets import Membership
from klamm.client.group_member import GroupMember, Heartbeat, MemberSettings, MembershipLost, commit
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.records import FetchLimits
from klamm.client.routing import CoordinatorRoute, CoordinatorType
from klamm.client.steps import Steps
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.clients.consumer import Reader
from klamm.sim.cluster_tier.trace import Assigned, ClientEvent, CommitEnded, MemberGone
from klamm.wire.records import CorruptRecords

_SESSION_MS: Final = 6_000
"""The least that brokers allow by default."""
_REBALANCE_MS: Final = 8_000
_JOIN_S: Final = 20.0
_PATIENCE_S: Final = 4.0
"""For a heartbeat or a commit, with all attempts."""
_ROUND_S: Final = 0.5
_LIFE_S: Final = 15.0
"""Mean time that a member stays."""
_ABSENCE_S: Final = 3.0
_LEAVES: Final = 0.5
"""Which part of the members leaves the group; the others only fall silent."""
_RETIRES: Final = 0.3
"""How often a member that goes is not followed by another one."""
_COMMITS_LATE: Final = 0.3
"""How often a commit of the former generation arrives after the member has joined the next one."""
_LIMITS: Final = FetchLimits(2_000, 0)


class Member:
    """`await run()` until cancelled: one member after the other, each new to the group."""

    def __init__(
        self,
        group: str,
        client: AsyncClient,
        rng: Rng,
        topics: Sequence[str],
        tell: Callable[[ClientEvent], None],
        *,
        may_retire: bool,
        instance_id: str | None = None,
    ) -> None:
        """With `instance_id` its members are static: each takes the place of the one before (KIP-345)."""
        self._instance_id = instance_id
        self._group = group
        self._route = CoordinatorRoute(client.cluster, CoordinatorType.GROUP, group)
        self._may_retire = may_retire
        self._former: tuple[Membership, dict[TopicPartition, int]] | None = None
        """The membership in the last generation, and the offsets that it committed last."""
        self._client = client
        self._reader = Reader(client)
        self._rng = rng
        self._topics = tuple(topics)
        self._tell = tell
        self.may_go: Callable[[], bool] = lambda: True
        """Whether members still come and go; once they do not, the last one stays."""
        self.may_commit: Callable[[], bool] = lambda: True
        self.stops_heartbeats: Callable[[Assigned], bool] = lambda assigned: False
        """Whether the member with this assignment sends nothing from now on, and no other one follows it."""
        self._has_stopped_heartbeats = False
        self._assigned_id = ""
        """The member id of the last assignment; empty before the first of a stay."""

    async def run(self) -> None:
        """Join the group for a while, then stay away for a while, again and again, until this member retires."""
        while True:
            member = self._new_member()
            self._assigned_id = ""
            ends_s = asyncio.get_running_loop().time() + self._rng.expovariate(1 / _LIFE_S)
            while self._stays(ends_s):
                try:
                    await self._take_part(member, ends_s)
                except (KlammError, TimeoutError, OSError):
                    await asyncio.sleep(_ROUND_S)
                    if self._instance_id is not None:
                        member = self._new_member()  # a JoinGroup that arrived late may have fenced it
            if self._has_stopped_heartbeats:
                self._tell(MemberGone(self._group, member.membership.member_id))
                return
            await self._leave_or_stop_heartbeats(member)
            if self._may_retire and self._rng.random() < _RETIRES:
                return
            await asyncio.sleep(self._rng.expovariate(1 / _ABSENCE_S))

    def _new_member(self) -> GroupMember:
        """Return a member that has not joined yet."""
        settings = MemberSettings(self._group, self._topics, self._instance_id, _SESSION_MS, _REBALANCE_MS)
        return GroupMember(self._client.cluster, settings)

    def _stays(self, ends_s: float) -> bool:
        """Whether the member stays in the group: until `ends_s`, or at rest until it stops sending heartbeats."""
        return not self._has_stopped_heartbeats and (not self.may_go() or asyncio.get_running_loop().time() < ends_s)

    async def _take_part(self, member: GroupMember, ends_s: float) -> None:
        """Join, and read until the generation ends or this member goes. Raises KlammError."""
        former_id = self._assigned_id
        assigned = await self._client.run(member.join(self._backoff(_JOIN_S)))
        generation = member.membership.generation
        self._assigned_id = member.membership.member_id
        if former_id not in ("", self._assigned_id):
            self._tell(MemberGone(self._group, former_id))  # the coordinator did not know it any more
        now_s = asyncio.get_running_loop().time()
        assignment = Assigned(self._group, generation, self._assigned_id, assigned, now_s, self._instance_id)
        self._tell(assignment)
        await self._commit_late()
        committed = await self._client.run(member.committed(assigned, self._backoff(_PATIENCE_S)))
        positions = {p: committed[p].offset if p in committed else 0 for p in assigned}
        reported = dict(positions)
        while self._stays(ends_s):
            await asyncio.sleep(_ROUND_S)
            if self.stops_heartbeats(assignment):
                self._has_stopped_heartbeats = True
                return
            for p in positions:
                positions[p] = await self._read(p, positions[p])
            beat = await self._client.run(member.heartbeat(self._backoff(_PATIENCE_S)))
            read = {p: offset for p, offset in positions.items() if offset != reported[p]}
            if read and self.may_commit():
                await self._commit(member, read)
                reported |= read
            if beat is Heartbeat.REBALANCE:
                return
            if await self._client.run(member.has_partition_change(self._backoff(_PATIENCE_S))):
                return

    async def _read(self, partition: TopicPartition, position: int) -> int:
        """Read on in one partition, and return the next position."""
        try:
            read = await self._reader.read(partition, position, _LIMITS)
            if read.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                return await self._reader.start_of(partition)
        except (CorruptRecords, KlammError, OSError):
            return position
        return read.found.records[-1][0] + 1 if read.found.records else position

    async def _commit(self, member: GroupMember, offsets: dict[TopicPartition, int]) -> None:
        """Commit offsets as a member of the group's current generation. Raises KlammError."""
        self._former = member.membership, offsets
        committing = member.commit(_without_epochs(offsets), self._backoff(_PATIENCE_S))
        await self._commit_and_report(member.membership, offsets, committing)

    async def _commit_late(self) -> None:
        """Commit once more as a member of the former generation, like a request that arrives late."""
        former, self._former = self._former, None
        if former is not None and self.may_commit() and self._rng.random() < _COMMITS_LATE:
            membership, offsets = former
            late = commit(self._route, _without_epochs(offsets), self._backoff(_PATIENCE_S), membership)
            with contextlib.suppress(MembershipLost):
                await self._commit_and_report(membership, offsets, late)

    async def _commit_and_report(
        self, membership: Membership, offsets: dict[TopicPartition, int], committing: Steps[None]
    ) -> None:
        """Commit offsets, and report them as stored, or as possibly stored after an error. Raises KlammError."""
        began_s, is_stored = asyncio.get_running_loop().time(), False
        try:
            await self._client.run(committing)
            is_stored = True
        finally:
            for p, offset in offsets.items():
                self._tell(CommitEnded(self._group, p, offset, is_stored, membership.generation, began_s))

    async def _leave_or_stop_heartbeats(self, member: GroupMember) -> None:
        """Leave the group, or send nothing more, so that the session of the member expires."""
        self._tell(MemberGone(self._group, member.membership.member_id))
        if self._rng.random() < _LEAVES:
            try:
                await self._client.run(member.leave(self._backoff(_PATIENCE_S)))
            except (KlammError, OSError):
                return

    def _backoff(self, total_s: float) -> Backoff:
        """Return the waits between the attempts of one request, which end after `total_s`."""
        return Backoff(asyncio.get_running_loop().time, total_s)


def _without_epochs(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndEpoch]:
    """The offsets as a client commits them that knows no leader epochs."""
    return {partition: OffsetAndEpoch(offset) for partition, offset in offsets.items()}
