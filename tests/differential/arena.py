"""Plays generated scripts before several controllers, and compares what they do."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from tests.differential.calls import BROKERS, Call
from tests.differential.comparison import differences
from tests.differential.expected_differences import unexpected
from tests.differential.nodes import StartNode
from tests.differential.script_context import ScriptContext
from tests.differential.transcript import Difference

from klamm.embedded.zookeeper import ZooKeeperServer


class Arena:
    """One ZooKeeper, one loop that runs while a verb is carried out, and the controllers."""

    def __init__(
        self, runner: asyncio.Runner, server: ZooKeeperServer, directory: Path, start: Sequence[StartNode]
    ) -> None:
        self.runner = runner
        self._server = server
        self._directory = directory
        self._start = start
        self.count = 0

    async def open(self) -> list[ScriptContext]:
        """One context for each controller, with its brokers registered and its controller active."""
        self.count += 1
        contexts = []
        for i, start in enumerate(self._start):
            directory = self._directory / f"generated-{self.count}-{i}"
            directory.mkdir()
            contexts.append(ScriptContext(self._server, f"/generated-{self.count}-{i}", directory, start, "3.9", {}))

        async def begin(context: ScriptContext) -> None:
            await context.open(BROKERS)
            await context.start_controller()

        await asyncio.gather(*map(begin, contexts))
        return contexts

    def differs(self, calls: Sequence[Call], kinds: set[str]) -> bool:
        """Whether the calls, played from the beginning, give differences of one of these kinds."""
        return self.runner.run(self._differs(calls, kinds))

    async def _differs(self, calls: Sequence[Call], kinds: set[str]) -> bool:
        """Play the calls and look for differences of these kinds."""
        contexts = await self.open()
        try:
            for call in calls:
                try:
                    await asyncio.gather(*(call.on(context) for context in contexts))
                except Exception:
                    return False  # without the call that was left out it cannot be played
            return not kinds.isdisjoint(map(kind_of, newest_differences(contexts)))
        finally:
            await asyncio.gather(*(context.close() for context in contexts))


def newest_differences(contexts: Sequence[ScriptContext]) -> list[Difference]:
    """The differences between the last steps of several controllers."""
    first, *others = ([step.as_data() for step in context.steps] for context in contexts)
    return [d for steps in others for d in unexpected("generated", differences(first, steps, merged=True))]


def kind_of(difference: Difference) -> str:
    """The kind of a difference: the first words of the verb, and the field that differs."""
    return f"{' '.join(difference.did.split()[:3])}: {re.sub('[0-9]+', 'N', difference.place)}"
