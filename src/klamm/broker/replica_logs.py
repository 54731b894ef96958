"""The logs of this node's replicas. Topic configs are read from ZooKeeper when a log is created."""

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from klamm.config.topic_config import KEEP_RECORDS, TopicConfig, correct_topic_config, usable_overrides
from klamm.log.log import Log
from klamm.log.manager import LogManager, LogRequest
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.zk.store import Store

log = structlog.get_logger("logs")


class _UnreadableConfig(KlammError):
    """ZooKeeper has a config of the topic that cannot be read: it is malformed, or an ACL hides it."""


class ReplicaLogs:
    """The logs of this node's replicas, created with the topic configs in ZooKeeper."""

    def __init__(
        self,
        logs: LogManager,
        store: Callable[[], Store],
        on_overrides: Callable[[str, Mapping[str, str]], None] = lambda _topic, _overrides: None,
    ) -> None:
        """`on_overrides` gets the overrides of each topic whose log is asked for; it must not raise."""
        self._logs = logs
        self._store = store
        self._on_overrides = on_overrides
        self._changed_meanwhile: list[set[str]] = []
        """For each call in progress: topics whose configs changed since the call read them."""

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The partition's log, or None."""
        return self._logs.get(topic_partition)

    async def get_or_create_many(
        self, wanted: Sequence[tuple[TopicPartition, uuid.UUID, bool]]
    ) -> Sequence[Log | OSError | KlammError]:
        """The log, or the error that prevented it, for each (partition, topic id, is new)."""
        changed: set[str] = set()
        self._changed_meanwhile.append(changed)
        try:
            found = await self._get_or_create(wanted)
            while stale := sorted(changed & {tp.topic for tp, _, _ in wanted}):
                changed.clear()
                self._update_configs(await self._read_configs(stale))
        finally:
            self._changed_meanwhile = [s for s in self._changed_meanwhile if s is not changed]
        return [found[tp] for tp, _, _ in wanted]

    def topics_changed(self, topics: Iterable[str]) -> None:
        """Record that these topics' configs changed, so that logs being created get the new ones too (KAFKA-8813)."""
        for changed in self._changed_meanwhile:
            changed.update(topics)

    def _update_configs(self, configs: Mapping[str, TopicConfig | KlammError]) -> None:
        """Apply the topic configs that are valid to the existing logs of these topics."""
        self._logs.update_topic_configs({t: c for t, c in configs.items() if isinstance(c, TopicConfig)})

    async def _get_or_create(
        self, wanted: Sequence[tuple[TopicPartition, uuid.UUID, bool]]
    ) -> dict[TopicPartition, Log | OSError | KlammError]:
        """Open or create the logs with their topic configs, which logs that are open do not need."""
        configs = await self._read_configs(dict.fromkeys(tp.topic for tp, _, _ in wanted))
        found: dict[TopicPartition, Log | OSError | KlammError] = {}
        possible: list[LogRequest] = []
        for tp, topic_id, is_new in wanted:
            config = configs[tp.topic]
            if not isinstance(config, TopicConfig) and (there := self._logs.get(tp)) is not None:
                config = there.config  # it was loaded with one, and follows changes
            elif isinstance(config, _UnreadableConfig):
                config = self._config_that_keeps_records(tp.topic, config)
                configs[tp.topic] = config
            if isinstance(config, TopicConfig):
                possible.append(LogRequest(tp, config, None if topic_id == ZERO_ID else topic_id, is_new))
            else:
                found[tp] = config
        made = await self._logs.get_or_create_many(possible)
        found.update((asked.partition, log) for asked, log in zip(possible, made, strict=True))
        return found

    def _config_that_keeps_records(self, topic: str, why: _UnreadableConfig) -> TopicConfig:
        """Return the config of a new log whose topic's config cannot be read, as at the start of a node.

        Without a log the replica would be missing, and nothing would make it once the config is changed.
        """
        log.error(
            "topic config cannot be read; until it is changed, the topic's records are neither deleted nor compacted",
            topic=topic,
            reason=str(why),
            action=correct_topic_config(topic),
        )
        return self._logs.topic_config(topic, KEEP_RECORDS)

    async def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the partition's log."""
        self._logs.delete(topic_partition)
        await asyncio.sleep(0)  # deleting thousands of logs must not hold the event loop

    async def sync_deletions(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Make the deletions of these partitions durable, so that no power loss undoes them.

        Returns those where that failed.
        """
        return await self._logs.sync_deletions(partitions)

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermark checkpoints of all log directories."""
        await self._logs.write_high_watermarks()

    async def _read_configs(self, topics: Collection[str]) -> dict[str, TopicConfig | KlammError]:
        """Topic configs by topic. An invalid override is logged and left out, since the log is needed in any case."""
        try:
            overrides, unreadable = await self._store().read_committed_topic_configs(list(topics))
        except KlammError as error:
            return dict.fromkeys(topics, error)
        found: dict[str, TopicConfig | KlammError] = {t: _UnreadableConfig(why) for t, why in unreadable.items()}
        for topic, given in overrides.items():
            self._on_overrides(topic, given)
            usable, problems = usable_overrides(given)
            if problems:
                log.error(
                    "a part of a topic config is ignored; the topic's other configs are used",
                    topic=topic,
                    reason="; ".join(problems),
                    action=correct_topic_config(topic),
                )
            found[topic] = self._logs.topic_config(topic, usable)
        return found
