"""What all parts of a node share: configuration, ids, the ZooKeeper session."""

from dataclasses import dataclass

from klamm.broker.lifecycle import NodeStatus
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import NodeConfig
from klamm.model.ids import BrokerId
from klamm.runtime.world import World
from klamm.telemetry.logs import LogLevels
from klamm.zk.store import Store


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Shared by all parts; complete once cluster id and broker id are known."""

    world: World
    config: NodeConfig
    """With the dynamic configs as they were at the start."""
    dynamic: DynamicConfig
    broker_id: BrokerId
    cluster_id: str
    sessions: ZooKeeperSessions
    status: NodeStatus
    log_levels: LogLevels
    first_config_change: int | None = None
    """The number of the first config change that the configs read at the start may lack. Loading the logs may take
    longer than its notification exists."""

    def store(self) -> Store:
        """The ZooKeeper store of the newest session. Raises KlammError without a session."""
        return self.sessions.store

    def broker_epoch(self) -> int:
        """The epoch of this broker's current registration."""
        return self.status.broker_epoch
