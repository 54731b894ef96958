"""When a simulated cluster is at rest: nothing was written for a while, and no controller is busy."""

from types import SimpleNamespace
from typing import Any

import pytest

from klamm.sim.cluster import SimulatedCluster
from klamm.telemetry.meters import Reading

STATE, QUEUE = (
    "kafka_controller_kafkacontroller_controllerstate",
    "kafka_controller_controllerchannelmanager_totalqueuesize",
)


class Cluster:
    """A cluster with one broker; each wait takes the next of its zxids and of its controller's metrics."""

    def __init__(self, zxids: list[int], readings: list[tuple[str, int]]) -> None:
        self.loop = SimpleNamespace(now=0.0)
        self.ensemble = SimpleNamespace(tree=SimpleNamespace(zxid=0))
        self.waits = 0
        self._zxids, self._readings = zxids, readings
        self.running = [SimpleNamespace(controller=SimpleNamespace(readings=self._read))]

    def _read(self) -> list[Reading]:
        name, value = self._readings[min(self.waits, len(self._readings)) - 1]
        return [Reading("kafka_controller_kafkacontroller_globaltopiccount", 3), Reading(name, value)]

    async def _sleep_until(self, at_s: float) -> None:
        self.ensemble.tree.zxid = self._zxids[min(self.waits, len(self._zxids) - 1)]
        self.waits += 1

    @property
    def _has_busy_controller(self) -> bool:
        found: Any = SimulatedCluster._has_busy_controller.fget(self)  # type: ignore[attr-defined]
        return bool(found)


IDLE = [(STATE, 0)]
WAITS = {
    "nothing happens": ([0], IDLE, 1),
    "an election is written meanwhile": ([5, 5], IDLE, 2),
    "a controller handles an event": ([0], [(STATE, 7), (STATE, 0)], 2),
    "a request waits": ([0], [(QUEUE, 1), (QUEUE, 2), (QUEUE, 0)], 3),
    "it never ends": (list(range(1, 100)), IDLE, 8),
}


@pytest.mark.parametrize(("zxids", "readings", "waits"), WAITS.values(), ids=WAITS)
async def test_a_simulated_cluster_is_judged_once_nothing_is_written_and_no_controller_is_busy(
    zxids: list[int], readings: list[tuple[str, int]], waits: int
) -> None:
    cluster: Any = Cluster(zxids, readings)

    await SimulatedCluster._wait_until_undisturbed(cluster)

    assert cluster.waits == waits
