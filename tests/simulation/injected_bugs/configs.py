"""Injected bugs of config changes: how they are announced, kept, followed and applied."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch, nothing

from klamm.broker import config_changes
from klamm.broker.config_changes import ConfigChanges
from klamm.broker.znode_follower import ZnodeFollower
from klamm.model.errors import KlammError
from klamm.zk.configs import ConfigStore
from klamm.zk.store import Store
from klamm.zk.znodes import CONFIG_CHANGES


def config_changes_unwatched(patch: Patch) -> None:
    """The notifications are read without a watch."""

    async def list_changes(self: Any) -> tuple[list[str], int]:
        """The patched method, with the injected bug."""
        children, stat = await self._client.children(CONFIG_CHANGES)
        return sorted(children), (stat.cversion + len(children)) // 2

    patch.setattr(ConfigStore, "list_changes", list_changes)


def new_sessions_read_no_configs(patch: Patch) -> None:
    """A new ZooKeeper session does not read the notifications again, so that it has no watch."""
    patch.setattr(ZnodeFollower, "session_established", lambda self, store: None)


def config_changes_unannounced(patch: Patch) -> None:
    """A changed config is written, and no notification created."""
    patch.setattr(ConfigStore, "announce", nothing)


def notifications_deleted_at_once(patch: Patch) -> None:
    """Whoever has read a notification first deletes it, and the others do not notice."""
    patch.setattr(config_changes, "KEPT_MS", -1)
    patch.setattr(ConfigChanges, "_has_missed", lambda self, numbers, next_number: False)


def defaults_of_all_brokers_ignored(patch: Patch) -> None:
    """A change of the defaults of all brokers is not read."""
    apply = ConfigChanges._apply_changes

    async def own_alone(self: Any, store: Any, configs: Any, entities: Mapping[str, None]) -> None:
        """The patched method, with the injected bug."""
        await apply(self, store, configs, {e: None for e in entities if e != "brokers/<default>"})

    patch.setattr(ConfigChanges, "_apply_changes", own_alone)


def only_the_newest_notification_is_read(patch: Patch) -> None:
    """Of several new notifications only the last one is read."""

    read_changes = ConfigStore.read_changes

    async def read_newest(self: Any, children: Sequence[str]) -> Any:
        """The patched method, with the injected bug."""
        return await read_changes(self, children[-1:])

    patch.setattr(ConfigStore, "read_changes", read_newest)
    patch.setattr(ConfigChanges, "_has_missed", lambda self, numbers, next_number: False)


def notifications_name_another_entity(patch: Patch) -> None:
    """The notification names another topic than the one whose config changed."""
    announce = ConfigStore.announce

    async def announce_other(self: Any, entity: str) -> None:
        """The patched method, with the injected bug."""
        await announce(self, f"{entity}x")

    patch.setattr(ConfigStore, "announce", announce_other)


def notifications_deleted_after_seconds(patch: Patch) -> None:
    """Notifications stay for 15 seconds, not minutes."""
    patch.setattr(config_changes, "KEPT_MS", 15_000)


def configs_mixed_up(patch: Patch) -> None:
    """Topics that changed together get each other's configs."""
    read = Store.read_topic_configs

    async def read_shifted(self: Any, topics: Any) -> Any:
        """The patched method, with the injected bug."""
        overrides, unreadable = await read(self, topics)
        return dict(zip(overrides, reversed(overrides.values()), strict=True)), unreadable

    patch.setattr(Store, "read_topic_configs", read_shifted)


def own_config_taken_for_all_brokers(patch: Patch) -> None:
    """A broker takes its own config for that of all brokers."""

    async def swapped(configs: Any, broker_id: int) -> Any:
        """The patched function, with the injected bug."""
        return (await configs.read("brokers", str(broker_id))).config, (
            await configs.read("brokers", "<default>")
        ).config

    patch.setattr(config_changes, "read_broker_configs", swapped)


def config_follower_ends_at_the_first_error(patch: Patch) -> None:
    """The task that follows config changes ends when ZooKeeper does not answer."""

    async def read_once(self: Any) -> None:
        """The patched method, with the injected bug."""
        while True:
            await self._may_be_new.wait()
            self._may_be_new.clear()
            try:
                await self._read()
            except KlammError:
                return

    patch.setattr(ZnodeFollower, "_read_in_loop", read_once)
