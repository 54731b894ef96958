"""The pipeline of the demo: `klamm pipeline run` as a process of its own, from the topic into a Delta table."""

import asyncio
from posixpath import join
from typing import Final

from klamm.cli.demo.observer import POLL_S, wait_until
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.pipeline.position import PartitionPosition, positions, read_checkpoint
from klamm.pipeline.spec import Spec, load_spec
from klamm.pipeline.state import StateDirectory
from klamm.runtime.processes import Child, python, spawn
from klamm.runtime.world import World

CATCH_UP_TIMEOUT_S: Final = 180.0
STOP_TIMEOUT_S: Final = 30.0
_FILE: Final = """\
pipeline: flights
source:
  bootstrap: {bootstrap}
  topics: {topic}
  value:
    format: json
    schema: run INT, row INT, carrier STRING, flight INT, origin STRING, dest STRING, dep_delay DOUBLE, time_hour STRING
steps:
  - SELECT run, row, carrier, flight, origin, dest, dep_delay, time_hour, partition, offset, timestamp FROM source
sink: {{delta: flights.table}}
trigger: 1s
"""


class PipelineEnded(KlammError):
    """The pipeline ended by itself."""


class DemoPipeline:
    """`rows` is the number of rows that this run of the pipeline has written."""

    def __init__(self, world: World, directory: str) -> None:
        self.file = join(directory, "flights.yaml")
        self.table = join(directory, "flights.table")
        self.rows = 0
        self._state = join(directory, "flights.state")
        self._log = join(directory, "demo", "pipeline.log")
        self._world = world
        self._child: Child | None = None
        self._spec: Spec | None = None
        self._started_ms = 0
        self._polled = 0.0

    def remove_data(self) -> None:
        """Remove the table and the checkpoint, because their topic does not exist any more."""
        for path in (self.table, self._state):
            if self._world.disk.exists(path):
                self._world.disk.remove_tree(path)

    def start(self, bootstrap: str, topic: str) -> None:
        """Write the pipeline's file and start the process; it continues where the last run of the demo ended."""
        disk = self._world.disk
        disk.write_atomically(self.file, _FILE.format(bootstrap=bootstrap, topic=topic).encode())
        disk.write_atomically(self._log, b"")
        self._spec = load_spec(disk, self.file)
        self._started_ms = self._world.clock.now_ms()
        self._child = spawn("pipeline", [python(), "-m", "klamm", "pipeline", "run", self.file], self._log)

    def poll(self) -> None:
        """Read how many rows are written, if that was not read just now. Raises PipelineEnded."""
        now = asyncio.get_running_loop().time()
        if now < self._polled + POLL_S:
            return
        self._polled = now
        assert self._child is not None, "the pipeline is polled after its start"
        if not self._child.is_running:
            raise PipelineEnded(f"The pipeline ended. Last lines of {self._log}:\n{self._child.log_tail(15)}")
        status = StateDirectory(self._world.disk, self._state).status()
        if status is not None and status.started_ms >= self._started_ms:
            self.rows = status.rows

    async def catch_up(self) -> dict[int, int]:
        """Wait until everything is written; returns the number of records of each partition of the topic."""
        await wait_until("the pipeline has written all records", self._has_caught_up, CATCH_UP_TIMEOUT_S)
        return {p.partition: position.end for p, position in self._positions().items()}

    def stop(self) -> None:
        """Stop the process, if it runs."""
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S)

    async def _has_caught_up(self) -> bool:
        """Whether the last complete micro-batch has the last record of every partition."""
        self.poll()
        return all(position.next_offset == position.end for position in self._positions().values())

    def _positions(self) -> dict[TopicPartition, PartitionPosition]:
        """How far each partition of the topic is read."""
        assert self._spec is not None, "the pipeline was started"
        state = StateDirectory(self._world.disk, self._state)
        return positions(self._spec, read_checkpoint(self._world.disk, state))
