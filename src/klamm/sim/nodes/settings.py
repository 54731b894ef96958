"""Configuration of a simulated node, including the settings that a seed chooses."""

from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from klamm.broker.settings import controller_settings
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.controller.settings import FIRST_WITH_ALTER_PARTITION, ControllerSettings, parse_ibp
from klamm.model.ids import BrokerId
from klamm.zk.registrations import NO_FEATURES, FeatureRange

PORT: Final = 9092
FEATURE: Final = "group.version"
FEATURES: Final = {FEATURE: FeatureRange(2, 4)}
"""What nodes support, where they support anything: no release so far does."""


class NodeSettings(NamedTuple):
    """Node settings that a seed may choose: all valid, some unfavourable."""

    zookeeper: str
    session_timeout_ms: int
    protocol: str
    in_flight: int
    request_timeout_ms: int
    resend_pause_ms: int
    imbalance_check_s: int
    token_check_s: int
    """0: tokens are not enabled."""
    rebalances: bool
    deletes_topics: bool
    supports_features: bool
    keeps_mirrors: bool


def writes_isrs_itself(protocol: str) -> bool:
    """Whether leaders with this protocol write their ISRs to ZooKeeper, instead of sending AlterPartition."""
    return parse_ibp(protocol) < FIRST_WITH_ALTER_PARTITION


@lru_cache(maxsize=256)
def node_config(number: int, node_settings: NodeSettings) -> NodeConfig:
    """The config of node `number`, as its server.properties would give it."""
    text = (
        f"broker.id={number}\nzookeeper.connect={node_settings.zookeeper}\nlisteners=PLAINTEXT://:{PORT}\n"
        f"zookeeper.session.timeout.ms={node_settings.session_timeout_ms}\nlog.dirs=/data\n"
        f"zookeeper.max.in.flight.requests={node_settings.in_flight}\nrequest.timeout.ms={node_settings.request_timeout_ms}\n"
        f"leader.imbalance.check.interval.seconds={node_settings.imbalance_check_s}\n"
        f"auto.leader.rebalance.enable={str(node_settings.rebalances).lower()}\n"
        f"delete.topic.enable={str(node_settings.deletes_topics).lower()}\n"
        "klamm.delete.topic.dead.broker.wait.ms=3000\n"
    )
    if node_settings.token_check_s:
        interval_ms = node_settings.token_check_s * 1000
        text += f"delegation.token.secret.key=k\ndelegation.token.expiry.check.interval.ms={interval_ms}\n"
    return parse_node_config(text.encode(), f"broker {number}")


def controller_settings_of(config: NodeConfig, number: BrokerId, node_settings: NodeSettings) -> ControllerSettings:
    """The settings of the node's controller, including protocol versions that server.properties rejects."""
    settings = controller_settings(config, number)
    features = FEATURES if node_settings.supports_features else NO_FEATURES
    pause_ms = node_settings.resend_pause_ms
    return replace(
        settings, ibp=parse_ibp(node_settings.protocol), resend_pause_ms=pause_ms, supported_features=features
    )
