"""Replication throttles: from configs to quotas. Source: TopicConfigHandler, BrokerConfigHandler (3.9)."""

from collections.abc import Mapping

import structlog

from klamm.config.config_types import InvalidConfig
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.dynamic_keys import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
    LOG_DIR_MOVES_RATE,
)
from klamm.config.topic_config import TopicConfig, correct_topic_config
from klamm.model.ids import BrokerId
from klamm.replication.quota import ALL, UNLIMITED, ReplicationQuota, ReplicationQuotas

log = structlog.get_logger("config")


class ReplicationThrottles:
    """Applies throttle configs of topics and brokers to the replication quotas."""

    def __init__(self, quotas: ReplicationQuotas, broker_id: BrokerId) -> None:
        self._quotas = quotas
        self._broker_id = broker_id

    def topic_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply a topic's lists of throttled replicas; an invalid list changes nothing."""
        leader, follower = self._quotas.leader, self._quotas.follower
        given = {
            name: overrides[name]
            for name in (LEADER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_REPLICAS)
            if name in overrides
        }
        if not (given or leader.is_on or follower.is_on):
            return
        try:
            lists = TopicConfig.parse(given) if given else None
        except InvalidConfig as error:
            log.error(
                "throttled replicas ignored; the previous list stays in use",
                topic=topic,
                reason=str(error),
                action=correct_topic_config(topic),
            )
            return
        for quota, replicas in (
            (leader, lists.leader_replication_throttled_replicas if lists else ()),
            (follower, lists.follower_replication_throttled_replicas if lists else ()),
        ):
            quota.throttle(topic, own_partitions(replicas, self._broker_id))

    def topic_deleted(self, topic: str) -> None:
        """Drop a deleted topic's lists, which must not throttle a new topic of the same name."""
        for quota in (self._quotas.leader, self._quotas.follower):
            quota.throttle(topic, frozenset())

    def rates_changed(self, dynamic: DynamicConfig) -> None:
        """Set the rates from the dynamic configs; entries in the file are ignored, as in Kafka."""
        for name, quota in (
            (LEADER_THROTTLED_RATE, self._quotas.leader),
            (FOLLOWER_THROTTLED_RATE, self._quotas.follower),
            (LOG_DIR_MOVES_RATE, self._quotas.log_dir_moves),
        ):
            self._set_rate(name, quota, int(dynamic.broker.get(name) or dynamic.cluster.get(name) or UNLIMITED))

    def _set_rate(self, name: str, quota: ReplicationQuota, rate: int) -> None:
        """Set the rate of one quota, and log a change."""
        if rate != quota.limit:
            log.info("replication throttle changed", key=name, bytes_per_second=rate, before=quota.limit)
            quota.set_limit(rate)


def own_partitions(replicas: tuple[str, ...], broker_id: BrokerId) -> frozenset[int] | None:
    """The partitions that a list of PARTITION:BROKER throttles on this broker; None (all) where it is `*`.

    Entries may be empty: tools that append to an empty list write `,0:1`.
    """
    if "".join(replicas) == "*":
        return ALL
    pairs = (entry.split(":") for entry in replicas if entry)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
