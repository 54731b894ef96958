"""Faults on a running cluster, and how long the cluster may take to recover. One fault at a time."""

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from kazoo.client import KazooClient
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster
from tests.support.workload import Workload

from klamm.embedded.nodes import NodeProcess

HEAL_S = SESSION_TIMEOUT_S + 15.0
"""From the fault, or from its end, until every partition has all its replicas in sync."""


class Recovery(NamedTuple):
    """How long the cluster took to recover from a fault."""

    fault: str
    healed_s: float
    longest_gap_s: float

    def __str__(self) -> str:
        return f"{self.fault}: in sync again after {self.healed_s:.1f} s, longest gap {self.longest_gap_s:.1f} s"


class FaultCampaign:
    """Faults on a cluster under load. `copies` is the replication factor of the workload's topic."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        copies: int = 3,
        seed: int = 0,
        *,
        restart_at_once: bool = True,
        heal_s: float = HEAL_S,
    ) -> None:
        self.cluster = cluster
        self.workload = workload
        self.copies = copies
        self._heal_s = heal_s
        self._rng = random.Random(seed)
        self._restart_at_once = restart_at_once  # Apache Kafka cannot register while its old session lives

    def choose_node(self, controller: bool) -> NodeProcess:
        """The controller's node, or another one."""
        active = self.cluster.controller_id
        nodes = [n for n in self.cluster.nodes if (n.broker_id == active) == controller]
        return self._rng.choice(nodes)

    def kill(self, node: NodeProcess) -> Recovery:
        """Kill the node by SIGKILL and restart it; return how long the recovery took."""
        role = "controller" if node.broker_id == self.cluster.controller_id else "broker"

        def fault() -> None:
            node.kill()
            if not self._restart_at_once:
                self.cluster.wait_until_forgotten(node.broker_id)
            node.start()

        return self._inject(f"SIGKILL of node {node.broker_id} ({role})", fault)

    def stop(self, node: NodeProcess) -> Recovery:
        """Stop the node by SIGTERM and restart it; return how long the recovery took."""

        def fault() -> None:
            node.stop()
            node.start()

        return self._inject(f"SIGTERM of node {node.broker_id}", fault)

    def freeze(self, node: NodeProcess, seconds: float) -> Recovery:
        """Pause the node for some seconds (SIGSTOP, SIGCONT)."""

        def fault() -> None:
            node.pause()
            time.sleep(seconds)  # the fault itself has a length
            node.resume()

        return self._inject(f"SIGSTOP of node {node.broker_id} for {seconds:g} s", fault)

    def cut_off(self, node: NodeProcess, seconds: float) -> Recovery:
        """Partition the node from the other nodes and ZooKeeper for some seconds; needs `network_faults`."""

        def fault() -> None:
            self.cluster.partition(node.broker_id)
            time.sleep(seconds)  # the fault itself has a length
            self.cluster.join()

        return self._inject(f"node {node.broker_id} cut off for {seconds:g} s", fault)

    def impair_network(
        self, name: str, impair: Callable[[], None], heal: Callable[[], None], seconds: float
    ) -> Recovery:
        """Let packets be lost for some seconds; `heal` is called in any case."""

        def fault() -> None:
            try:
                impair()
                time.sleep(seconds)  # the fault itself has a length
            finally:
                heal()

        return self._inject(f"{name} for {seconds:g} s", fault)

    def stop_zookeeper(self, seconds: float) -> Recovery:
        """Kill ZooKeeper, and restart it with its data after `seconds`."""

        def fault() -> None:
            self.cluster.zookeeper.kill()
            time.sleep(seconds)
            self.cluster.zookeeper.start()

        return self._inject(f"ZooKeeper gone for {seconds:g} s", fault)

    def unregister(self, node: NodeProcess) -> Recovery:
        """Delete the registration of a live broker."""

        def fault() -> None:
            client = KazooClient(self.cluster.zookeeper.connect_string)
            client.start()
            client.delete(f"/brokers/ids/{node.broker_id}")
            client.stop()
            client.close()

        return self._inject(f"registration of node {node.broker_id} deleted", fault)

    def _inject(self, name: str, fault: Callable[[], None]) -> Recovery:
        """Inject a fault, and wait until acknowledgements continue and all replicas are in sync."""
        began = time.monotonic()
        fault()
        ended = time.monotonic()
        self._wait_until_acknowledged_again()
        self.cluster.wait_until_complete(self._heal_s)
        left_s = max(1.0, self._heal_s - (time.monotonic() - ended))
        self.cluster.wait_until_in_sync(self.workload.topic, self.workload.partitions, self.copies, left_s)
        return Recovery(name, time.monotonic() - began, self.workload.longest_gap_s(since=began))

    def _wait_until_acknowledged_again(self) -> None:
        """Wait until the workload gets acknowledgements again."""
        count = len(self.workload.acknowledged)
        self.cluster.wait_until(
            "a record is acknowledged again", lambda: len(self.workload.acknowledged) > count, self._heal_s
        )
