"""The comparison with Apache Kafka's recorded controller as a killer; it plays on a real ZooKeeper, without Kafka."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.children import Limits
from tests.mutants.killers import ROOT, TESTS, Item, Outcome, SwitchContext
from tests.mutants.mutations import Mutant
from tests.mutants.results import KillerName
from tests.support import zookeeper

from klamm.embedded.zookeeper import ZooKeeperServer

BUDGET_S: Final = 20.0
"""Of processor time, for a mutant that is not noticed."""
SCRIPT_TIMEOUT_S: Final = 30.0
PLAYS_PER_SERVER: Final = 400
"""Each play reads the server's transaction log from its beginning: it must not become long."""


class Judge:
    name: KillerName = "judge"
    sources: Final = (ROOT / "src" / "klamm", TESTS / "differential", TESTS / "support")

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._server: ZooKeeperServer | None = None
        self._plays = 0

    def measure(self, switch_context: SwitchContext, directory: Path) -> list[Item]:
        from tests.differential.comparison import all_names

        items = []
        for name in all_names():
            switch_context(name)
            began = time.process_time()
            failed = self._play(name, directory)
            items.append(Item(name, time.process_time() - began, not failed))
        return items

    def unmeasured(self) -> list[Item]:
        return []

    def is_near(self, mutant: Mutant, item: str) -> bool:
        return False

    def ordered(self, mutant: Mutant, items: Sequence[Item]) -> list[Item]:
        """Short scripts first, as many as the budget has room for."""
        chosen, total_s = [], 0.0
        for item in sorted(items, key=lambda item: item.cost_s):
            total_s += item.cost_s
            if total_s > BUDGET_S:
                break
            chosen.append(item)
        return chosen

    def run(self, items: Sequence[Item], directory: Path) -> Outcome:
        from klamm.telemetry.logs import configure_logs

        configure_logs("error")
        for n, item in enumerate(items):
            if failed := self._play(item.name, directory):
                return Outcome(f"{item.name}: {failed}", n + 1)
        return Outcome("", len(items))

    def limits(self, items: Sequence[Item]) -> Limits:
        return Limits(3 * BUDGET_S, 10 * BUDGET_S + SCRIPT_TIMEOUT_S)

    def prepare(self, plays: int) -> None:
        """Have a server that children use; a new one from time to time."""
        if self._server is not None and self._plays + plays > PLAYS_PER_SERVER:
            self.close()
        if self._server is None:
            self._directory = Path(tempfile.mkdtemp(prefix="mutants-"))
            self._server = zookeeper.server(self._directory / "zookeeper")
            self._server.start()
        self._plays += plays

    def close(self) -> None:
        if self._server is not None and self._directory is not None:
            self._server.kill()
            shutil.rmtree(self._directory, ignore_errors=True)
        self._server, self._plays = None, 0

    def _play(self, name: str, directory: Path) -> str:
        """The first difference, or why the script was not played to its end; empty where all is as recorded."""
        from tests.differential.verdict import judged

        assert self._server is not None
        server = self._server

        async def play() -> str:
            async with asyncio.timeout(SCRIPT_TIMEOUT_S):
                others, no_longer = await judged(name, server, directory, f"/{directory.name}")
            return str([*others, *no_longer][0])[:200] if others or no_longer else ""

        try:
            return asyncio.run(play())
        except Exception as error:
            return f"not played to its end: {error!r}"[:200]
