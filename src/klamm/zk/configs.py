"""Configs and their change notifications in ZooKeeper, in the format of brokers and tools.

Source: KafkaZkClient.setOrCreateEntityConfigs, AdminZkClient, ZkNodeChangeNotificationListener (3.9).
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm.model.errors import KlammError
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_config, decode_config_change, encode_config, encode_config_change
from klamm.zk.errors import NoAuth, NoNode, NotEmpty, ZkCode, error_of
from klamm.zk.jute import Stat
from klamm.zk.operations import Check, Create, Op, Set
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import CONFIG_CHANGES, MalformedZnode

CHANGE_PREFIX: Final = "config_change_"
_CHANGE: Final = re.compile(CHANGE_PREFIX + "([0-9]{1,19})")
DEFAULT_ENTITY: Final = "<default>"
ABSENT: Final = -1
"""The version of an entity that has no znode yet."""


class NoZooKeeperController(KlammError):
    """Configs may be written only while there is a controller, and it is not a KRaft controller."""


class ConfigChanged(KlammError):
    """Another client wrote the entity's config after it was read."""


class StoredConfig(NamedTuple):
    """An entity's config with the version of its znode."""

    config: dict[str, str]
    version: int


class Change(NamedTuple):
    """A config change notification: which entity's config changed, and when."""

    child: str
    number: int
    entity: str
    """The path below `/config`, such as `topics/orders`; empty if the notification cannot be read."""
    created_ms: int


class ConfigStore:
    """Reads and writes configs in one ZooKeeper session."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def read(self, entity_type: str, entity: str) -> StoredConfig:
        """The entity's config; empty with version ABSENT if it has none. Raises MalformedZnode."""
        try:
            data, stat = await self._client.get(znodes.config_path(entity_type, entity))
        except NoNode:
            return StoredConfig({}, ABSENT)
        return StoredConfig(decode_config(entity_type, entity, data), stat.version)

    async def write(self, entity_type: str, entity: str, config: Mapping[str, str], version: int) -> None:
        """Write the config if the entity still has `version`, then notify all brokers.

        Raises ConfigChanged for another version, NoZooKeeperController without a controller or with a KRaft controller.
        """
        controller = await self._controller_version()
        path = znodes.config_path(entity_type, entity)
        write: Op
        if version == ABSENT:
            await self._client.ensure_path(path.rpartition("/")[0])
            write = Create(path, encode_config(config))
        else:
            write = Set(path, encode_config(config), version)
        results = await self._client.multi([Check(znodes.CONTROLLER, controller), write])
        refusal = next((r.code for r in results if r.code is not ZkCode.OK), None)
        if results[0].code is not ZkCode.OK and refusal is not None:
            raise NoZooKeeperController(f"{path} was not written, because the controller changed meanwhile. Try again.")
        if refusal in (ZkCode.BAD_VERSION, ZkCode.NODE_EXISTS, ZkCode.NO_NODE):
            raise ConfigChanged(f"{path} was not written, because another client changed it meanwhile. Try again.")
        if refusal is not None:
            raise error_of(refusal, path)
        await self.announce(f"{entity_type}/{entity}")

    async def announce(self, entity: str) -> None:
        """Create a change notification, so that every broker reads the entity's config; a duplicate does no harm."""
        path = f"{CONFIG_CHANGES}/{CHANGE_PREFIX}"
        await self._client.create(path, encode_config_change(entity), sequential=True)

    # ---- following changes

    async def list_changes(self) -> tuple[list[str], int]:
        """The names of the config change notifications, oldest first, and the number that the next one will get.

        The list is watched from now on.
        """
        children, stat = await self._client.children(CONFIG_CHANGES, watch=True)
        return sorted(children), _next_number(stat)

    async def next_change_number(self) -> int:
        """The number that the next config change notification will get."""
        stat = await self._client.exists(CONFIG_CHANGES)
        return _next_number(stat) if stat is not None else 0

    async def read_changes(self, children: Sequence[str]) -> tuple[list[Change], dict[str, str]]:
        """Read these config change notifications, those that still exist, in order.

        Also returns, by name, why some cannot be read.
        """
        results = await self._client.get_many([f"{CONFIG_CHANGES}/{child}" for child in children])
        found: list[Change] = []
        unreadable: dict[str, str] = {}
        for child, result in zip(children, results, strict=True):
            if result.code is not ZkCode.OK or result.stat is None:
                if result.code is not ZkCode.NO_NODE:
                    unreadable[child] = f"ZooKeeper answered {result.code.name} for {CONFIG_CHANGES}/{child}"
                continue
            entity = ""
            try:
                entity = decode_config_change(child, result.data)
            except MalformedZnode as error:
                unreadable[child] = str(error)
            found.append(Change(child, change_number(child), entity, result.stat.ctime))
        return found, unreadable

    async def delete_changes(self, children: Sequence[str]) -> None:
        """Delete these config change notifications; those already deleted, or protected by an ACL, are skipped."""
        for child in children:
            with contextlib.suppress(NoNode, NotEmpty, NoAuth):
                await self._client.delete(f"{CONFIG_CHANGES}/{child}")

    async def _controller_version(self) -> int:
        """The version of `/controller`. Raises NoZooKeeperController."""
        try:
            data, stat = await self._client.get(znodes.CONTROLLER)
        except NoNode:
            raise NoZooKeeperController(
                "configs cannot be written to ZooKeeper while there is no controller. Try again."
            ) from None
        holder = znodes.decode_controller(data)
        if holder is not None and holder.is_kraft:
            raise NoZooKeeperController(
                "configs are not written to ZooKeeper: a KRaft controller is active. Change configs through "
                "that controller."
            )
        return stat.version


def _next_number(stat: Stat) -> int:
    """The number of the next sequential child; a Stat's cversion counts creations and deletions."""
    return (stat.cversion + stat.num_children) // 2


def change_number(child: str) -> int:
    """The sequence number in the name of a config change notification; -1 for another name."""
    match = _CHANGE.fullmatch(child)
    return int(match[1]) if match else -1
