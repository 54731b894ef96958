"""klamm and Apache Kafka nodes over one ZooKeeper: change the controller, and check that all nodes agree."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry
from tests.support import apache_kafka
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster
from tests.support.forked_klamm import run_klamm

from klamm.embedded.nodes import NodeProcess, klamm_node, local_properties
from klamm.runtime.ports import free_ports
from klamm.runtime.processes import ticks

KLAMM: Final = 100
KAFKA: Final = (1, 2, 3)
ELECTION_TIMEOUT_S: Final = SESSION_TIMEOUT_S + 20.0
Assignment = Mapping[int, Sequence[int]]
"""Partition -> replicas, the preferred one first."""
_COMPLAINT: Final = re.compile(r"^\S+ \S+ (?:ERROR|FATAL) (.*(?:\n[\w.]+Exception:.*)?)$", re.MULTILINE)
_EXPECTED: Final = re.compile(
    r"\[Controller id=\d+"  # its own controller's, which moves adding replicas to NewReplica again at a failover
    r"|RequestSendThread controllerId="  # its own controller's again, to a broker that has just gone
    r"|cannot become follower since the new leader -1 is unavailable"  # as under its own: a partition without a leader
    r"|Error processing append operation .*\n.*(?:NotEnoughReplicas|OutOfOrderSequence)"  # two of three brokers gone
    r"|Error processing append operation .*\n.*TransactionCoordinatorFenced"  # a replaced coordinator's markers
    r"|Unexpected error .*\n.*ControllerMovedException: .* from an old controller"  # the guard against zombies
)


def log_dirs_of(node: NodeProcess) -> list[str]:
    """The log directories of a node."""
    return node.properties["log.dirs"].split(",")


class MixedCluster(Cluster):
    """Node 100 is klamm's, nodes 1-3 are Apache Kafka's; `kafka` and `klamm` name others."""

    def __init__(
        self,
        directory: Path,
        protocol: str = "3.9",
        *,
        kafka: Sequence[int] = KAFKA,
        klamm: Sequence[int] = (KLAMM,),
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        ids = [*klamm, *kafka]
        super().__init__(directory, len(ids))
        properties = {
            **local_properties(self.zookeeper.connect_string, len(kafka)),
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000),
            "inter.broker.protocol.version": protocol,
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "log.segment.delete.delay.ms": "500",
            "log.initial.task.delay.ms": "500",
            "offsets.topic.num.partitions": "3",
            "replica.lag.time.max.ms": "5000",
            "replica.fetch.max.bytes": "20000",  # so that a throttle holds from the second fetch on
            **(overrides or {}),
        }
        self._bootstrap_ids = tuple(kafka)
        self.nodes[:] = [
            NodeProcess(
                broker_id,
                port,
                str(directory / f"node-{broker_id}"),
                properties,
                apache_kafka.broker() if broker_id in kafka else klamm_node,
            )
            for broker_id, port in zip(ids, free_ports(len(ids)), strict=True)
        ]
        self._znodes: KazooClient | None = None

    def add_log_directory(self, broker_id: int) -> None:
        """Give a node that has never started a second log directory."""
        more = Path(self.directory) / f"node-{broker_id}" / "more-logs"
        more.mkdir(parents=True)
        self.node(broker_id).properties["log.dirs"] += f",{more}"

    # ---- life

    @property
    def bootstrap(self) -> str:
        """The nodes that were Apache Kafka's at first, because klamm's node is stopped and started."""
        return ",".join(self.node(i).address for i in self._bootstrap_ids)

    @property
    def kafka_ids(self) -> tuple[int, ...]:
        """The nodes that are Apache Kafka's brokers now."""
        return tuple(node.broker_id for node in self.nodes if node.command is not klamm_node)

    def replace_node(self, broker_id: int) -> None:
        """Let the next start of a stopped node be the other kind's, with the same id, address and log directories."""
        node = self.node(broker_id)
        assert not node.is_running, f"{node.name} is running"
        node.command = apache_kafka.broker() if node.command is klamm_node else klamm_node

    def start_first(self, broker_id: int) -> None:
        """Start ZooKeeper and one node, which becomes controller."""
        self.zookeeper.start()
        self.start_node(broker_id)
        self.wait_for_controller({broker_id})

    def start_others(self) -> None:
        """Start the other nodes, and wait until they serve."""
        waiting = [node for node in self.nodes if not node.is_running]
        for node in waiting:
            node.start()
        for node in waiting:
            self._wait_until_started(node)
        self.wait_until_complete()

    def start_node(self, broker_id: int) -> None:
        """Start it and wait until it serves."""
        node = self.node(broker_id)
        node.start()
        self._wait_until_started(node)

    def kill_node(self, broker_id: int) -> None:
        """SIGKILL, and wait until its session has expired."""
        self.node(broker_id).kill()
        self.wait_until_forgotten(broker_id)

    def stop_node(self, broker_id: int) -> None:
        """SIGTERM: a controlled shutdown; asserts that it ends."""
        node = self.node(broker_id)
        assert node.child is not None
        node.terminate()
        assert node.child.wait(60) is not None, f"{node.name} does not end: {node.child.log_tail()}"

    def kill(self) -> None:
        if self._znodes is not None:
            self._znodes.stop()
            self._znodes.close()
        super().kill()

    def _wait_until_started(self, node: NodeProcess) -> None:
        if node.broker_id in self.kafka_ids:
            apache_kafka.wait_until_started(node, 120)
        else:
            node.wait_until_listening()

    # ---- the controller

    @property
    def znodes(self) -> KazooClient:
        if self._znodes is None:
            for_ever = KazooRetry(max_tries=-1, max_delay=1)
            self._znodes = KazooClient(self.zookeeper.connect_string, connection_retry=for_ever)
            self._znodes.start()
        return self._znodes

    def znode(self, path: str) -> Any:
        """The JSON of a znode; None if it does not exist."""
        try:
            return json.loads(self.znodes.retry(self.znodes.get, path)[0])
        except NoNodeError:
            return None

    @property
    def controller_id(self) -> int:
        """The broker in `/controller`; -1 if there is none."""
        found = self.znode("/controller")
        return -1 if found is None else int(found["brokerid"])

    @property
    def controller_epoch(self) -> int:
        return int(self.znodes.get("/controller_epoch")[0])

    def wait_for_controller(self, wanted: Collection[int]) -> int:
        """Wait until one of these is controller in ZooKeeper and in the metadata of every running node."""

        def controllers_in_metadata() -> dict[str, int]:
            return {n.name: int(self.metadata(n).controller_id) for n in self.nodes if n.is_running}

        def is_in_metadata() -> bool:
            """The present one: one that fails while it becomes active passes it on."""
            holder = self.controller_id
            return holder in wanted and set(controllers_in_metadata().values()) == {holder}

        self.wait_until(f"one of {sorted(wanted)} is controller, and known", is_in_metadata, ELECTION_TIMEOUT_S)
        return self.controller_id

    def move_controller(self, wanted: Collection[int]) -> int:
        """Delete `/controller` until one of these is elected. Returns how many deletions it took."""
        for tries in range(1, 50):
            before = self.controller_epoch
            self.znodes.delete("/controller")
            for _ in ticks(ELECTION_TIMEOUT_S):
                if self.controller_epoch > before and self.controller_id >= 0:
                    break
            if self.wait_for_controller(set(self.kafka_ids) | {n.broker_id for n in self.nodes}) in wanted:
                return tries
        raise AssertionError(f"none of {sorted(wanted)} ever won the election")

    def reelect(self, broker_id: int) -> None:
        """Make a klamm node controller with klamm's command, in one election."""
        epoch = self.controller_epoch
        words = ("controller", "reelect", "--zookeeper", self.zookeeper.connect_string, "--broker", str(broker_id))
        said = run_klamm(*words, "--yes")
        assert not said.returncode, said
        assert said.stdout.startswith(b"controller: broker %d, " % broker_id), said
        assert self.controller_epoch == epoch + 1
        assert self.wait_for_controller({broker_id}) == broker_id

    def become_controller_unseen(self, winner: int, left_behind: Mapping[str, Any]) -> None:
        """The controller dies and `winner` is elected while all others are paused; it finds these znodes."""
        holder = self.controller_id
        others = [n for n in self.nodes if n.is_running and n.broker_id not in (winner, holder)]
        registered = {n.broker_id: self._registration_zxid(n.broker_id) for n in others}
        for node in others:
            node.pause()
        try:
            self.node(holder).kill()
            change = self.znodes.transaction()
            for path, content in left_behind.items():
                data = b"" if content is None else json.dumps(content).encode()
                if self.znodes.exists(path):
                    change.set_data(path, data)
                else:
                    change.create(path, data)
            change.delete("/controller")
            assert not [r for r in change.commit() if isinstance(r, Exception)]
            self.wait_until(f"{winner} is controller", lambda: self.controller_id == winner, SESSION_TIMEOUT_S)
        finally:
            for node in others:
                node.resume()
        self.wait_for_controller({winner})
        assert registered == {n.broker_id: self._registration_zxid(n.broker_id) for n in others}

    def _registration_zxid(self, broker_id: int) -> int:
        """The zxid at which the broker registered."""
        return int(self.znodes.exists(f"/brokers/ids/{broker_id}").czxid)

    # ---- topics

    def create(self, topic: str, assignment: Assignment, config: Mapping[str, str] | None = None) -> None:
        """Create a topic through the API, and wait until all replicas are in sync, also on disk."""
        admin = self.admin()
        replicas = [list(assignment[p]) for p in sorted(assignment)]
        new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=dict(config or {}))
        admin.create_topics([new], request_timeout=30)[topic].result()
        self.wait_until_right(topic, assignment)

    def delete(self, *topics: str) -> None:
        """Request the deletion of topics, and wait for the answers, not for the disks."""
        admin = self.admin()
        for answer in admin.delete_topics(list(topics), operation_timeout=30).values():
            answer.result()

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition in ZooKeeper."""
        return {p: int(self.state(topic, p)["leader"]) for p in self._partitions(topic)}

    def state(self, topic: str, partition: int) -> Any:
        """The partition state in ZooKeeper."""
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def wait_until_right(self, topic: str, assignment: Assignment, timeout_s: float = 60) -> None:
        """Wait until all replicas are in sync, and metadata and disk of each node match the assignment."""
        for _ in ticks(timeout_s, 0.1):
            if not (wrong := self.mismatches(topic, assignment)):
                return
        raise AssertionError(f"{topic} is not right after {timeout_s:g} s: {wrong}\n{self.recent_logs()}")

    def mismatches(self, topic: str, assignment: Assignment) -> list[str]:
        """Where znodes, metadata of running nodes and disks differ from this assignment with all replicas in sync."""
        znode = self.znode(f"/brokers/topics/{topic}")
        if znode is None:
            return ["no znode"]
        found = {int(p): tuple(r) for p, r in znode["partitions"].items()}
        if found != {p: tuple(r) for p, r in assignment.items()} or any(
            znode.get(k) for k in ("adding_replicas", "removing_replicas")
        ):
            return [f"znode {znode}"]
        states = {p: self.state(topic, p) for p in assignment}
        wrong = [
            f"partition {p}: {state}"
            for p, state in states.items()
            if state is None or state["leader"] < 0 or sorted(state["isr"]) != sorted(assignment[p])
        ]
        return wrong or [
            text
            for node in self.nodes
            if node.is_running
            for text in (
                *self._wrong_metadata(node, topic, assignment, states),
                *self._wrong_disk(node, topic, assignment, znode.get("topic_id")),
            )
        ]

    def wait_until_gone(self, topic: str, timeout_s: float = 60) -> None:
        """Wait until no znode, no metadata of a running node and no disk of one has the topic."""
        paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}")

        def remains() -> list[str]:
            running = [n for n in self.nodes if n.is_running]
            return [
                *(path for path in paths if self.znodes.exists(path)),
                *(f"{n.name} tells of it" for n in running if topic in self.metadata(n).topics),
                *(f"{n.name} holds {name}" for n in running for name in self.directories(n, topic)),
            ]

        self.wait_until(f"{topic} is gone", lambda: not remains(), timeout_s)

    def directories(self, node: NodeProcess, topic: str) -> list[str]:
        """Names of the topic's partition directories, also of those that are to be deleted, or stray."""
        return sorted(path.name for path in self.partition_paths(node, topic))

    def partition_paths(self, node: NodeProcess, topic: str) -> list[Path]:
        return [
            path
            for directory in log_dirs_of(node)
            for path in Path(directory).iterdir()
            if path.is_dir() and re.match(re.escape(topic) + r"[-.]\d+", path.name)
        ]

    def _partitions(self, topic: str) -> list[int]:
        return sorted(int(p) for p in self.znode(f"/brokers/topics/{topic}")["partitions"])

    def _wrong_metadata(
        self, node: NodeProcess, topic: str, assignment: Assignment, states: Mapping[int, Any]
    ) -> list[str]:
        """Where a node's metadata differs from the assignment and states."""
        told = self.metadata(node).topics.get(topic)
        if told is None or set(told.partitions) != set(assignment):
            return [f"{node.name} tells {sorted(told.partitions) if told else None}"]
        return [
            f"{node.name} tells of partition {p}: leader {told.partitions[p].leader}, {told.partitions[p].replicas}, "
            f"{told.partitions[p].isrs}; {states[p]}"
            for p in assignment
            if (told.partitions[p].leader, list(told.partitions[p].replicas), sorted(told.partitions[p].isrs))
            != (states[p]["leader"], list(assignment[p]), sorted(states[p]["isr"]))
        ]

    def _wrong_disk(self, node: NodeProcess, topic: str, assignment: Assignment, topic_id: str | None) -> list[str]:
        """Where a node's partition directories differ from the assignment."""
        wanted = sorted(f"{topic}-{p}" for p, replicas in assignment.items() if node.broker_id in replicas)
        found = self.directories(node, topic)
        if found != wanted:
            return [f"{node.name} holds {found}, not {wanted}"]
        written = {path.name: path / "partition.metadata" for path in self.partition_paths(node, topic)}
        return [
            f"{node.name} holds {name} with another id"
            for name, path in written.items()
            if topic_id is not None and f"topic_id: {topic_id}" not in (path.read_text() if path.exists() else "")
        ]

    # ---- what they say

    def warnings(self, broker_id: int) -> list[str]:
        """Lines of a klamm node's log above the level of information."""
        said = Path(self.node(broker_id).output_path).read_text(errors="replace").splitlines()
        return [line for line in said if "level=info" not in line]

    def complaints(self, broker_id: int) -> list[str]:
        """Errors of an Apache Kafka node, except those that it also has with its own controller."""
        said = _COMPLAINT.findall(Path(self.node(broker_id).output_path).read_text(errors="replace"))
        return [text for text in said if not _EXPECTED.search(text)]
