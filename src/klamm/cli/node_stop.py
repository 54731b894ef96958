"""`klamm node stop`: show the partitions at risk, then stop the node and wait for its end."""

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from klamm.broker.identity import read_pid
from klamm.cli.admin.client import Admin
from klamm.cli.admin.shutdown_verdict import read_shutdown_verdict
from klamm.cli.output import print_error, print_line, print_table
from klamm.config.node_config import NodeConfig, WrongConfig, parse_node_config
from klamm.controller.decisions.shutdown_verdict import Verdict
from klamm.log.meta_properties import read_meta
from klamm.model.cluster import Address
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.disk import Disk
from klamm.runtime.main_loop import run_loop
from klamm.runtime.processes import ask_to_stop, is_alive, ticks
from klamm.runtime.world import World, real_world

_TIMEOUT_S: Final = 10.0


class CannotStop(KlammError):
    """Why the node was not stopped, as one sentence."""


def stop_node(
    properties: str, overrides: Mapping[str, str], check: bool, force: bool, as_json: bool, timeout_s: float
) -> int:
    """Stop a node on this machine, unless partitions are at risk.

    Returns the exit status: 0 when it was stopped, or when `check` found no risk. Raises CannotStop.
    """
    world = real_world()
    config = _read_node_config(world.disk, properties, overrides)
    pids = (read_pid(world.disk, directory) for directory in config.log_directories)
    pid = next((pid for pid in pids if pid is not None), None)
    if pid is None:
        raise CannotStop(
            f"No node uses the log directory {config.log_directories[0]}: nothing to stop. Check the path of "
            "server.properties."
        )
    try:
        verdict: Verdict | None = run_loop(_read_verdict(world, config))
    except KlammError as error:
        if not force:
            raise CannotStop(
                f"Cannot check which partitions are at risk ({error}). Pass --force to stop the node anyway."
            ) from error
        print_error(f"Cannot check which partitions are at risk: {error}. The node is stopped anyway (--force).")
        verdict = None
    if verdict is not None:
        print_verdict(verdict, as_json)
    is_safe = verdict is not None and verdict.is_safe
    if check:
        return 0 if is_safe else 1
    if not is_safe and not force:
        raise CannotStop("Not stopped: partitions are at risk. Pass --force to stop the node anyway.")
    _terminate(pid, timeout_s)
    if not as_json:
        print_line("Stopped.")
    return 0


def print_verdict(verdict: Verdict, as_json: bool) -> None:
    """Print which partitions a stop of the node would put at risk, as text or JSON."""
    if as_json:
        print_line(msgspec.json.encode(_verdict_as_data(verdict)).decode())
        return
    at_risk = [(p, "no leader", why) for p, why in verdict.leaderless.items()]
    at_risk += [(p, "below min ISR", why) for p, why in verdict.below_min_isr.items()]
    print_line(f"Leaders that move to other nodes: {len(verdict.moves)}. Partitions at risk: {len(at_risk)}.")
    if at_risk:
        print_table(("partition", "risk", "why"), at_risk)


def _verdict_as_data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict about a stop of the node for JSON."""

    def risks_as_data(risks: Mapping[TopicPartition, str]) -> list[dict[str, Any]]:
        """Return the partitions at risk with their reasons for JSON."""
        return [{"topic": p.topic, "partition": p.partition, "why": why} for p, why in risks.items()]

    return {
        "safe": verdict.is_safe,
        "leaders_to_move": len(verdict.moves),
        "leaderless": risks_as_data(verdict.leaderless),
        "below_min_isr": risks_as_data(verdict.below_min_isr),
    }


def _terminate(pid: int, timeout_s: float) -> None:
    """Send SIGTERM to the process, and wait until it has ended. Raises CannotStop at the timeout."""
    ask_to_stop(pid)
    if sys.stderr.isatty():
        print_error("The node is stopping. Its leaders move to other nodes.")
    for _ in ticks(timeout_s, 0.1):
        if not is_alive(pid):
            return
    raise CannotStop(
        f"Process {pid} got SIGTERM and is still running after {timeout_s:g} s. See its log, or raise --timeout."
    )


def _read_node_config(disk: Disk, properties: str, overrides: Mapping[str, str]) -> NodeConfig:
    """Return the node's config from its `server.properties`. Raises CannotStop where it cannot be read or is wrong."""
    try:
        return parse_node_config(disk.read(properties), properties, overrides)
    except OSError as error:
        raise CannotStop(
            f"Cannot read {properties}: {error.strerror}. Give the path of the node's server.properties."
        ) from error
    except WrongConfig as error:
        raise CannotStop(str(error)) from error


# ---- reading the cluster


async def _read_verdict(world: World, config: NodeConfig) -> Verdict:
    """Ask the node which partitions its stop puts at risk. Raises KlammError when it does not answer."""
    meta = read_meta(world.disk, config.log_directories[0])
    broker_id = config.broker_id if config.broker_id >= 0 else meta.broker_id if meta is not None else None
    if broker_id is None:
        raise CannotStop(
            f"The broker id is neither in server.properties nor in {config.log_directories[0]}/meta.properties: "
            "set broker.id in server.properties."
        )
    listener = next(e for e in config.endpoints if e.listener == config.inter_broker_listener)
    host = listener.host if listener.host not in ("", "0.0.0.0") else "127.0.0.1"
    async with Admin(world, [Address(host, listener.port)], _TIMEOUT_S) as admin:
        return await read_shutdown_verdict(admin, BrokerId(broker_id))
