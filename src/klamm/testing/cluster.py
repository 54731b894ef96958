"""A cluster of real node processes for tests, with ZooKeeper: nodes fail as the test says, and nothing stays behind.

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders")
        cluster.node(2).kill()

Every method blocks, and may be called from any thread: `await asyncio.to_thread(cluster.node(2).restart)`.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self, TypeVar

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.groups import read_ends
from klamm.cli.admin.topic_changes import NewTopic, create, creation_errors, delete
from klamm.cli.commands.explain import parse_subject
from klamm.client.offsets import EARLIEST, LATEST
from klamm.embedded.cluster import ClusterOptions, LocalCluster
from klamm.embedded.nodes import Command, NodeProcess, klamm_node
from klamm.embedded.zookeeper import QUICK, ZooKeeperServer
from klamm.explain.sources import Sources, read_inputs
from klamm.model.cluster import Cluster as Metadata
from klamm.model.cluster import Partition, parse_addresses
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import TopicPartition
from klamm.runtime.background import BackgroundLoop
from klamm.runtime.disk import PathText, RealDisk, make_temporary_directory, path_text
from klamm.runtime.processes import ticks
from klamm.runtime.world import real_world
from klamm.testing.errors import raise_refusals
from klamm.testing.groups import ConsumerGroup
from klamm.testing.links import ZOOKEEPER, Links
from klamm.testing.network import owning_node, pairs_between, route_through_proxies

T = TypeVar("T")
SESSION_TIMEOUT_S: Final = 6
READY_TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.1
_ANSWER_TIMEOUT_S: Final = 30.0
_ONE_NODE_TIMEOUT_S: Final = 10.0
_EXCERPT_LINES: Final = 12
_MAX_LINE_CHARS: Final = 600


class Cluster:
    """Nodes 1 to `brokers` with one ZooKeeper; a context manager that starts them, and kills all of them at its end.

    `overrides` are configs of all nodes, numbers and truth values, too; `racks` are given to the nodes in turn. Without
    `directory` the data is in a temporary one, which the end of the block removes. `network_faults` is needed for
    `partition`. `command` starts a node; another one may start Apache Kafka's broker.
    """

    transient_errors: tuple[type[Exception], ...] = (CannotAsk,)
    """With these a condition of `wait_until` does not hold yet."""

    def __init__(
        self,
        directory: PathText | None = None,
        brokers: int = 3,
        *,
        racks: Sequence[str] = (),
        overrides: Mapping[str, object] | None = None,
        network_faults: bool = False,
        command: Command = klamm_node,
    ) -> None:
        if brokers < 1:
            raise UsageError(f"brokers={brokers}: a cluster needs at least one node. Give 1 or more.")
        self._is_temporary = directory is None
        self.directory = make_temporary_directory("klamm-") if directory is None else path_text(directory)
        properties = {
            "klamm.journal.topic": "",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000),
            **{key: str(value) for key, value in (overrides or {}).items()},
        }
        options = ClusterOptions(self.directory, brokers, None, 0, 0, properties, command, zookeeper_options=QUICK)
        self._local = LocalCluster(options)
        self.nodes: list[NodeProcess] = self._local.nodes
        for number, node in enumerate(self.nodes):
            if racks:
                node.properties["broker.rack"] = racks[number % len(racks)]
        self._background: BackgroundLoop | None = None
        self._links: Links | None = None
        self._paths = route_through_proxies(self.nodes, self.zookeeper.port) if network_faults else None

    # ---- life

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def zookeeper(self) -> ZooKeeperServer:
        """The ZooKeeper server of the cluster."""
        assert self._local.zookeeper is not None
        return self._local.zookeeper

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return self._local.bootstrap

    def node(self, broker_id: int) -> NodeProcess:
        """Return the node with this broker id; the test may `kill`, `stop`, `restart`, `pause` and `resume` it.

        Raises UsageError where there is none.
        """
        return self._local.node(broker_id)

    def start(self) -> None:
        """Start ZooKeeper and all nodes, and wait until each node knows all of them and a controller."""
        self.open_network()
        self._local.start_all()
        self.wait_until_complete()

    def open_network(self) -> None:
        """Open the proxies of a cluster with `network_faults`, before its first node starts."""
        if self._paths is not None:
            self._links = Links(real_world().network, partial(owning_node, self.nodes))
            self._loop.run(self._links.open(self._paths))
            self._paths = None

    def kill(self) -> None:
        """Kill all processes, and remove the data where its directory is temporary."""
        self._local.kill()
        if self._background is not None:
            if self._links is not None:
                self._background.run(self._links.close())
            self._background.close()
            self._background = None
        if self._is_temporary:
            with suppress(FileNotFoundError):
                RealDisk().remove_tree(self.directory)

    @property
    def is_whole(self) -> bool:
        """Whether ZooKeeper and all nodes run, none is paused, and no link is cut."""
        has_zookeeper = self.zookeeper.is_running and not self.zookeeper.is_paused
        running = has_zookeeper and all(n.is_running and not n.is_paused for n in self.nodes)
        return running and not (self._links is not None and self._links.is_cut)

    def repair(self) -> None:
        """End network partitions, resume paused processes, start dead ones, and wait until all nodes are ready."""
        if self._links is not None:
            self.join()
        self.zookeeper.resume()
        if not self.zookeeper.is_running:
            self.zookeeper.start()
        for node in self.nodes:
            node.resume()
            if not node.is_running:
                node.start()
        for node in self.nodes:
            node.wait_until_listening()
        self.wait_until_complete()

    # ---- the network

    def partition(self, *broker_ids: int, zookeeper: bool = True) -> None:
        """Cut these nodes off from all other nodes and, unless `zookeeper` is False, from ZooKeeper.

        Clients reach all nodes as before. Needs `network_faults=True`; `join` ends it. Raises UsageError.
        """
        if self._links is None:
            raise UsageError("partition() needs a cluster that was started with network_faults=True.")
        cut_off = {self.node(broker_id).broker_id for broker_id in broker_ids}
        others = {node.broker_id for node in self.nodes} - cut_off
        pairs = pairs_between(cut_off, others | ({ZOOKEEPER} if zookeeper else set()))
        self._loop.call(self._links.cut, pairs)

    def join(self) -> None:
        """End all partitions of the network and deliver held-back bytes. Raises UsageError without `network_faults`."""
        if self._links is None:
            raise UsageError("join() needs a cluster that was started with network_faults=True.")
        self._loop.call(self._links.join)

    # ---- questions

    def ask(
        self,
        work: Callable[[Admin], Awaitable[T]],
        timeout_s: float = _ANSWER_TIMEOUT_S,
        node: NodeProcess | None = None,
    ) -> T:
        """Run a coroutine with a client of this node, or of all that run, and return its result. Raises CannotAsk."""
        nodes = [node] if node else [n for n in self.nodes if n.is_running and not n.is_paused] or self.nodes
        addresses = parse_addresses(",".join(n.address for n in nodes))

        async def run_with_client() -> T:
            """Connect, run `work`, and close the connections."""
            async with Admin(real_world(), addresses, timeout_s) as admin:
                return await work(admin)

        return self._loop.run(run_with_client())

    def describe(self, topics: Sequence[str] | None = None, node: NodeProcess | None = None) -> Metadata:
        """Return brokers, controller and topics (all, or those of `topics` that exist) from the metadata of a node."""
        return self.ask(lambda admin: read_cluster(admin, topics), _ONE_NODE_TIMEOUT_S, node)

    @property
    def controller_id(self) -> int:
        """The broker id of the controller from the metadata; -1 when there is none."""
        return int(self.describe(()).controller)

    def partition_state(self, topic: str, number: int = 0) -> Partition:
        """Leader, replicas and ISR of a partition. Raises KeyError where it does not exist."""
        return self.describe([topic]).topics[topic].partitions[number]

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset and the end of each partition. Raises KeyError where the topic does not exist."""

        async def read(admin: Admin) -> dict[int, tuple[int, int]]:
            """Read the earliest and latest offset of all partitions."""
            partitions = [
                TopicPartition(topic, n) for n in (await read_cluster(admin, [topic])).topics[topic].partitions
            ]
            starts, ends = await read_ends(admin, partitions, EARLIEST), await read_ends(admin, partitions, LATEST)
            return {p.partition: (starts[p], ends[p]) for p in partitions}

        return self.ask(read)

    def group(self, name: str) -> ConsumerGroup:
        """The consumer group with this name."""
        return ConsumerGroup(self, name)

    def explain(self, *subject: str) -> list[str]:
        """The lines that `klamm explain` prints for a subject, for example `"orders-0"` or `"broker", "2"`."""
        parsed = parse_subject(subject)
        sources = Sources(self.directory, zookeeper=self.zookeeper.connect_string)
        read = partial(read_inputs, sources, RealDisk(), parsed.needed_lines)
        return list(parsed.answer(self._loop.run(RealDisk().in_thread(read))).lines)

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 3,
        copies: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic and wait until all replicas are in sync and known to every node.

        The replication factor is 3, or the number of nodes if there are fewer. Values of `config` may be numbers and
        truth values. Raises RequestFailed.
        """
        count = min(3, len(self.nodes)) if copies is None else copies
        topic = NewTopic(name, partitions, count, None, {key: str(value) for key, value in (config or {}).items()})
        refusal = self.ask(lambda admin: create(admin, topic))
        raise_refusals([refusal] if refusal else [])
        self.wait_until_in_sync(name, partitions, count)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until no running node has it in its metadata and its name is free again.

        Kafka keeps the name until all nodes with replicas of the topic have deleted them: while one of these is down or
        paused, this method does not wait for the name. Raises RequestFailed, AssertionError at the timeout.
        """
        found = self.describe([name]).topics.get(name)
        replicas = {broker for p in found.partitions.values() for broker in p.replicas} if found else set()
        raise_refusals(self.ask(lambda admin: delete(admin, [name])))

        def is_gone(node: NodeProcess) -> bool:
            """Whether this node does not have the topic in its metadata."""
            return name not in self.describe([name], node).topics

        def is_free() -> bool:
            """Whether a topic with this name could be created."""
            codes = self.ask(lambda admin: creation_errors(admin, [name]))
            return codes[name] != ErrorCode.TOPIC_ALREADY_EXISTS

        for node in self._running():
            self.wait_until(f"{node.name} has forgotten {name}", partial(is_gone, node))
        if replicas <= {node.broker_id for node in self._running()}:
            self.wait_until(f"the name {name} is free in ZooKeeper", is_free)

    # ---- waiting

    def wait_until(self, what: str, holds: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the condition holds. Raises AssertionError with `what` and the last log lines of the nodes."""
        error: Exception | None = None
        for _ in ticks(timeout_s, _LOOK_S):
            try:
                if holds():
                    return
                error = None
            except self.transient_errors as transient:
                error = transient
        because = f" ({error})" if error else ""
        raise AssertionError(f"gave up after {timeout_s:g} s of waiting until {what}{because}\n{self.recent_logs()}")

    def wait_until_complete(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until all running nodes know each other and a live controller."""
        running = {n.broker_id for n in self._running()}

        def is_complete(node: NodeProcess) -> bool:
            """Whether this node has all running nodes and a live controller in its metadata."""
            known = self.describe((), node)
            return set(known.brokers) == running and known.controller in running

        for node in self._running():
            self.wait_until(f"{node.name} knows nodes {sorted(running)}", partial(is_complete, node), timeout_s)

    def wait_until_in_sync(self, topic: str, partitions: int, copies: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every running node knows a leader and `copies` in-sync replicas of each partition."""

        def is_in_sync(node: NodeProcess) -> bool:
            """Whether this node has a leader and enough in-sync replicas of each partition in its metadata."""
            found = self.describe([topic], node).topics.get(topic)
            return (
                found is not None
                and len(found.partitions) == partitions
                and all(len(p.isr) == copies and p.leader >= 0 for p in found.partitions.values())
            )

        for node in self._running():
            what = f"{node.name} sees {copies} in-sync replicas of each of {partitions} partitions of {topic}"
            self.wait_until(what, partial(is_in_sync, node), timeout_s)

    def wait_until_forgotten(self, broker_id: int, timeout_s: float = SESSION_TIMEOUT_S + 15) -> None:
        """Wait until no running node has the dead broker in its metadata. Apache Kafka cannot restart earlier."""

        def is_gone(node: NodeProcess) -> bool:
            """Whether this node does not have the broker in its metadata."""
            return broker_id not in self.describe((), node).brokers

        for node in self._running():
            what = f"{node.name} knows that node {broker_id} is gone"
            self.wait_until(what, partial(is_gone, node), timeout_s)

    # ---- logs

    def log_excerpts(self, lines: int = _EXCERPT_LINES) -> dict[str, str]:
        """The last log lines of each process that was started, by its name and state."""
        children = [(node.name, node.child) for node in self.nodes]
        children.append(("ZooKeeper", self.zookeeper.child))
        excerpts = {}
        for name, child in children:
            if child is not None:
                state = "running" if child.is_running else f"ended with status {child.exit_status}"
                text = "\n".join(line[:_MAX_LINE_CHARS] for line in child.log_tail(lines).splitlines())
                excerpts[f"{name} ({state})"] = text
        return excerpts

    def recent_logs(self) -> str:
        """The last log lines of all processes as one text."""
        return "\n".join(f"--- {title}\n{text}" for title, text in self.log_excerpts().items())

    def _running(self) -> Collection[NodeProcess]:
        """The nodes that run and are not paused."""
        return [node for node in self.nodes if node.is_running and not node.is_paused]

    @property
    def _loop(self) -> BackgroundLoop:
        """The background event loop of clients and proxies; started when it is first needed."""
        if self._background is None:
            self._background = BackgroundLoop("klamm-testing")
        return self._background
