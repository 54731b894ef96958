"""The group side of `klamm consume`: joining, heartbeats, periodic commits. Without a group it does nothing."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.committed_offsets import NO_MEMBERSHIP
from klamm.client.group_member import (
    GroupMember,
    Heartbeat,
    MemberSettings,
    MembershipLost,
    commit,
    fetch_committed,
)
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.routing import CoordinatorRoute, CoordinatorType
from klamm.client.steps import Steps
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition

COMMIT_INTERVAL_S: Final = 5.0
METADATA_INTERVAL_S: Final = 30.0
END_TIMEOUT_S: Final = 5.0
"""How long the last commit and the farewell may take."""
Positions = Callable[[], Mapping[TopicPartition, OffsetAndEpoch]]


class GroupSession:
    """`join`, then `start` with the positions to commit, wait for `ended`, `stop`; again for each generation."""

    def __init__(
        self, client: AsyncClient, group: str | None, member: MemberSettings | None, timeout_s: float, commits: bool
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._commits = commits
        self._loop = asyncio.get_running_loop()
        self._route = None if group is None else CoordinatorRoute(client.cluster, CoordinatorType.GROUP, group)
        self._member = None if member is None else GroupMember(client.cluster, member)
        self._committed: dict[TopicPartition, OffsetAndEpoch] = {}
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the group rebalances, and when its coordinator cannot be reached."""
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> tuple[TopicPartition, ...] | None:
        """Join the group; return what it assigns, None without a subscription. Raises Unreachable, RequestRefused."""
        if self._member is None:
            return None
        return await self._client.run(self._member.join(self._backoff()))

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The group's committed offsets; empty without a group. Raises Unreachable, RequestRefused."""
        if self._route is None or not partitions:
            return {}
        self._committed = await self._client.run(fetch_committed(self._route, partitions, self._backoff()))
        return dict(self._committed)

    def start(self, positions: Positions) -> None:
        """Start the task that sends heartbeats and commits the positions from time to time."""
        self.ended = self._loop.create_future()
        if self._route is not None:
            self._task = self._loop.create_task(self._keep_alive(positions), name="group-session")
            self._task.add_done_callback(self._on_end)

    async def stop(self, positions: Mapping[TopicPartition, OffsetAndEpoch]) -> None:
        """End the generation and commit the positions. Raises MembershipLost, Unreachable, RequestRefused."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._commit(positions, Backoff(self._loop.time, END_TIMEOUT_S))

    async def close(self) -> None:
        """Leave the group, so that others need not wait for this member's session to expire."""
        if self._member is not None:
            backoff = Backoff(self._loop.time, END_TIMEOUT_S)
            try:
                await self._client.run(self._member.leave(backoff, "the consumer is being closed"))
            except KlammError:
                return  # its session expires

    async def _keep_alive(self, positions: Positions) -> None:
        """Send heartbeats and commit, until the group rebalances."""
        interval_s = COMMIT_INTERVAL_S if self._member is None else self._member.settings.heartbeat_interval_s
        next_commit_s = self._loop.time() + COMMIT_INTERVAL_S
        next_metadata_s = self._loop.time() + METADATA_INTERVAL_S
        while True:
            await asyncio.sleep(interval_s)
            if self._member is not None:
                if await self._client.run(self._member.heartbeat(self._backoff())) is Heartbeat.REBALANCE:
                    return
                if self._loop.time() >= next_metadata_s:
                    next_metadata_s = self._loop.time() + METADATA_INTERVAL_S
                    if await self._client.run(self._member.has_partition_change(self._backoff())):
                        return
            if self._loop.time() >= next_commit_s:
                next_commit_s = self._loop.time() + COMMIT_INTERVAL_S
                await self._commit(dict(positions()), self._backoff())

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        """Signal that the generation is over; `ended` raises an error other than a lost membership."""
        if task.cancelled() or self.ended.done():
            return
        error = task.exception()
        if error is None or isinstance(error, MembershipLost):
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    async def _commit(self, positions: Mapping[TopicPartition, OffsetAndEpoch], backoff: Backoff) -> None:
        """Commit the positions that changed. Raises MembershipLost, Unreachable, RequestRefused."""
        changed = {p: at for p, at in positions.items() if p not in self._committed or self._is_moved(p, at)}
        if self._route is None or not self._commits or not changed:
            return
        await self._client.run(self._commit_steps(changed, backoff))
        self._committed |= changed

    def _is_moved(self, partition: TopicPartition, at: OffsetAndEpoch) -> bool:
        """Whether the position has another offset than was committed last."""
        return self._committed[partition].offset != at.offset

    def _commit_steps(self, offsets: Mapping[TopicPartition, OffsetAndEpoch], backoff: Backoff) -> Steps[None]:
        """Return the steps of a commit, as a member of the current generation or as a client without a subscription."""
        if self._member is not None:
            return self._member.commit(offsets, backoff)
        assert self._route is not None
        return commit(self._route, offsets, backoff, NO_MEMBERSHIP)

    def _backoff(self) -> Backoff:
        """The pauses between attempts, until the timeout."""
        return Backoff(self._loop.time, self._timeout_s)
