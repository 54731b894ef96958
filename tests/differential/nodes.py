"""The controller under test, in a node of its own: Apache Kafka's as a process, or ours in this one."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

from tests.support import apache_kafka

from klamm.broker import node as node_module
from klamm.broker.node import Node
from klamm.broker.settings import controller_settings
from klamm.cli.cluster import HOST, NodeProcess
from klamm.config.node_config import parse_node_config
from klamm.controller import channels
from klamm.controller.control_requests import ControlItem
from klamm.controller.pending import PendingRequests
from klamm.controller.settings import parse_ibp
from klamm.model.ids import BrokerId
from klamm.runtime.ports import free_port
from klamm.runtime.world import real_world

NODE_ID = 100
PROPERTIES = {
    "zookeeper.session.timeout.ms": "30000",
    "controlled.shutdown.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "num.network.threads": "1",
    "num.io.threads": "2",
}


class NodeUnderTest(Protocol):
    quiet_s: float
    """How long nothing may happen before it is taken to be at rest."""

    @property
    def port(self) -> int: ...
    @property
    def is_busy(self) -> bool:
        """It handles an event, as far as one can look inside."""
        ...

    @property
    def owes(self) -> set[int]:
        """Brokers with requests not yet answered, as far as one can look inside."""
        ...

    async def stop(self) -> None: ...


StartNode = Callable[[str, Path, str], Awaitable[NodeUnderTest]]
"""Starts a node, from the ZooKeeper chroot that it shall use, a directory, and the controller's protocol version."""


class ApacheNode:
    quiet_s = 0.5

    def __init__(self, process: NodeProcess) -> None:
        self._process = process
        self.port = process.port
        self.is_busy = False
        self.owes: set[int] = set()

    async def stop(self) -> None:
        await asyncio.to_thread(self._process.kill)


async def start_apache(connect: str, directory: Path, protocol: str) -> ApacheNode:
    given = {**PROPERTIES, "zookeeper.connect": connect, "inter.broker.protocol.version": protocol}
    if protocol.startswith("0."):
        given["log.message.format.version"] = protocol
    process = NodeProcess(NODE_ID, free_port(), str(directory / "apache"), given, apache_kafka.broker())
    process.start()
    await asyncio.to_thread(apache_kafka.wait_until_started, process)
    return ApacheNode(process)


class EveryRequest(PendingRequests):
    """Joins no requests, as Kafka does not, so that no intermediate state is left out of a story."""

    def put(self, item: ControlItem) -> None:
        self._items.append(item)


class KlammNode:
    quiet_s = 0.06

    def __init__(self, node: Node, port: int, protocol: str, joins_requests: bool) -> None:
        self._node = node
        self.port = port
        queue = PendingRequests if joins_requests else EveryRequest
        settings = replace(controller_settings(node._config, BrokerId(NODE_ID)), ibp=parse_ibp(protocol))
        self._patches = ExitStack()
        self._patches.enter_context(patch.object(channels, "PendingRequests", queue))
        self._patches.enter_context(patch.object(node_module, "controller_settings", lambda *_: settings))

    @property
    def is_busy(self) -> bool:
        controller = self._node._controller
        return controller is not None and bool(controller.queue_size or controller.state)

    @property
    def owes(self) -> set[int]:
        bench = self._node._controller.bench if self._node._controller else None
        return {b for b, c in bench.channels._channels.items() if c.waiting} if bench else set()

    async def stop(self) -> None:
        self._patches.close()
        await self._node.abandon()


async def start_klamm(connect: str, directory: Path, protocol: str, joins_requests: bool = False) -> KlammNode:
    port = free_port()
    given = {
        **PROPERTIES,
        "broker.id": str(NODE_ID),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(directory / "klamm"),
        "zookeeper.connect": connect,
    }
    (directory / "klamm").mkdir(exist_ok=True)
    text = "".join(f"{key}={value}\n" for key, value in given.items())
    node = Node(real_world(), parse_node_config(text.encode(), "server.properties"))
    started = KlammNode(node, port, protocol, joins_requests)
    try:
        await node.start()
    except BaseException:
        await started.stop()
        raise
    return started
