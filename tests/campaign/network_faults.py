"""What may happen to the network around a node, drawn by chance, in a campaign whose nodes are in namespaces."""

import random
from collections.abc import Callable

from tests.campaign.network import CAMPAIGN, ZOOKEEPER, Network, member
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster
from tests.support.faults import FaultCampaign, Recovery

from klamm.embedded.nodes import NodeProcess

BEYOND_SESSION_S = SESSION_TIMEOUT_S + 4
BEYOND_REQUESTS_S = 35
"""Longer than the timeouts of requests between nodes (30 s)."""
SHORT_S = 2
LOST_SHARE = 0.3


class NetworkFaults:
    """Each fault is one of a list; afterwards no packet is dropped, also where the cluster does not recover."""

    def __init__(self, network: Network, cluster: Cluster, faults: FaultCampaign, rng: random.Random) -> None:
        self._network, self._cluster, self._faults, self._rng = network, cluster, faults, rng

    def inject(self, node: NodeProcess) -> Recovery:
        """One fault around this node, and how long the cluster took to recover after its end."""
        choices: list[tuple[int, Callable[[NodeProcess], tuple[str, Callable[[], None]]]]] = [
            (3, self._from_all),
            (3, self._from_cluster),
            (2, self._from_zookeeper),
            (2, self._from_one_node),
            (2, self._one_way),
            (2, self._lossy),
        ]
        [draw] = self._rng.choices([choice for _, choice in choices], [weight for weight, _ in choices])
        name, impair = draw(node)
        [seconds] = self._rng.choices((SHORT_S, BEYOND_SESSION_S, BEYOND_REQUESTS_S), (2, 5, 1))
        return self._faults.impair_network(name, impair, self._network.heal, seconds)

    def _from_all(self, node: NodeProcess) -> tuple[str, Callable[[], None]]:
        """Neither nodes nor ZooKeeper nor clients reach the node."""
        return self._cut(node, {*self._peers(node), ZOOKEEPER, CAMPAIGN}, "everything")

    def _from_cluster(self, node: NodeProcess) -> tuple[str, Callable[[], None]]:
        """Clients reach the node, which may not yet know that it leads no more."""
        return self._cut(node, {*self._peers(node), ZOOKEEPER}, "nodes and ZooKeeper")

    def _from_zookeeper(self, node: NodeProcess) -> tuple[str, Callable[[], None]]:
        """The session ends, and all connections go on."""
        return self._cut(node, {ZOOKEEPER}, "ZooKeeper")

    def _from_one_node(self, node: NodeProcess) -> tuple[str, Callable[[], None]]:
        """Both nodes keep their sessions: nobody is elected, and a follower fetches nothing."""
        other = self._rng.choice(self._peers(node))
        return self._cut(node, {other}, other)

    def _one_way(self, node: NodeProcess) -> tuple[str, Callable[[], None]]:
        """Packets arrive in one direction alone."""
        here, others = member(node.broker_id), [*self._peers(node), ZOOKEEPER]
        is_deaf = self._rng.random() < 0.5

        def impair() -> None:
            for other in others:
                self._network.lose(*((other, here) if is_deaf else (here, other)))

        return f"node {node.broker_id} {'hears' if is_deaf else 'reaches'} neither nodes nor ZooKeeper", impair

    def _lossy(self, node: NodeProcess) -> tuple[str, Callable[[], None]]:
        """A share of all packets is lost in both directions, also those of clients."""
        here, others = member(node.broker_id), [*self._peers(node), ZOOKEEPER, CAMPAIGN]

        def impair() -> None:
            for other in others:
                self._network.lose(here, other, LOST_SHARE)
                self._network.lose(other, here, LOST_SHARE)

        return f"node {node.broker_id} loses {LOST_SHARE:.0%} of packets", impair

    def _cut(self, node: NodeProcess, others: set[str], what: str) -> tuple[str, Callable[[], None]]:
        name = f"node {node.broker_id} cut off from {what}"
        return name, lambda: self._network.cut({member(node.broker_id)}, sorted(others))

    def _peers(self, node: NodeProcess) -> list[str]:
        """The other nodes."""
        return [member(n.broker_id) for n in self._cluster.nodes if n is not node]
