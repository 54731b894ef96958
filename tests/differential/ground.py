"""Where generated scripts take place, and whether the controllers there differ."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from tests.differential.lives import BROKERS, Call
from tests.differential.nodes import StartNode
from tests.differential.plays import Difference, differences
from tests.differential.stage import Stage
from tests.differential.wanted import unwanted

from klamm.embedded.zookeeper import ZooKeeperServer


class Ground:
    """Where lives take place: one ZooKeeper, one loop that runs while a verb is carried out, the controllers."""

    def __init__(
        self, runner: asyncio.Runner, server: ZooKeeperServer, directory: Path, start: Sequence[StartNode]
    ) -> None:
        self.runner = runner
        self._server = server
        self._directory = directory
        self._start = start
        self.count = 0

    async def open(self) -> list[Stage]:
        """One stage for each controller, brokers registered, controller active."""
        self.count += 1
        stages = []
        for i, start in enumerate(self._start):
            directory = self._directory / f"life-{self.count}-{i}"
            directory.mkdir()
            stages.append(Stage(self._server, f"/life-{self.count}-{i}", directory, start, "3.9", {}))

        async def begin(stage: Stage) -> None:
            await stage.open(BROKERS)
            await stage.start_controller()

        await asyncio.gather(*map(begin, stages))
        return stages

    def differs(self, calls: Sequence[Call], kinds: set[str]) -> bool:
        """In a way like these, played from the beginning."""
        return self.runner.run(self._differs(calls, kinds))

    async def _differs(self, calls: Sequence[Call], kinds: set[str]) -> bool:
        stages = await self.open()
        try:
            for call in calls:
                try:
                    await asyncio.gather(*(call.on(stage) for stage in stages))
                except Exception:
                    return False  # it makes no sense any more
            return not kinds.isdisjoint(map(kind_of, newest_differences(stages)))
        finally:
            await asyncio.gather(*(stage.close() for stage in stages))


def newest_differences(stages: Sequence[Stage]) -> list[Difference]:
    first, *others = ([step.as_data() for step in stage.steps] for stage in stages)
    return [d for steps in others for d in unwanted("a life", differences(first, steps))]


def kind_of(difference: Difference) -> str:
    """What was asked for, in its first words, and where it differs."""
    return f"{' '.join(difference.did.split()[:3])}: {re.sub('[0-9]+', 'N', difference.place)}"
