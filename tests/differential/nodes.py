"""The controller under test, in a node of its own: Apache Kafka's in a process of its own, or ours in this one."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

from tests.differential.kafka_host import KafkaHost

from klamm.broker import assembly
from klamm.broker.node import Node, start_node
from klamm.broker.settings import controller_settings
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.controller import channels
from klamm.controller.control_requests import ControlItem
from klamm.controller.decisions import alter_partition
from klamm.controller.pending import PendingRequests
from klamm.controller.request_batch import RequestBatch
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.embedded.nodes import HOST
from klamm.model.ids import BrokerId
from klamm.runtime.ports import free_port
from klamm.runtime.time_slices import CountedSlices
from klamm.runtime.world import World, real_world
from klamm.telemetry.logs import LogLevels
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import ZkError

PROPERTIES = {
    "zookeeper.session.timeout.ms": "30000",
    "controlled.shutdown.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "num.network.threads": "1",
    "num.io.threads": "4",
}
ONLY_APACHE = {"background.threads": "1", "log.cleaner.enable": "false", "num.recovery.threads.per.data.dir": "1"}
ONLY_KLAMM = {"klamm.replace.restarted.replicas": "false", "klamm.controller.standby": "false"}
"""Apache Kafka's controller does not notice brokers that restarted while there was no controller.

A node without a current mirror gives way in an election, so that another node may win it than in Apache Kafka.
"""
POLL_S = 0.001
MAX_POLLS = 20


class NodeUnderTest(Protocol):
    @property
    def port(self) -> int: ...

    async def why_busy(self, late: Collection[int]) -> str:
        """What the node is still doing; "" if it is at rest.

        Answers that it awaits from brokers in `late` do not count.
        """
        ...

    async def session(self) -> tuple[int, bytes]:
        """Id and password of the node's ZooKeeper session."""
        ...

    def hear_nothing(self) -> None:
        """Keep from the node what ZooKeeper tells it, until `session_ended`."""
        ...

    async def session_ended(self, session_id: int) -> None:
        """Let the node know at once that this session has ended."""
        ...

    async def stop(self) -> None: ...


StartNode = Callable[[str, Path, str, Mapping[str, str], int], Awaitable[NodeUnderTest]]
"""Starts a node, from ZooKeeper's chroot, a directory, the controller's protocol, other properties, the node's id."""


class ApacheNode:
    """An Apache Kafka node in the Java process."""

    def __init__(self, host: KafkaHost, name: str, port: int) -> None:
        self._host = host
        self._name = name
        self.port = port

    async def why_busy(self, late: Collection[int]) -> str:
        return await self._host.ask("rest", self._name, *late)

    async def session(self) -> tuple[int, bytes]:
        number, password = (await self._host.ask("session", self._name)).split()
        return int(number), bytes.fromhex(password)

    def hear_nothing(self) -> None:
        """Does nothing: its new session takes longer than another node needs to become controller."""

    async def session_ended(self, session_id: int) -> None:
        """Does nothing: the node notices at its next request; two notices might expire it twice."""

    async def stop(self) -> None:
        await self._host.ask("stop", self._name)


def apache_starter(host: KafkaHost) -> StartNode:
    """A function that starts Apache Kafka nodes in this Java process."""

    async def start(connect: str, directory: Path, protocol: str, given: Mapping[str, str], number: int) -> ApacheNode:
        port = free_port()
        properties = _properties(connect, directory / f"apache-{number}", number, port) | ONLY_APACHE | dict(given)
        properties["inter.broker.protocol.version"] = protocol
        if protocol.startswith("0."):
            properties["log.message.format.version"] = protocol
        path = directory / f"apache-{number}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        name = f"{connect}-{number}"
        await host.ask("start", name, path)
        return ApacheNode(host, name, port)

    return start


class UnmergedRequests(PendingRequests):
    """Merges no requests, as Kafka does not, so that every intermediate state is sent."""

    def put(self, item: ControlItem) -> None:
        """Queue the request without merging."""
        self._items.append(item)


class ControllerOverrides:
    """Sets the protocol version of klamm's controllers, and whether they merge requests.

    Several nodes may run at once; all of them merge requests, or none does.
    """

    def __init__(self) -> None:
        self._protocols: dict[int, str] = {}
        self._patches = ExitStack()
        self._merges_requests = True

    def apply_to(self, config: NodeConfig, protocol: str, merges_requests: bool) -> None:
        """Override the settings of this node's controller."""
        assert not self._protocols or merges_requests is self._merges_requests
        if not self._protocols:
            self._merges_requests = merges_requests
            if not merges_requests:
                self._patches.enter_context(patch.object(channels, "PendingRequests", UnmergedRequests))
                self._patches.enter_context(patch.object(RequestBatch, "coalesces_requests", False))
            self._patches.enter_context(patch.object(alter_partition, "LEAVING_LEADERS_CHANGE_ISRS", False))
            self._patches.enter_context(patch.object(assembly, "controller_settings", self._settings))
        self._protocols[id(config)] = protocol

    def remove_from(self, config: NodeConfig) -> None:
        """End the overrides of this node."""
        if self._protocols.pop(id(config), None) and not self._protocols:
            self._patches.close()

    def _settings(self, config: NodeConfig, broker: BrokerId) -> ControllerSettings:
        """The controller settings with the overrides."""
        return replace(controller_settings(config, broker), ibp=parse_ibp(self._protocols[id(config)]))


OVERRIDES = ControllerOverrides()


class KlammNode:
    """A klamm node in this process."""

    def __init__(self, node: Node, port: int, config: NodeConfig) -> None:
        self._node = node
        self._config = config
        self.port = port

    async def why_busy(self, late: Collection[int]) -> str:
        busy = "no look yet"
        for _ in range(MAX_POLLS):
            try:
                await self._node.parts.context.store().client.exists(
                    "/"
                )  # answered behind every watch that fired before
            except ZkError:
                busy = "seeking a session"
            else:
                busy = self._busy(late)
            if not busy:
                return ""
            await asyncio.sleep(POLL_S)
        return busy

    def _busy(self, late: Collection[int]) -> str:
        """What the node is still doing; "" if it is at rest."""
        controller = self._node.parts.controller
        if controller.queue_size or controller.state:
            return f"an event in {controller.state}"
        if self._follows_configs():
            return "changes of configurations"
        open_channels = controller.term.channels._channels if controller.term else {}
        owing = {b for b, channel in open_channels.items() if channel.waiting} - set(late)
        return f"a request to {sorted(owing)}" if owing else ""

    def _follows_configs(self) -> bool:
        """Whether the node is reading configs."""
        return not self._node.parts.config_changes.is_up_to_date

    @property
    def _client(self) -> ZooKeeper:
        client = self._node.parts.context.store().client
        assert isinstance(client, ZooKeeper)
        return client

    async def session(self) -> tuple[int, bytes]:
        session = self._client._session
        return session.session_id, session.password

    def hear_nothing(self) -> None:
        if (transport := self._transport()) is not None:
            transport.pause_reading()

    async def session_ended(self, session_id: int) -> None:
        transport = self._transport()
        if self._client.session_id == session_id and transport is not None:
            transport.abort()

    def _transport(self) -> asyncio.Transport | None:
        """The node's connection to ZooKeeper, if there is one."""
        link = self._client._driver._link
        return link._transport if link is not None else None

    async def stop(self) -> None:
        OVERRIDES.remove_from(self._config)
        await self._node.stop()


async def start_klamm(
    connect: str, directory: Path, protocol: str, given: Mapping[str, str], number: int, merges_requests: bool = True
) -> KlammNode:
    """Start a klamm node as the node under test."""
    port = free_port()
    (directory / f"klamm-{number}").mkdir(exist_ok=True)
    properties = _properties(connect, directory / f"klamm-{number}", number, port) | ONLY_KLAMM | dict(given)
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    config = parse_node_config(text.encode(), "server.properties")
    OVERRIDES.apply_to(config, protocol, merges_requests)
    try:
        node = await start_node(_world(), config, LogLevels())
    except BaseException:
        OVERRIDES.remove_from(config)
        raise
    return KlammNode(node, port, config)


async def start_klamm_unmerged(
    connect: str, directory: Path, protocol: str, given: Mapping[str, str], number: int
) -> KlammNode:
    """Start a klamm node whose controller sends every request separately, as Kafka does."""
    return await start_klamm(connect, directory, protocol, given, number, merges_requests=False)


def _world() -> World:
    """Task slices by count instead of time, so that the order of requests does not depend on the machine's speed."""
    return replace(real_world(), make_slices=CountedSlices)


def _properties(connect: str, log_directory: Path, number: int, port: int) -> dict[str, str]:
    return {
        **PROPERTIES,
        "broker.id": str(number),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(log_directory),
        "zookeeper.connect": connect,
    }
