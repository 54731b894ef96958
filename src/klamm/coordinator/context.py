"""What every handler of the coordinator works with."""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from klamm.coordinator.groups import Groups
from klamm.coordinator.offsets_topic import OffsetsTopic
from klamm.coordinator.sessions import Sessions
from klamm.coordinator.settings import GroupSettings
from klamm.model.errors import ErrorCode
from klamm.runtime.clock import Clock
from klamm.runtime.eager import Rest, first_step
from klamm.runtime.randomness import Randomness
from klamm.telemetry.meters import Timer

log = structlog.get_logger("groups")


@dataclass(slots=True)
class Counts:
    """What happened since the start, by Kafka's names."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    partition_loads: Timer = field(default_factory=Timer)


class CoordinatorContext:
    def __init__(
        self, settings: GroupSettings, groups: Groups, topic: OffsetsTopic, clock: Clock, randomness: Randomness
    ) -> None:
        self.settings = settings
        self.groups = groups
        self.topic = topic
        self.clock = clock
        self.counts = Counts()
        self.sessions = Sessions()
        self.is_active = False
        self._randomness = randomness
        self._tasks: set[asyncio.Task[None]] = set()

    def availability(self, group_id: str, *, allows_empty: bool = False) -> ErrorCode:
        """Why no request for the group can be served here now; NONE where it can."""
        if not group_id and not allows_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self.groups.availability(group_id) if self.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def new_member_id(self, prefix: str) -> str:
        """A member id that nobody else has: the client's or the instance's name, and a random UUID."""
        return f"{prefix}-{uuid.UUID(bytes=self._randomness.bytes(16), version=4)}"

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
        """Run to the first wait at once, and the rest in a task; None where nothing is left.

        So records reach the log in the order in which the groups changed.
        """
        rest = first_step(work)
        if not isinstance(rest, Rest):
            return None
        task = asyncio.get_running_loop().create_task(_finish(rest))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "unexpected error in the group coordinator; the other groups are served",
                action="Report this as a bug in klamm, with the stack trace.",
                exc_info=error,
            )

    async def close(self) -> None:
        """Cancel what still waits for the log."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _finish(rest: Rest[None]) -> None:
    await rest
