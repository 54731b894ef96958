"""Applying changed configs to this node: its logs, connections, throttles, controller, registration.

Source: TopicConfigHandler, BrokerConfigHandler, DynamicLogConfig, SocketServer.reconfigure (3.9).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from klamm.broker.replication_throttles import ReplicationThrottles
from klamm.broker.settings import cleaner_settings, scrubber_settings, server_limits
from klamm.config.config_types import InvalidConfig
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import NodeConfig
from klamm.config.topic_config import TopicConfig, correct_topic_config
from klamm.controller.controller import Controller
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.manager import LogManager
from klamm.log.repair.scrubber import LogScrubber
from klamm.net.server import Server
from klamm.replication.replica_manager import ReplicaManager
from klamm.zk.store import Store

_PARSED_PER_TIME_SLICE: Final = 200
_UNCLEAN: Final = "unclean.leader.election.enable"
log = structlog.get_logger("config")


class ConfigFollower:
    """Gets changes from `ConfigChanges`, and applies those that have an effect while the node runs."""

    def __init__(
        self,
        dynamic: DynamicConfig,
        logs: LogManager,
        server: Server,
        controller: Controller,
        store: Callable[[], Store],
        advertise: Callable[[NodeConfig], None],
        throttles: ReplicationThrottles,
        cleaner: LogCleaner,
        scrubber: LogScrubber,
        replicas: ReplicaManager,
        on_topics: Callable[[Sequence[str]], None] = lambda _topics: None,
    ) -> None:
        """`advertise` registers other listeners; `on_topics` gets the topics whose overrides changed."""
        self._dynamic = dynamic
        self._logs = logs
        self._server = server
        self._controller = controller
        self._store = store
        self._advertise = advertise
        self._throttles = throttles
        self._cleaner = cleaner
        self._scrubber = scrubber
        self._replicas = replicas
        self._on_topics = on_topics
        self._topics_are_behind = False

    # ---- topics

    @property
    def hosted_topics(self) -> list[str]:
        """The topics with a replica on this node."""
        return sorted(self._logs.topics)

    async def topics_changed(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the current overrides of these topics to their logs, throttles and unclean elections."""
        self._on_topics(list(overrides))
        await self._update_log_configs(overrides)
        for topic, own in overrides.items():
            self._throttles.topic_changed(topic, own)
            if own.get(_UNCLEAN, "").strip().lower() == "true":
                self._controller.unclean_election_enabled(topic)

    async def _update_log_configs(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        """Parse the overrides and apply them.

        An invalid override is logged, and the topic keeps its previous config.
        """
        hosted = self._logs.topics
        parsed: dict[str, TopicConfig] = {}
        for number, (topic, own) in enumerate((t, own) for t, own in overrides.items() if t in hosted):
            try:
                parsed[topic] = self._logs.topic_config(topic, own)
            except InvalidConfig as error:
                log.error(
                    "topic config ignored; the previous config stays in use",
                    topic=topic,
                    reason=str(error),
                    action=correct_topic_config(topic),
                )
            if number % _PARSED_PER_TIME_SLICE == _PARSED_PER_TIME_SLICE - 1:
                await asyncio.sleep(0)
        self._logs.update_topic_configs(parsed)

    # ---- brokers

    async def brokers_changed(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Apply the current dynamic broker configs.

        Raises KlammError where topic overrides cannot be read; call it again then.
        """
        before = self._dynamic.current
        self._dynamic.apply(cluster, broker)
        now = self._dynamic.current
        self._throttles.rates_changed(self._dynamic)
        if now is not before:
            self._apply_node_config(before, now)
            await self._cleaner.update_settings(cleaner_settings(now))
            await self._scrubber.update_settings(scrubber_settings(now))
        if self._logs.update_default_configs(now.given):
            self._topics_are_behind = True
        if self._topics_are_behind:
            await self._apply_topic_defaults()
            self._topics_are_behind = False

    def _apply_node_config(self, before: NodeConfig, now: NodeConfig) -> None:
        """Apply each changed node config to the part that uses it, at run time."""
        changed = sorted(k for k in now.given.keys() | before.given.keys() if now.given.get(k) != before.given.get(k))
        log.info("dynamic configs changed", keys=",".join(changed))
        if server_limits(now) != server_limits(before):
            self._server.limit_connections(server_limits(now).connections)
        self._replicas.check_crcs(is_on=now.klamm_fetch_check_crcs)
        if now.producer_id_expiration_ms != before.producer_id_expiration_ms:
            self._logs.settings = replace(self._logs.settings, producer_expiration_ms=now.producer_id_expiration_ms)
        if now.advertised_endpoints != before.advertised_endpoints:
            self._advertise(now)
        if now.unclean_leader_election_enable != before.unclean_leader_election_enable:
            self._controller.allow_unclean_election(now.unclean_leader_election_enable)

    async def _apply_topic_defaults(self) -> None:
        """Read the overrides of all topics on this broker again, and apply them on top of the new defaults."""
        topics = sorted(self._logs.topics)
        self._on_topics(topics)
        overrides, unreadable = await self._store().read_topic_configs(topics)
        for topic, reason in unreadable.items():
            log.error(
                "topic config ignored; the previous config stays in use",
                topic=topic,
                reason=reason,
                action=correct_topic_config(topic),
            )
        await self._update_log_configs(overrides)
