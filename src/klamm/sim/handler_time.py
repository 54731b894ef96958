"""How long controllers handle an event while nothing keeps them from it.

Handlers wait for ZooKeeper alone: what brokers answer is an event of its own. So a handler in a process that runs,
with a ZooKeeper session on a sound link, ends soon. It is looked at once a second.
"""

from dataclasses import dataclass, field
from typing import Final

from klamm.sim.actions import ClusterUnderTest, server_index
from klamm.sim.history.controllers import Run
from klamm.sim.history.trace import EventBegan, HandlerWaits

INTERVAL_S: Final = 1.0


@dataclass(slots=True)
class HandlerTime:
    """Counts the undisturbed seconds of the event that each controller handles."""

    cluster: ClusterUnderTest
    _counted: dict[Run, tuple[EventBegan, float]] = field(default_factory=dict)

    def look(self) -> None:
        """Report how long each undisturbed handler has run, in steps of a second; this is repeated every second."""
        loop = self.cluster.loop
        loop.call_on(loop.main_host, loop.now + INTERVAL_S, self.look)
        before, self._counted = self._counted, {}
        for run, began in list(self.cluster.history.controllers.handling.items()):
            counted, undisturbed_s = before.get(run, (None, 0.0))
            if counted is not began:
                undisturbed_s = 0.0
            elif self._is_undisturbed(run):
                undisturbed_s += INTERVAL_S
                self.cluster.report(HandlerWaits(*run, began.event, undisturbed_s))
            self._counted[run] = began, undisturbed_s

    def _is_undisturbed(self, run: Run) -> bool:
        """Whether the process runs at full speed, and an up-to-date ZooKeeper server serves it over a sound link."""
        cluster, node = self.cluster, self.cluster.nodes[run[0]]
        if node.broker.incarnation != run[1] or not node.host.is_alive or node.host.is_paused or node.host.step_s:
            return False
        index = server_index(node.broker)
        if index is None:
            return False
        server, name, host = cluster.servers[index], f"zk-{index + 1}", node.host.name
        if server.connection_of(node.session) is None or not server.reaches_leader:
            return False
        if server.tree.zxid < cluster.ensemble.tree.zxid:
            return False
        return cluster.network.is_sound(host, name) and cluster.network.is_sound(name, host)
