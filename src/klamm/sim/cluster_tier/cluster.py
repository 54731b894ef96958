"""One simulated cluster of whole nodes for one seed: clients, operations and faults, and what is checked meanwhile.

The nodes are those of production, from their ports to their files; only time, network, disk and ZooKeeper are
simulated. Nothing is asked of their memory but who is controller and who waits for AlterPartition, to aim faults.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from klamm.client.asynchronous import AsyncClient
from klamm.log.checkpoints import RECOVERY_POINTS, parse_offsets
from klamm.log.errors import CorruptFile
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.actions import call_after, restart
from klamm.sim.cluster_tier.clients.committer import Committer
from klamm.sim.cluster_tier.clients.final_read import read_compacted, read_to_the_end
from klamm.sim.cluster_tier.clients.locator import open_client
from klamm.sim.cluster_tier.clients.metrics_page import METRICS_PORT, read_metrics
from klamm.sim.cluster_tier.faults import CAPACITY_BYTES, FAULTS
from klamm.sim.cluster_tier.history import COMPACTED, TierHistory
from klamm.sim.cluster_tier.invariants.requests import RestAnswer
from klamm.sim.cluster_tier.invariants.rest import FinalRead
from klamm.sim.cluster_tier.invariants.shutdown import NodeStopped
from klamm.sim.cluster_tier.invariants.table import AFTER_REQUESTS, AFTER_STOP, ALWAYS, AT_REST, OF_ZOOKEEPER, by_event
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs
from klamm.sim.cluster_tier.node import PORT, NodeSettings, SimulatedNode, log_directories, node_config
from klamm.sim.cluster_tier.operations import FIRST_TOPIC, OPERATION_TIMEOUT_S, end_throttles
from klamm.sim.cluster_tier.options import MIN_COMPACTION_LAG_MS, WARM_UP_S, Options
from klamm.sim.cluster_tier.orderly_stop import error_of, stop_all
from klamm.sim.cluster_tier.rest_requests import RestRequests
from klamm.sim.cluster_tier.trace import (
    Acknowledged,
    Assigned,
    CallFailed,
    ClientEvent,
    CommitEnded,
    CommittedOffsetRead,
    DiskEvent,
    LogReplaced,
    MemberGone,
    NodeStarted,
    Polled,
    PositionLost,
    PowerLost,
    ProducerStarted,
    Send,
    TableRead,
)
from klamm.sim.cluster_tier.verbs import OPERATIONS
from klamm.sim.cluster_tier.watch import DiskWatch, describe
from klamm.sim.cluster_tier.workload import GROUP, ClientWorkload
from klamm.sim.disk import SimulatedDisk
from klamm.sim.faults.table import heal_surroundings
from klamm.sim.history.trace import Event, StateWritten
from klamm.sim.invariants.table import Row
from klamm.sim.loop import SimulatedLoop
from klamm.sim.nodes.settings import writes_isrs_itself
from klamm.sim.power_loss import PowerLoss
from klamm.sim.scheduled_run import FIRST_NODE_HEAD_START_S, ScheduledRun, Violation, describe_exception
from klamm.sim.scripts.script import Script

REST_S: Final = 30.1
"""Healed and left alone for so long: sessions end, connections are made again, requests are repeated, replicas return.

A bit more than what timers count: one that began to run when all was healed does not fire just when we look."""
_QUIET_S: Final = 5.0
"""Between the last record that is sent and the last look."""
_SMALL_FILES_S: Final = 1.0
"""After this time leader epochs, which nodes write in the background, are on the disks."""
_LAST_SEND_S: Final = 22.0
"""After this time no batch for a topic that was deleted amid the faults is sent any more; a bit more than GIVE_UP_S."""
_LAST_END_S: Final = 15.0
"""After all is healed so long, no node ends any more: sessions that ended before were noticed."""
_COLD: Final = 0.3
_RESTART_S: Final = 1.0
_OF_ZOOKEEPER: Final = by_event(OF_ZOOKEEPER)
_ASKED: Final = by_event(ALWAYS)


class ClusterTier(ScheduledRun):
    faults = FAULTS
    verbs = OPERATIONS
    verb_timeout_s = OPERATION_TIMEOUT_S

    def __init__(self, script: Script, loop: SimulatedLoop, records_story: bool = False) -> None:
        super().__init__(loop, script.actions, script.heal_at_s)
        self.options: Options = script.options
        self.seed = script.options.seed
        self.records_story = records_story
        self._nodes: dict[int, SimulatedNode] = {}
        self._disk_logs: dict[int, DiskLogs] = {}
        self.tier = TierHistory(self.history, self._disk_logs)
        self.tier.clocks = self.universe.clocks
        self.history.at.leaders_write_isrs = writes_isrs_itself(self.options.protocol)
        if self.options.deleting_producers:
            self.tier.delete_retention_s = self.options.delete_retention_ms / 1000
            self.tier.compaction_lag_s = MIN_COMPACTION_LAG_MS / 1000 if self.options.compaction == "min lag" else 0.0
        self.operator: AsyncClient
        self.final_reads: dict[TopicPartition, FinalRead] = {}
        self.compacted_reads: dict[TopicPartition, FinalRead] = {}
        self.unread_groups: dict[str, str] = {}
        self.metrics: dict[int, dict[str, float]] = {}
        self.rest_answers: list[RestAnswer] = []
        self.stops: dict[int, NodeStopped] = {}
        self.subscriptions = {GROUP: FIRST_TOPIC} if self.options.members else {}
        self.copied_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.mistakes: list[str] = []
        self.sent = 0
        self.effects = 0
        """Batches acknowledged amid the faults: how much came of the schedule."""
        self.clients = ClientWorkload(self, self._heal_at_s, self._tell)

    @property
    def nodes(self) -> dict[int, SimulatedNode]:
        """All nodes by broker id."""
        return self._nodes

    @property
    def device_s(self) -> float:
        """How long a call to a device takes that is not slow."""
        return self.options.device_s

    @property
    def disks(self) -> dict[str, SimulatedDisk]:
        """The simulated disks by the name of their host."""
        return self.universe.disks

    @property
    def fetchers(self) -> dict[int, set[tuple[int, int]]]:
        """By broker: leader and number of each fetcher that runs."""
        return {number: node.fetchers for number, node in self._nodes.items()}

    @property
    def fetchers_per_leader(self) -> int:
        """num.replica.fetchers."""
        return self.options.fetchers

    @property
    def topic_size(self) -> tuple[int, int]:
        """The greatest number of partitions of a new topic, and the number of log directories of each node."""
        return self.options.partitions, self.options.directories

    @property
    def _server_names(self) -> Sequence[str]:
        """The host names of the ZooKeeper servers."""
        return [f"zk-{n}" for n in range(1, self.options.servers + 1)]

    # ---- processes

    async def _start_nodes(self) -> None:
        """Start the nodes in order of their ids; the first gets a head start."""
        for number in range(1, self.options.nodes + 1):
            self.start(number)
            if number == 1:
                await asyncio.sleep(FIRST_NODE_HEAD_START_S)
        self.operator = open_client(self.admin, "operator", self.options.nodes, PORT)
        self.clients.start()

    def start(self, number: int) -> None:
        """Start a process of a node with the files that its disk kept."""
        name = f"node-{number}"
        if number in self._nodes and self._nodes[number].host.is_alive:
            return
        host, world = self.universe.start(name)
        disk = self.disks[name]
        if number not in self.tier.disks:
            disk.latency_s = self.options.device_s
            for directory in log_directories(self.options.directories):
                disk.make_directories(directory)
            disk.sync_filesystem("/")  # an operator made them long ago
            if self.options.has_cold_reads:
                disk.is_cold = partial(self._is_cold, Rng(f"{self.seed}/{name}/cold"))
            self._disk_logs[number] = DiskLogs(disk)
        disk.observer = DiskWatch(number, self.tier.disks[number], self._tell)
        node = SimulatedNode(number, host, world, node_config(number, self._node_settings), self._session_of)
        self._nodes[number] = node
        self.tier.on_started(BrokerId(number))
        ended = partial(self._on_process_ended, node)
        self.loop.spawn(host, self._run_node(node), "node").add_done_callback(
            ended, context=self.loop.main_host.context
        )
        self.log(f"node {number} starts")

    def _is_cold(self, rng: Rng, path: str) -> bool:
        """Whether bytes of a file are not in the page cache when they are read."""
        return not self.is_healed and rng.random() < _COLD

    async def _run_node(self, node: SimulatedNode) -> str:
        """Start the node and wait for its end; return why it ended."""
        await node.start()
        self._tell(NodeStarted(node.number, node.live_directories))
        if self.is_healed and node.has_failed_directory:  # it loaded its logs while a fault lasted
            return "a log directory failed before all was healed"
        return await node.run()

    def _on_process_ended(self, node: SimulatedNode, task: "asyncio.Task[str]") -> None:
        """Restart a node that ended for a reason that also ends it in production; any other end is a violation."""
        if self.is_over or task.cancelled() or not node.host.is_alive:
            return
        error = task.exception()
        if error is not None and not isinstance(error, KlammError | OSError):
            self._record_violation(f"node_lives: node {node.number} ended with {describe(error)}")
            return
        why = str(error) if error is not None else task.result()
        if self.loop.now > self._heal_at_s + _LAST_END_S:
            self._record_violation(f"node_lives: node {node.number} ended long after all was healed: {why}")
            return
        self.log(f"node {node.number} ends: {why}")
        self.loop.kill(node.host)
        call_after(self, _RESTART_S, restart, self, node.number)

    def stop_in_order(self, number: int, back_s: float) -> None:
        """Stop a node as SIGTERM does; once its process has ended, start it again after this time."""
        node = self._nodes[number]
        if node.node is None:
            self._on_stopped(node, back_s)
            return
        stopped = self.loop.spawn(node.host, node.node.stop(), "stop")
        stopped.add_done_callback(
            lambda task: self._on_stopped(node, back_s, error_of(task)), context=self.loop.main_host.context
        )

    def _on_stopped(self, node: SimulatedNode, back_s: float, error: str = "") -> None:
        """End the process of a stopped node, and start it again later, unless a fault has ended it already."""
        if not self.is_over and node.host.is_alive:
            if error:
                self._record_violation(f"node_stops: node {node.number} was stopped in order: {error}")
            self.loop.kill(node.host)
            call_after(self, back_s, restart, self, node.number)

    @property
    def _node_settings(self) -> NodeSettings:
        """The node settings of the run's options."""
        o = self.options
        return NodeSettings(
            self.zookeeper, o.session_timeout_ms, o.protocol, o.directories, o.lag_ms, o.fetch_wait_ms, o.fetchers,
            o.segment_bytes, o.checkpoint_ms, o.has_standby, o.cleaner_backoff_ms,
            o.fetch_bytes, o.index_interval_bytes, o.fetch_sessions, METRICS_PORT if o.has_metrics else 0,
        )  # fmt: skip

    def _session_of(self, machine: str) -> int:
        """The ZooKeeper session that a machine has a connection for; 0 where there is none."""
        for server in self.servers:
            for connection in server.connections:
                if connection.client == machine:
                    return connection.session_id
        return 0

    # ---- clients, at the end

    async def _read_copied_offsets(self) -> None:
        """Read the offset that each copier has committed, from the operator's machine."""
        for group, source in {(t.group, t.source): None for t in self.tier.transactions}:
            async with open_client(self.admin, f"final {group}", self.options.nodes, PORT) as client:
                found: list[CommittedOffsetRead] = []
                reader = Committer(group, client, Rng(group), lambda: None, found.append)  # type: ignore[arg-type]
                if why := await reader.read(source):
                    self.unread_groups[group] = why
                else:
                    self.copied_offsets[group, source] = found[0].offset

    async def _read_groups(self) -> None:
        """Read the committed offsets of all groups, from the operator's machine."""
        readable = self.clients.readable()
        for group, partition in list(self.tier.commits):
            if partition in readable:
                async with open_client(self.admin, f"final {group}", self.options.nodes, PORT) as client:
                    reader = Committer(group, client, Rng(group), lambda: None, self._tell)
                    if why := await reader.read(partition):
                        self.unread_groups[group] = why

    # ---- disks

    def power_off(self, number: int, how: PowerLoss = PowerLoss.BYTES) -> None:
        """Cut a machine's power: its process ends, its peers get no reset, and unsynced data is lost."""
        node, logs = self._nodes[number], self.tier.disks[number]
        before = {p: log.identities() for p in logs.partitions() if (log := logs.of(p)) is not None}
        self.network.power_off(node.host)
        self.disks[node.host.name].lose_power(how)
        ends, changed = {}, {}
        for p, batches in before.items():
            log = logs.of(p)
            kept = set(log.identities()) if log is not None else set()
            if gone := [batch for batch in batches if batch not in kept]:
                ends[p] = log.end if log is not None else 0
                changed[p] = gone[0].base_offset
        self._tell(PowerLost(number, ends, changed, self._recovery_points(number)))

    def _recovery_points(self, number: int) -> dict[TopicPartition, int]:
        """The recovery points in the checkpoint files of a machine, by partition."""
        points: dict[TopicPartition, int] = {}
        disk = self.disks[f"node-{number}"]
        for directory in log_directories(self.options.directories):
            inode = disk.inode(f"{directory}/{RECOVERY_POINTS}")
            try:
                points |= parse_offsets(bytes(inode.content), RECOVERY_POINTS) if inode is not None else {}
            except CorruptFile:
                continue
        return points

    def replace_directory(self, number: int, directory: str) -> None:
        """Put a new, empty device in place of a failed one, and start the node again."""
        disk = self.disks[f"node-{number}"]
        if not disk.is_failed(directory):
            return
        self.log(f"{directory} of node {number} is replaced")
        self.loop.kill(self._nodes[number].host)
        for p, versions in self.history.states.versions.items():
            name = f"{p.topic}-{p.partition}"
            if number in versions[-1].isr and disk.inode_exists(f"{directory}/{name}"):
                self.tier.on_destroyed(p, 0)
        disk.replace(directory)
        self.start(number)

    def damage(self, number: int, partition: TopicPartition, path: str, bit: int) -> None:
        """Change one bit of a segment file; records of the partition from that batch on may then be lost."""
        inode = self.disks[f"node-{number}"].inode(path)
        log = self.tier.disks[number].of(partition)
        assert inode is not None
        if log is not None:
            self.tier.on_destroyed(partition, log.batch_start(path, bit // 8))
        inode.flip_bit(bit)

    # ---- what happens, as it happens

    def _observe(self, event: Event) -> None:
        """Check an event of ZooKeeper against the invariants, then add it to the history."""
        if self.is_over:
            return
        if self.records_story and isinstance(event, StateWritten):
            self.log(f"{event.partition}: {event.after}")
        self._check(_OF_ZOOKEEPER.get(type(event), ()), self.history, event)
        self._check(_ASKED.get(type(event), ()), self.tier, event)
        if isinstance(event, StateWritten):
            self.tier.on_isr(event.partition, event.after.isr, self.loop.now)
        self.history.absorb(event)

    def _tell(self, event: Send | ClientEvent | DiskEvent) -> None:
        """Check a client's result or a process's disk operation against the invariants, then add it to the history."""
        if self.is_over:
            return
        if isinstance(event, Send):
            self.tier.on_send(event)
            self.sent += 1
            return
        self._check(_ASKED.get(type(event), ()), self.tier, event)
        match event:
            case Acknowledged():
                self.tier.on_acknowledged(event)
                self.effects += WARM_UP_S <= self.loop.now < self._heal_at_s
            case Polled():
                self.tier.on_polled(event)
            case CommitEnded():
                self.tier.on_commit_ended(event)
            case Assigned():
                self.tier.on_assigned(event)
            case MemberGone():
                self.tier.on_member_gone(event)
            case ProducerStarted():
                self.tier.on_producer_started(event)
            case PositionLost():
                self.tier.on_position_lost(event)
            case PowerLost():
                self.tier.on_power_lost(event)
            case LogReplaced():
                self.tier.logs_replaced += 1
            case CallFailed():
                self.tier.failed_disks.add(event.node)
            case TableRead():
                self.tier.tables_read += 1

    def _check(self, rows: Sequence[Row], history: object, event: object) -> None:
        """Check the event against these invariants, and record each violation."""
        for row in rows:
            self.checks += 1
            try:
                wrong = row.check(history, event)
            except Exception as error:  # were it raised, whoever made the event would seem to have erred
                wrong = describe_exception(error)
            if wrong:
                self._record_violation(f"{row.name}: {wrong}")

    def on_mistake(self, what: str) -> None:
        """Record an exception that a node logged."""
        if not self.is_over:
            self.mistakes.append(what)
            self.log(f"MISTAKE {what}")

    # ---- the end

    async def _heal_and_check(self) -> None:
        """Heal the cluster, wait until it has recovered, and check the invariants that hold at rest."""
        self.log("everything is healed")
        self._heal()
        if self.tier.is_throttled:
            self.run_in_background(end_throttles(self), "end throttles")
        await self._sleep_until(self.loop.now + _LAST_SEND_S)
        self.tier.revive_topics()
        self.tier.sound_since_s = self.loop.now
        await self._sleep_until(self.loop.now + REST_S - _LAST_SEND_S)
        self.clients.sends = False
        await self._sleep_until(self.loop.now + _QUIET_S)
        self._raise_violation()
        self.final_reads = await read_to_the_end(
            self.admin, self.options.nodes, PORT, self.clients.readable(), self._tell
        )
        if COMPACTED in self.history.states.versions:
            self.compacted_reads[COMPACTED] = await read_compacted(self.admin, self.options.nodes, PORT, COMPACTED)
            self.tier.removed_by_compaction = self.tier.count_removed(
                COMPACTED, self.compacted_reads[COMPACTED].records
            )
        await self._read_groups()
        await self._read_copied_offsets()
        await self._sleep_until(self.loop.now + _SMALL_FILES_S)
        if self.options.has_metrics:
            self.metrics = {n: await read_metrics(self.admin, f"node-{n}") for n in self._nodes}
        self._raise_violation()
        self._check_whole_cluster(AT_REST)
        requests = RestRequests(self)
        await requests.run()
        self.rest_answers = requests.answers
        self._raise_violation()
        self._check_whole_cluster(AFTER_REQUESTS)
        self.stops = await stop_all(self.loop, self._nodes)
        self._check_whole_cluster(AFTER_STOP)

    def _check_whole_cluster(self, rows: Sequence[Row]) -> None:
        """Check invariants of the cluster as it is now. Raises Violation."""
        for row in rows:
            self.checks += 1
            try:
                wrong = row.check(self)
            except Exception as error:
                wrong = describe_exception(error)
            if wrong:
                raise Violation(f"{row.name}: {wrong}")

    def _heal(self) -> None:
        """End every fault: all processes run, all links and disks work, and no server lags."""
        heal_surroundings(self)
        for number in list(self._nodes):
            disk = self.disks[f"node-{number}"]
            disk.fault = lambda call, path: None
            disk.latency_s = self.options.device_s
            disk.capacity_bytes = CAPACITY_BYTES
            for directory in log_directories(self.options.directories):
                self.replace_directory(number, directory)
            if self._nodes[number].has_failed_directory:
                self.log(f"node {number} has given up a directory; it is started again")
                self.loop.kill(self._nodes[number].host)
            restart(self, number)
