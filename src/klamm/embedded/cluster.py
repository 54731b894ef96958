"""A cluster on this machine: ZooKeeper and some nodes, which keep their data for the next start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from posixpath import abspath, join

from klamm.embedded.nodes import Command, NodeProcess, klamm_node, make_nodes, stop_all
from klamm.embedded.zookeeper import ServerOptions, ZooKeeperServer
from klamm.model.errors import KlammError, UsageError
from klamm.runtime.disk import DirectoryLock, Disk, RealDisk
from klamm.runtime.ports import free_port, free_ports, is_listening
from klamm.runtime.signals import ignoring_stop_signals
from klamm.runtime.small_files import create_directory
from klamm.telemetry.journal import JOURNAL_TOPIC


class CannotStart(KlammError):
    pass


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    directory: str
    node_count: int = 3
    zookeeper: str | None = None
    """`zookeeper.connect` of a running ensemble; None starts a ZooKeeper server."""
    first_port: int = 9092
    zookeeper_port: int = 2181
    overrides: Mapping[str, str] = field(default_factory=dict)
    command: Command = klamm_node
    zookeeper_options: ServerOptions = field(default_factory=ServerOptions)


class LocalCluster:
    """ZooKeeper and nodes as child processes; a context manager that stops all of them at its end.

    `on_killed` is called with a sentence for each node that did not stop in time.
    """

    def __init__(
        self, options: ClusterOptions, disk: Disk | None = None, on_killed: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.options = options
        self._on_killed = on_killed
        self.directory = abspath(options.directory)
        self._disk = disk or RealDisk()
        self._lock: DirectoryLock | None = None
        self.zookeeper: ZooKeeperServer | None = None
        if options.zookeeper is None:
            port = options.zookeeper_port or free_port()
            self.zookeeper = ZooKeeperServer(
                join(self.directory, "zookeeper"), port, options.zookeeper_options, disk=self._disk
            )
        ports = [options.first_port + i for i in range(options.node_count)]
        self.nodes: list[NodeProcess] = make_nodes(
            self.directory,
            ports if options.first_port else free_ports(options.node_count),
            self.zookeeper_connect,
            {"klamm.journal.topic": JOURNAL_TOPIC, **options.overrides},
            options.command,
            disk=self._disk,
        )

    @property
    def zookeeper_connect(self) -> str:
        """The connect string of the ZooKeeper that the nodes use."""
        if self.options.zookeeper is not None:
            return self.options.zookeeper
        assert self.zookeeper is not None
        return self.zookeeper.connect_string

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients of the cluster."""
        return ",".join(node.address for node in self.nodes)

    @property
    def nodes_with_data(self) -> list[NodeProcess]:
        """The nodes that have data from an earlier start."""
        return [node for node in self.nodes if node.has_data]

    def node(self, broker_id: int) -> NodeProcess:
        """Return the node with this broker id. Raises UsageError where there is none."""
        for node in self.nodes:
            if node.broker_id == broker_id:
                return node
        raise UsageError(f"There is no node {broker_id}: the nodes of this cluster are 1 to {len(self.nodes)}.")

    def __enter__(self) -> "LocalCluster":
        create_directory(self._disk, self.directory)
        self._lock = self._disk.lock(join(self.directory, ".lock"))
        if self._lock is None:
            raise CannotStart(
                f"Another klamm process uses {self.directory}. Stop it, or choose another directory with --data."
            )
        return self

    def __exit__(self, *_: object) -> None:
        with ignoring_stop_signals():
            self.stop()
        if self._lock is not None:
            self._lock.release()

    def start_zookeeper(self) -> None:
        """Start the cluster's own ZooKeeper, or check that the given ensemble answers."""
        if self.zookeeper is not None:
            self.zookeeper.start()
        else:
            self._check_ensemble()

    def _check_ensemble(self) -> None:
        """Raise CannotStart when the given ZooKeeper ensemble does not answer."""
        servers = self.zookeeper_connect.split("/")[0].split(",")
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdigit():
                raise CannotStart(f"--zookeeper {server!r} is not HOST:PORT. Give for example 127.0.0.1:2181.")
            if is_listening(host.strip("[]"), int(port)):
                return
        raise CannotStart(
            f"No ZooKeeper answers at {self.zookeeper_connect}. Start it, or omit --zookeeper to start one here."
        )

    def start_nodes(self) -> None:
        """Start all nodes at once, then wait until each listens."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_listening()

    def start_all(self) -> None:
        """Start ZooKeeper and the nodes at the same time, and wait until all of them serve requests."""
        assert self.zookeeper is not None
        self.zookeeper.start(wait=False)
        for node in self.nodes:
            node.start()
        self.zookeeper.wait_until_serving()
        for node in self.nodes:
            node.wait_until_listening()

    def kill(self) -> None:
        """Kill all processes (SIGKILL)."""
        for node in self.nodes:
            node.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()

    def stop(self) -> None:
        """Stop the nodes by controlled shutdown, then ZooKeeper. Processes that do not end in time are killed."""
        for node in stop_all(self.nodes):
            self._on_killed(f"{node.name} did not stop in time and was killed. Its log is {node.output_path}.")
        if self.zookeeper is not None:
            self.zookeeper.stop()
