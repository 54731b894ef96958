"""How long controllers handle an event, or do not check leader imbalance, while no fault prevents it.

A handler waits only for ZooKeeper, because a broker's response is an event of its own. Therefore a handler ends soon
if its process runs and has a ZooKeeper session over a healthy link. This is checked once a second.
"""

from dataclasses import dataclass, field
from typing import Final

from klamm.sim.actions import ClusterUnderTest, server_index
from klamm.sim.history.controllers import Run
from klamm.sim.history.trace import EventBegan, HandlerWaits, ImbalanceUnchecked

INTERVAL_S: Final = 1.0


@dataclass(slots=True)
class HandlerTime:
    """Counts for how many seconds without faults controllers handle an event, and have not checked leader imbalance."""

    cluster: ClusterUnderTest
    _counted: dict[Run, tuple[EventBegan, float]] = field(default_factory=dict)
    _unchecked: tuple[tuple[int, int], float] = ((0, 0), 0.0)
    """Controller epoch, number of imbalance checks in it, and the seconds without faults since the last one."""

    def report_each_second(self) -> None:
        """Report for how many seconds without faults each event handler has run; repeats itself every second."""
        loop = self.cluster.loop
        loop.call_on(loop.main_host, loop.now + INTERVAL_S, self.report_each_second)
        self._report_unchecked_imbalance()
        before, self._counted = self._counted, {}
        for run, began in list(self.cluster.history.controllers.handling.items()):
            counted, undisturbed_s = before.get(run, (None, 0.0))
            if counted is not began:
                undisturbed_s = 0.0
            elif self._is_undisturbed(run):
                undisturbed_s += INTERVAL_S
                self.cluster.report(HandlerWaits(*run, began.event, undisturbed_s))
            self._counted[run] = began, undisturbed_s

    def _report_unchecked_imbalance(self) -> None:
        """Report for how many seconds without faults the active controller has not checked leader imbalance."""
        controllers = self.cluster.history.controllers
        term = controllers.active
        if term is None or term.epoch not in controllers.completed_failovers or controllers.has_ended(term):
            return
        checks = controllers.imbalance_checks.get(term.epoch, 0)
        counted, undisturbed_s = self._unchecked
        if counted != (term.epoch, checks):
            undisturbed_s = 0.0
        elif self._is_undisturbed((term.broker, term.incarnation)):
            undisturbed_s += INTERVAL_S
            self.cluster.report(ImbalanceUnchecked(term, checks == 0, undisturbed_s))
        self._unchecked = (term.epoch, checks), undisturbed_s

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
