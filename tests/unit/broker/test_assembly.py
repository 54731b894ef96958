"""The parts of a node and their order; a new part takes one line."""

from pathlib import Path

import pytest

from klamm.broker import assembly
from klamm.broker.context import NodeContext
from klamm.broker.lifecycle import Lifecycle, NodeStatus
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import parse_node_config
from klamm.model.ids import BrokerId
from klamm.runtime.world import real_world
from klamm.telemetry.logs import LogLevels

START_ORDER = [
    "listeners", "log directory failures", "logs",
    "registration", "metadata cache", "features", "controller", "log housekeeping", "controller channel",
    "stale topics", "replicas", "producer ids", "config changes", "controller handover", "registration watch",
    "metrics endpoint", "request server",
]  # fmt: skip


def context(directory: Path, *lines: str) -> NodeContext:
    (directory / "logs").mkdir(exist_ok=True)
    text = "\n".join(["zookeeper.connect=127.0.0.1:1", f"log.dirs={directory}/logs", *lines])
    config = parse_node_config(text.encode(), "server.properties")
    world = real_world()
    sessions = ZooKeeperSessions(world, config)
    return NodeContext(
        world, config, DynamicConfig(config), BrokerId(1), "cluster", sessions, NodeStatus(), LogLevels()
    )


def build(context: NodeContext, lifecycle: Lifecycle) -> None:
    assembly.build_parts(context, assembly.build_storage(context, lifecycle), lifecycle)


async def test_the_ports_close_before_the_replicas_the_logs_the_controller_and_the_registration(tmp_path: Path) -> None:
    lifecycle = Lifecycle()
    build(context(tmp_path), lifecycle)
    assert lifecycle.names == START_ORDER


@pytest.mark.parametrize(
    ("line", "part"),
    [("klamm.journal.topic=journal", "journal topic"), ("inter.broker.protocol.version=2.6", "ISR changes")],
)
async def test_a_config_adds_its_part(tmp_path: Path, line: str, part: str) -> None:
    lifecycle = Lifecycle()
    build(context(tmp_path, line), lifecycle)
    assert sorted(set(lifecycle.names) - set(START_ORDER)) == [part]


class GroupCoordinator:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    async def close(self) -> None:
        self.calls.append("close")


async def test_a_new_part_takes_one_line() -> None:
    lifecycle = Lifecycle()
    coordinator = lifecycle.add("group coordinator", GroupCoordinator())
    await lifecycle.start()
    await lifecycle.close()
    assert coordinator.calls == ["start", "close"]
