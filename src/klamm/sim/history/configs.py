"""Configs in ZooKeeper, the notifications of their changes, and what brokers apply of them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm.sim.history.trace import ConfigsApplied, Position, TransactionCommitted
from klamm.sim.zookeeper.tree import Change, CreateChange, DeleteChange, SetChange
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_config, decode_config_change
from klamm.zk.znodes import MalformedZnode

_CHANGE_PREFIX: Final = znodes.CONFIG_CHANGES + "/"
_ENTITY_PREFIXES: Final = tuple(znodes.config_path(entity_type, "") for entity_type in ("topics", "brokers"))
_CONFIG_PREFIX: Final = znodes.CONFIG + "/"

Config = Mapping[str, str]


class Notification(NamedTuple):
    """A notification of a config change."""

    entity: str
    """The path below `/config`; empty where the notification cannot be read."""
    zxid: int
    created_s: float


@dataclass(slots=True)
class ConfigHistory:
    at: Position
    versions: dict[str, list[tuple[int, Config | None]]] = field(default_factory=lambda: defaultdict(list))
    """Entity -> zxid and content of each version of its config; None where it is deleted or cannot be read."""
    notifications: dict[str, Notification] = field(default_factory=dict)
    """By path: those that are there."""
    newest_notification: dict[str, int] = field(default_factory=dict)
    """Entity -> zxid of its newest notification, also of one that was deleted since."""
    deleted_entities: set[str] = field(default_factory=set)
    """Entities of which a notification was deleted: a broker that was away may have missed it."""
    applied: dict[tuple[int, int], dict[str, Config]] = field(default_factory=lambda: defaultdict(dict))
    """(broker, incarnation) -> entity -> the config that it applied last."""

    def newest(self, entity: str) -> tuple[int, Config | None]:
        """The zxid and content of the newest version of the entity's config; (0, None) where there never was one."""
        versions = self.versions.get(entity)
        return versions[-1] if versions else (0, None)

    def on_transaction(self, event: TransactionCommitted) -> None:
        """Record changes of configs and notifications."""
        for change in event.changes:
            if change.path.startswith(_CHANGE_PREFIX):
                self._on_notification(change, event.zxid)
            elif change.path.startswith(_ENTITY_PREFIXES):
                self._on_config(change, event.zxid)

    def _on_notification(self, change: Change, zxid: int) -> None:
        """Record that a notification was created or deleted."""
        if isinstance(change, DeleteChange):
            gone = self.notifications.pop(change.path, None)
            if gone is not None:
                self.deleted_entities.add(gone.entity)
        elif isinstance(change, CreateChange):
            try:
                entity = decode_config_change(change.path[len(_CHANGE_PREFIX) :], change.data)
            except MalformedZnode:
                entity = ""
            self.notifications[change.path] = Notification(entity, zxid, self.at.now_s)
            self.newest_notification[entity] = zxid

    def _on_config(self, change: Change, zxid: int) -> None:
        """Record a version of an entity's config."""
        entity, content = change.path[len(_CONFIG_PREFIX) :], None
        entity_type, _, name = entity.partition("/")
        if isinstance(change, CreateChange | SetChange):
            try:
                content = decode_config(entity_type, name, change.data)
            except MalformedZnode:
                content = None
        self.versions[entity].append((zxid, content))

    def on_applied(self, event: ConfigsApplied) -> None:
        """Record what a broker applied."""
        self.applied[event.broker, event.incarnation].update(event.configs)
