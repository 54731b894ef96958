"""`klamm up`: ZooKeeper and a few nodes on this machine, until Ctrl-C; what they hold stays for the next start."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from posixpath import abspath, join
from typing import Final

from klamm.cli.cluster import NodeProcess, make_nodes, stop_all
from klamm.cli.explaining.sources import JOURNAL_TOPIC
from klamm.cli.speech import complain, say, show
from klamm.cli.zookeeper import ZooKeeperServer
from klamm.model.errors import KlammError
from klamm.runtime.disk import DirectoryLock, Disk, RealDisk
from klamm.runtime.ports import free_port, is_listening
from klamm.runtime.processes import pause_s
from klamm.runtime.signals import ignoring_stop_signals, interrupted_by_stop_signals

WATCH_INTERVAL_S: Final = 0.5


class CannotStart(KlammError):
    pass


@dataclass(frozen=True, slots=True)
class UpOptions:
    directory: str
    node_count: int = 3
    zookeeper: str | None = None
    """An ensemble to use, as `zookeeper.connect` names it; None: start a server of our own."""
    first_port: int = 9092
    zookeeper_port: int = 2181
    overrides: Mapping[str, str] = field(default_factory=dict)


class LocalCluster:
    """The processes of one `up`; a context manager that leaves none behind."""

    def __init__(self, options: UpOptions, disk: Disk | None = None) -> None:
        self.options = options
        self.directory = abspath(options.directory)
        self._disk = disk or RealDisk()
        self._lock: DirectoryLock | None = None
        self.zookeeper: ZooKeeperServer | None = None
        if options.zookeeper is None:
            port = options.zookeeper_port or free_port()
            self.zookeeper = ZooKeeperServer(join(self.directory, "zookeeper"), port, disk=self._disk)
        self.nodes: list[NodeProcess] = make_nodes(
            self.directory,
            [options.first_port + i if options.first_port else free_port() for i in range(options.node_count)],
            self.zookeeper_connect,
            {"klamm.journal.topic": JOURNAL_TOPIC, **options.overrides},
            disk=self._disk,
        )

    @property
    def zookeeper_connect(self) -> str:
        if self.options.zookeeper is not None:
            return self.options.zookeeper
        assert self.zookeeper is not None
        return self.zookeeper.connect_string

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def found_data(self) -> list[NodeProcess]:
        """The nodes that were here before."""
        return [node for node in self.nodes if node.has_data]

    def node(self, broker_id: int) -> NodeProcess:
        return next(n for n in self.nodes if n.broker_id == broker_id)

    def __enter__(self) -> "LocalCluster":
        self._disk.make_directories(self.directory)
        self._lock = self._disk.lock(join(self.directory, ".lock"))
        if self._lock is None:
            raise CannotStart(
                f"another klamm uses the directory {self.directory}: stop it, or name another with --data"
            )
        return self

    def __exit__(self, *_: object) -> None:
        with ignoring_stop_signals():
            self.stop()
        if self._lock is not None:
            self._lock.release()

    def start_zookeeper(self) -> None:
        if self.zookeeper is not None:
            self.zookeeper.start()
        else:
            self._check_ensemble()

    def _check_ensemble(self) -> None:
        servers = self.zookeeper_connect.split("/")[0].split(",")
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdigit():
                raise CannotStart(f"--zookeeper {server!r} is not HOST:PORT, for example 127.0.0.1:2181")
            if is_listening(host.strip("[]"), int(port)):
                return
        raise CannotStart(f"no ZooKeeper answers at {self.zookeeper_connect}: start it, or leave --zookeeper away")

    def start_nodes(self) -> None:
        """Start all at once, and wait until each listens."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_listening()

    def stop(self) -> None:
        """Nodes first, by controlled shutdown, then ZooKeeper; what does not end is killed."""
        for node in stop_all(self.nodes):
            complain(f"{node.name} did not stop within its time and was killed; its log is {node.output_path}")
        if self.zookeeper is not None:
            self.zookeeper.stop()


def up(options: UpOptions) -> int:
    """Run until asked to stop; the exit status. Raises KlammError where it cannot start."""
    if options.node_count < 1:
        raise CannotStart(f"--nodes {options.node_count}: a cluster has at least one node")
    with ExitStack() as stack:
        stack.enter_context(interrupted_by_stop_signals())
        try:
            cluster = stack.enter_context(LocalCluster(options))
            _start(cluster)
            _watch(cluster)
        except KeyboardInterrupt:
            say("stopping")
            stack.close()
            say("stopped; the data stays in " + abspath(options.directory))
            return 0
    return 1


def _start(cluster: LocalCluster) -> None:
    if found := cluster.found_data:
        say(f"found the data of an earlier run in {cluster.directory} ({', '.join(n.name for n in found)})")
    if cluster.zookeeper is not None:
        say(f"starting ZooKeeper on {cluster.zookeeper_connect}")
    cluster.start_zookeeper()
    say(f"starting {len(cluster.nodes)} nodes")
    cluster.start_nodes()
    show(
        ("node", "address", "data", "log"),
        [(n.broker_id, n.address, n.log_directory, n.output_path) for n in cluster.nodes],
    )
    say(f"connect with bootstrap.servers={cluster.bootstrap}")
    say(f"ZooKeeper is {cluster.zookeeper_connect}")
    say(f"a partition's story: klamm explain TOPIC-PARTITION --data {cluster.directory}")
    say("Ctrl-C stops everything and keeps the data")


def _watch(cluster: LocalCluster) -> None:
    """Say once of each process that it ended; return when no node is left."""
    watched: Sequence[NodeProcess] = cluster.nodes
    while watched:
        pause_s(WATCH_INTERVAL_S)
        for node in watched:
            if not node.is_running:
                complain(node.why_ended())
        watched = [node for node in watched if node.is_running]
        if cluster.zookeeper is not None and not cluster.zookeeper.is_running:
            complain(f"ZooKeeper ended; its log is {join(cluster.zookeeper.directory, 'zookeeper.log')}")
            return
    complain("no node is left")
