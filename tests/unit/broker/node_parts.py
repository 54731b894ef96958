"""The parts of a node that is not started."""

from dataclasses import replace
from pathlib import Path

from klamm.broker.assembly import build_parts
from klamm.broker.context import NodeContext
from klamm.broker.crash_guard import CrashGuard
from klamm.broker.lifecycle import Lifecycle, NodeStatus
from klamm.broker.parts import Parts
from klamm.broker.storage import build_storage
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import parse_node_config
from klamm.model.ids import BrokerId
from klamm.runtime.time_slices import CountedSlices, Slices
from klamm.runtime.world import real_world
from klamm.telemetry.logs import LogLevels


def context(directory: Path, *lines: str, slices: Slices | None = None) -> NodeContext:
    (directory / "logs").mkdir(exist_ok=True)
    text = "\n".join(["zookeeper.connect=127.0.0.1:1", f"log.dirs={directory}/logs", *lines])
    config = parse_node_config(text.encode(), "server.properties")
    world = replace(real_world(), request_slices=slices or CountedSlices())
    sessions = ZooKeeperSessions(world, config, CrashGuard(world, config))
    return NodeContext(
        world, config, DynamicConfig(config), BrokerId(1), "cluster", sessions, NodeStatus(), LogLevels()
    )


def build(directory: Path, *lines: str, slices: Slices | None = None) -> tuple[Parts, Lifecycle]:
    """`lines` of server.properties beside the required ones."""
    lifecycle = Lifecycle()
    node = context(directory, *lines, slices=slices)
    return build_parts(node, build_storage(node, lifecycle), lifecycle), lifecycle
