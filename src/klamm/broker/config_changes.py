"""Follows config changes in ZooKeeper: reads notifications, then the current configs of the named entities.

A notification only names the changed entity, whose configs are then read. Several notifications of one entity need one
read. They are numbered without gaps: where one is deleted before it was read, all configs are read again. Source:
ZkConfigManager, ZkNodeChangeNotificationListener (3.9).
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol

import structlog

from klamm.broker.znode_follower import OnUnexpectedError, ZnodeFollower, log_unexpected_error
from klamm.config.topic_config import correct_topic_config
from klamm.model.errors import KlammError
from klamm.zk.configs import DEFAULT_ENTITY, ConfigStore, change_number
from klamm.zk.store import Store
from klamm.zk.watches import EventType
from klamm.zk.znodes import CONFIG_CHANGES, MalformedZnode

KEPT_MS: Final = 15 * 60_000
"""How long a notification stays in ZooKeeper, by the clock of the node that deletes it."""
_MAX_CONCURRENT_READS: Final = 1_000
log = structlog.get_logger("config")


class Follower(Protocol):
    """Applies changes. Calls that raise KlammError are repeated."""

    @property
    def hosted_topics(self) -> Collection[str]:
        """The topics with a replica on this node."""
        ...

    async def topics_changed(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        """Called with all current overrides of each changed topic; empty for a topic that has none."""
        ...

    async def brokers_changed(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Called with the current configs in ZooKeeper: the default of all brokers, and those of this one."""
        ...


class ConfigChanges(ZnodeFollower):
    """Reads the change notifications, and hands the new configs of each entity on."""

    def __init__(
        self,
        store: Callable[[], Store],
        broker_id: int,
        follower: Follower,
        now_ms: Callable[[], int],
        on_unexpected_error: OnUnexpectedError = log_unexpected_error,
        first: int | None = None,
    ) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none.

        `first` is the number of the first notification whose change the configs in use may lack; with None they are
        those of the first look.
        """
        super().__init__(
            "config changes", CONFIG_CHANGES, self.catch_up, on_unexpected_error, [EventType.CHILDREN_CHANGED]
        )
        self._store = store
        self._broker_id = broker_id
        self._follower = follower
        self._now_ms = now_ms
        self._last = -1
        self._next = first
        """The number of the first notification that is not handled; None if nothing can be missed before the first
        look."""
        self._ignored: frozenset[str] = frozenset()
        """Notifications that cannot be read, and that were logged."""
        self.followed = 0
        """Notifications handled so far."""

    async def catch_up(self) -> None:
        """Handle every new notification, and delete the old ones. Raises KlammError."""
        store = self._store()
        configs = store.configs
        children, next_number = await configs.list_changes()
        changes, unreadable = await configs.read_changes(children)
        for child, reason in unreadable.items():
            if child not in self._ignored:
                log.error(
                    "config change notification ignored: it cannot be read",
                    notification=child,
                    reason=reason,
                    action="If configs changed, set them again with klamm config set.",
                )
        self._ignored = frozenset(unreadable)
        if self._next is not None and next_number < self._next:
            self._last = -1  # the list was deleted and created again
        new = [change for change in changes if change.number > self._last]
        entities = dict.fromkeys(change.entity for change in new if change.entity)
        if self._has_missed({c.number for c in changes} | {change_number(c) for c in unreadable}, next_number):
            log.warning("config changes were deleted before this node has read them; reading all configs again")
            hosted = (f"topics/{topic}" for topic in self._follower.hosted_topics)
            entities |= dict.fromkeys((f"brokers/{DEFAULT_ENTITY}", *hosted))
        await self._apply_changes(store, configs, entities)
        self._last = max((change.number for change in new), default=self._last)
        self._next = next_number
        self.followed += len(new)
        oldest = self._now_ms() - KEPT_MS
        await configs.delete_changes([c.child for c in changes if c.created_ms < oldest])

    def _has_missed(self, numbers: Collection[int], next_number: int) -> bool:
        """Whether notifications since the last look are gone; `numbers` are those that are there."""
        if self._next is None:
            return False
        if next_number < self._next:
            return True
        return sum(n >= self._next for n in numbers) < next_number - self._next

    async def _apply_changes(self, store: Store, configs: ConfigStore, entities: Mapping[str, None]) -> None:
        """Read the changed entities again and pass their configs to the follower."""
        topics = [e.removeprefix("topics/") for e in entities if e.startswith("topics/")]
        for start in range(0, len(topics), _MAX_CONCURRENT_READS):
            overrides, why_not = await store.read_topic_configs(topics[start : start + _MAX_CONCURRENT_READS])
            for topic, reason in why_not.items():
                log.error(
                    "topic config ignored; the previous config stays in use",
                    topic=topic,
                    reason=reason,
                    action=correct_topic_config(topic),
                )
            await self._call_follower(f"configs of {len(overrides)} topics", self._follower.topics_changed(overrides))
        if not entities.keys().isdisjoint((f"brokers/{DEFAULT_ENTITY}", f"brokers/{self._broker_id}")):
            found = await read_broker_configs(configs, self._broker_id)
            await self._call_follower("configs of brokers", self._follower.brokers_changed(*found))

    async def _call_follower(self, what: str, call: Awaitable[None]) -> None:
        """Await the follower's handling of a change; an unexpected error is logged.

        Such an error loses this change only: repeating it would block all later changes.
        """
        try:
            await call
        except KlammError:
            raise
        except Exception as error:
            self._on_unexpected_error(f"applying {what}", error)


async def read_broker_configs(configs: ConfigStore, broker_id: int) -> tuple[dict[str, str], dict[str, str]]:
    """Read the dynamic configs of all brokers, and of this one. Malformed ones are logged, and count as empty."""
    return await _read_broker_entity(configs, DEFAULT_ENTITY), await _read_broker_entity(configs, str(broker_id))


async def _read_broker_entity(configs: ConfigStore, entity: str) -> dict[str, str]:
    """The configs of one broker entity; empty, with an error in the log, where the znode is malformed."""
    try:
        return (await configs.read("brokers", entity)).config
    except MalformedZnode as error:
        log.error(
            "dynamic configs ignored: their znode is malformed",
            entity=entity,
            reason=str(error),
            action="Write them again: klamm config set --entity-type brokers",
        )
        return {}
