"""The cluster of `klamm.testing`, whose state is also read through librdkafka, an independent client."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from klamm.embedded.nodes import NodeProcess, stop_all
from klamm.testing import cluster
from klamm.testing.cluster import SESSION_TIMEOUT_S

__all__ = ["SESSION_TIMEOUT_S", "Cluster"]


class Cluster(cluster.Cluster):
    """Nodes 1..n with one ZooKeeper. `command` starts a klamm node or an Apache Kafka broker."""

    transient_errors = (*cluster.Cluster.transient_errors, KafkaException)

    def stop(self) -> None:
        """Stop the nodes by controlled shutdown."""
        killed = stop_all(self.nodes)
        assert not killed, f"had to be killed: {[n.name for n in killed]}"

    def admin(self, node: NodeProcess | None = None) -> AdminClient:
        """An AdminClient of this node, or of all nodes."""
        address = node.address if node else self.bootstrap
        return AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 5000, "log_level": 0})

    def metadata(self, node: NodeProcess | None = None) -> ClusterMetadata:
        """The metadata of this node, or of any node."""
        return self.admin(node).list_topics(timeout=10)
