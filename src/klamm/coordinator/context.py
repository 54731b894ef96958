"""What every handler of the coordinator works with."""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from klamm.coordinator.decision_journal import DecisionJournal
from klamm.coordinator.groups import Groups
from klamm.coordinator.offsets_topic import OffsetsTopic
from klamm.coordinator.sessions import Sessions
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.tasks import Tasks
from klamm.model.errors import ErrorCode
from klamm.runtime.clock import Clock
from klamm.runtime.randomness import Randomness
from klamm.runtime.time_slices import Slices
from klamm.telemetry.meters import Timer


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
        self,
        settings: GroupSettings,
        groups: Groups,
        topic: OffsetsTopic,
        clock: Clock,
        randomness: Randomness,
        journal: DecisionJournal,
        slices: Slices,
    ) -> None:
        self.slices = slices
        self.settings = settings
        self.groups = groups
        self.topic = topic
        self.clock = clock
        self.journal = journal
        self.counts = Counts()
        self.sessions = Sessions()
        self.is_active = False
        self._randomness = randomness
        self.tasks = Tasks("groups")

    def availability(self, group_id: str, *, allows_empty: bool = False) -> ErrorCode:
        """The error if no request for the group can be served here now; NONE where it can."""
        if not group_id and not allows_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self.groups.availability(group_id) if self.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def new_member_id(self, prefix: str) -> str:
        """Return a unique member id: the prefix (client id or instance id) and a random UUID."""
        return f"{prefix}-{uuid.UUID(bytes=self._randomness.bytes(16), version=4)}"

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
        """Start work as a task; its first part runs at once. See `Tasks.spawn`."""
        return self.tasks.spawn(work)

    async def close(self) -> None:
        """Cancel the tasks that wait for writes to the log."""
        await self.tasks.close()
