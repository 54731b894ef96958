"""A cluster of real node processes for tests. Its state is read through librdkafka, an independent client."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic
from tests.support import zookeeper as zk

from klamm.embedded.nodes import Command, NodeProcess, klamm_node, make_nodes, stop_all
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.runtime.ports import free_ports
from klamm.runtime.processes import ticks

SESSION_TIMEOUT_S = 6
READY_TIMEOUT_S = 60
LOOK_S = 0.1
MOST_LINE_CHARS = 600


class Cluster:
    """Nodes 1..n with one ZooKeeper. `command` starts a klamm node or an Apache Kafka broker."""

    def __init__(
        self,
        directory: Path,
        node_count: int = 3,
        *,
        command: Command = klamm_node,
        overrides: Mapping[str, str] | None = None,
        zookeeper: ZooKeeperServer | None = None,
    ) -> None:
        self.directory = directory
        self.zookeeper = zookeeper or zk.server(directory / "zookeeper")
        self._owns_zookeeper = zookeeper is None
        properties = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000), **(overrides or {})}
        ports = free_ports(node_count)
        self.nodes = make_nodes(str(directory), ports, self.zookeeper.connect_string, properties, command)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def node(self, broker_id: int) -> NodeProcess:
        return next(n for n in self.nodes if n.broker_id == broker_id)

    def start(self) -> None:
        """Start all nodes, and wait until each knows all of them and a controller."""
        if self._owns_zookeeper:
            self.zookeeper.start()
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_listening()
        self.wait_until_complete()

    def stop(self) -> None:
        killed = stop_all(self.nodes)
        assert not killed, f"had to be killed: {[n.name for n in killed]}"

    def kill(self) -> None:
        """Kill all nodes and ZooKeeper."""
        for node in self.nodes:
            node.kill()
        if self._owns_zookeeper:
            self.zookeeper.kill()

    # ---- through librdkafka

    def admin(self, node: NodeProcess | None = None) -> AdminClient:
        """An AdminClient of this node, or of all nodes."""
        address = node.address if node else self.bootstrap
        return AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 5000, "log_level": 0})

    def metadata(self, node: NodeProcess | None = None) -> ClusterMetadata:
        """The metadata of this node, or of any node."""
        return self.admin(node).list_topics(timeout=10)

    @property
    def controller_id(self) -> int:
        """From the metadata; -1 when there is none."""
        return int(self.metadata().controller_id)

    def wait_until(self, what: str, holds: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        for _ in ticks(timeout_s, LOOK_S):
            try:
                if holds():
                    return
            except KafkaException:
                continue
        raise AssertionError(f"not within {timeout_s:g} s: {what}\n{self.recent_logs()}")

    def wait_until_complete(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until all running nodes know each other and a live controller."""
        running = {n.broker_id for n in self.nodes if n.is_running}

        def complete(node: NodeProcess) -> bool:
            known = self.metadata(node)
            return set(known.brokers) == running and known.controller_id in running

        for node in self.nodes:
            if node.is_running:
                self.wait_until(f"{node.name} knows nodes {sorted(running)}", partial(complete, node), timeout_s)

    def create_topic(
        self, name: str, partitions: int = 3, copies: int = 3, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and wait until every node knows a leader of every partition."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=copies, config=dict(config or {}))
        admin = self.admin()  # it must outlive the answer
        admin.create_topics([topic], request_timeout=30)[name].result()
        self.wait_until_in_sync(name, partitions, copies)

    def wait_until_in_sync(self, topic: str, partitions: int, copies: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        def in_sync(node: NodeProcess) -> bool:
            found = self.metadata(node).topics.get(topic)
            return (
                found is not None
                and len(found.partitions) == partitions
                and all(len(p.isrs) == copies and p.leader >= 0 for p in found.partitions.values())
            )

        for node in self.nodes:
            if node.is_running:
                what = f"{node.name} sees {copies} in-sync replicas of each of {partitions} partitions of {topic}"
                self.wait_until(what, partial(in_sync, node), timeout_s)

    def wait_until_forgotten(self, broker_id: int, timeout_s: float = SESSION_TIMEOUT_S + 15) -> None:
        """Wait until no node has the dead broker in its metadata. Apache Kafka cannot restart earlier."""

        def is_gone(node: NodeProcess) -> bool:
            return broker_id not in self.metadata(node).brokers

        for node in self.nodes:
            if node.is_running:
                what = f"{node.name} knows that node {broker_id} is gone"
                self.wait_until(what, partial(is_gone, node), timeout_s)

    def recent_logs(self) -> str:
        """The last log lines of each node, for the report of a failed test."""
        return "\n".join(
            f"--- {node.name}, status {node.child.exit_status}\n{_shortened(node.child.log_tail(8))}"
            for node in self.nodes
            if node.child
        )


def _shortened(lines: str) -> str:
    return "\n".join(line[:MOST_LINE_CHARS] for line in lines.splitlines())


@contextmanager
def running_cluster(
    directory: Path, node_count: int = 3, *, command: Command = klamm_node, overrides: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A started cluster, killed at the end."""
    cluster = Cluster(directory, node_count, command=command, overrides=overrides)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
