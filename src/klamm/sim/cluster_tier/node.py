"""One run of a node's process: everything that a node is in production, on a simulated machine."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from klamm.broker.node import Node, start_node
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.replication.isr import PendingExpand, PendingShrink
from klamm.runtime.world import World
from klamm.sim.hosts import Host
from klamm.telemetry.logs import LogLevels

PORT: Final = 9092


class NodeSettings(NamedTuple):
    """Settings that a seed may choose: legal ones all, some of them unlucky."""

    zookeeper: str
    session_timeout_ms: int
    protocol: str
    directories: int
    lag_ms: int
    fetch_wait_ms: int
    fetchers: int
    segment_bytes: int
    checkpoint_ms: int
    has_standby: bool
    cleaner_backoff_ms: int
    fetch_bytes: int
    index_interval_bytes: int
    fetch_sessions: int
    metrics_port: int = 0
    """0 for no page of metrics."""


@lru_cache(maxsize=256)
def node_config(number: int, settings: NodeSettings) -> NodeConfig:
    """Return the config of node `number`."""
    directories = ",".join(log_directories(settings.directories))
    text = f"""broker.id={number}
zookeeper.connect={settings.zookeeper}
zookeeper.session.timeout.ms={settings.session_timeout_ms}
listeners=PLAINTEXT://:{PORT}
log.dirs={directories}
inter.broker.protocol.version={settings.protocol}
replica.lag.time.max.ms={settings.lag_ms}
replica.fetch.wait.max.ms={settings.fetch_wait_ms}
replica.socket.timeout.ms=5000
num.replica.fetchers={settings.fetchers}
replica.high.watermark.checkpoint.interval.ms={settings.checkpoint_ms}
log.flush.offset.checkpoint.interval.ms={settings.checkpoint_ms}
log.segment.bytes={settings.segment_bytes}
log.segment.delete.delay.ms=2000
log.retention.check.interval.ms=5000
log.initial.task.delay.ms=1000
log.cleaner.backoff.ms={settings.cleaner_backoff_ms}
replica.fetch.max.bytes={settings.fetch_bytes}
log.index.interval.bytes={settings.index_interval_bytes}
max.incremental.fetch.session.cache.slots={settings.fetch_sessions}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=3
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=3
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
leader.imbalance.check.interval.seconds=5
controlled.shutdown.retry.backoff.ms=500
klamm.delete.topic.dead.broker.wait.ms=3000
klamm.log.scrub.interval.ms=5000
klamm.metrics.port={settings.metrics_port}
klamm.controller.standby={str(settings.has_standby).lower()}
"""
    return parse_node_config(text.encode(), f"broker {number}")


def log_directories(count: int) -> list[str]:
    """Return the paths of the log directories: `/data1`, `/data2` and so on."""
    return [f"/data{n}" for n in range(1, count + 1)]


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """`await start()`, then `await run()`, on a host of its own."""

    number: int
    host: Host
    world: World
    config: NodeConfig
    find_session: Callable[[str], int]
    """By the name of its machine: the ZooKeeper session of a process that is still starting."""
    node: Node | None = field(default=None)
    """None until it has started."""

    async def start(self) -> None:
        """Start the node. Raises KlammError where it cannot run."""
        self.node = await start_node(self.world, self.config, LogLevels())

    async def run(self) -> str:
        """Run until the node cannot continue, then stop it; return the reason."""
        assert self.node is not None
        reason = await self.node.wait_for_failure()
        await self.node.stop()
        return reason

    @property
    def live_directories(self) -> tuple[str, ...]:
        """The log directories that the node uses; none before it has started."""
        return tuple(self.node.parts.logs.live_directories) if self.node is not None else ()

    @property
    def has_failed_directory(self) -> bool:
        """Whether the node has given up a log directory, or replicas in it, which only a restart uses again."""
        return self.node is not None and (
            len(self.node.parts.logs.live_directories) < len(self.config.log_directories)
            or bool(self.node.parts.replicas.offline_partitions)
        )

    @property
    def fetchers(self) -> set[tuple[int, int]]:
        """Leader and number of each fetcher that runs, by the names of the node's tasks."""
        start = f"{self.host!r}/fetcher-"
        names = (task.get_name() for task in asyncio.all_tasks() if not task.done())
        found = (name.removeprefix(start).partition("#")[0].split("-") for name in names if name.startswith(start))
        return {(int(leader), int(number)) for leader, number in found}

    # ---- what faults ask

    @property
    def session(self) -> int:
        """The id of the node's ZooKeeper session; 0 where it has none."""
        return self.find_session(self.host.name)

    @property
    def session_timeout_ms(self) -> int:
        """The node's ZooKeeper session timeout, in ms."""
        return self.config.zookeeper_session_timeout_ms

    @property
    def is_controller(self) -> bool:
        """Whether the node is the active controller."""
        return self.node is not None and self.node.parts.controller.is_active

    @property
    def waits_for_alter_partition(self) -> bool:
        """Whether a partition led by the node has proposed an ISR and has no answer yet."""
        if self.node is None:
            return False
        hosted = self.node.parts.replicas.partitions()
        return any(isinstance(p.isr_state, PendingExpand | PendingShrink) for p in hosted)
