"""`klamm node stop`: what would be at risk is said first; then the node is asked to stop, and waited for."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from klamm.broker.identity import read_pid
from klamm.cli.metadata import ClusterFacts, read_metadata
from klamm.cli.speech import complain, say, show
from klamm.config.node_config import NodeConfig, WrongConfig, parse_node_config
from klamm.controller.decisions.shutdown_verdict import PartitionFacts, Verdict, judge_stop
from klamm.log.meta_properties import read_meta
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.net.client import Connection
from klamm.runtime.disk import Disk
from klamm.runtime.main_loop import run_loop
from klamm.runtime.processes import ask_to_stop, is_alive, ticks
from klamm.runtime.world import World, real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribeConfigsRequest, DescribeConfigsResource

MIN_ISR: Final = "min.insync.replicas"
_TOPIC: Final = 2
_CONFIGS_VERSION: Final = 1
_TIMEOUT_S: Final = 10.0
_TOPICS_AT_ONCE: Final = 500


class CannotStop(KlammError):
    """One sentence on why the node was not stopped."""


def stop_node(
    properties: str, overrides: Mapping[str, str], check: bool, force: bool, as_json: bool, timeout_s: float
) -> int:
    """The exit status: 0 where it was stopped, or where `check` found nothing at risk. Raises CannotStop."""
    world = real_world()
    config = _config(world.disk, properties, overrides)
    directory = config.log_directories[0]
    pid = read_pid(world.disk, directory)
    if pid is None:
        raise CannotStop(f"no node runs on {directory}: its lock is free")
    try:
        verdict: Verdict | None = run_loop(_ask(world, config))
    except KlammError as error:
        if not force:
            raise CannotStop(
                f"the node does not say what is at risk ({error}); --force stops it all the same"
            ) from error
        complain(f"the node does not say what is at risk: {error}")
        verdict = None
    if verdict is not None:
        tell(verdict, as_json)
    is_safe = verdict is not None and verdict.is_safe
    if check:
        return 0 if is_safe else 1
    if not is_safe and not force:
        raise CannotStop("not stopped: partitions are at risk; --force stops it all the same")
    _stop(pid, timeout_s)
    if not as_json:
        say("stopped")
    return 0


def tell(verdict: Verdict, as_json: bool) -> None:
    if as_json:
        say(msgspec.json.encode(_content(verdict)).decode())
        return
    at_risk = [(p, "no leader", why) for p, why in verdict.leaderless.items()]
    at_risk += [(p, "below min ISR", why) for p, why in verdict.below_min_isr.items()]
    say(f"{len(verdict.moves)} leaders would move to other nodes; {len(at_risk)} partitions would be at risk")
    if at_risk:
        show(("partition", "risk", "why"), at_risk)


def _content(verdict: Verdict) -> dict[str, Any]:
    def listed(risks: Mapping[TopicPartition, str]) -> list[dict[str, Any]]:
        return [{"topic": p.topic, "partition": p.partition, "why": why} for p, why in risks.items()]

    return {
        "safe": verdict.is_safe,
        "leaders_to_move": len(verdict.moves),
        "leaderless": listed(verdict.leaderless),
        "below_min_isr": listed(verdict.below_min_isr),
    }


def _stop(pid: int, timeout_s: float) -> None:
    ask_to_stop(pid)
    if sys.stderr.isatty():
        complain("asked to stop; its leaders move now")
    for _ in ticks(timeout_s, 0.1):
        if not is_alive(pid):
            return
    raise CannotStop(f"process {pid} was asked to stop, and still runs after {timeout_s:g} s")


def _config(disk: Disk, properties: str, overrides: Mapping[str, str]) -> NodeConfig:
    try:
        return parse_node_config(disk.read(properties), properties, overrides)
    except OSError as error:
        raise CannotStop(f"{properties} cannot be read: {error.strerror}; name the node's server.properties") from error
    except WrongConfig as error:
        raise CannotStop(str(error)) from error


# ---- what the cluster says


async def _ask(world: World, config: NodeConfig) -> Verdict:
    """Raises KlammError where the node does not answer."""
    meta = read_meta(world.disk, config.log_directories[0])
    number = config.broker_id if config.broker_id >= 0 else meta.broker_id if meta is not None else None
    if number is None:
        raise CannotStop(f"{config.log_directories[0]} does not say which broker this is")
    listener = next(e for e in config.endpoints if e.listener == config.inter_broker_listener)
    host = listener.host if listener.host not in ("", "0.0.0.0") else "127.0.0.1"
    cluster = await read_metadata(world, host, listener.port)
    broker = BrokerId(number)
    hosted = sorted({p.topic for p, facts in cluster.partitions.items() if broker in facts.replicas})
    min_isr = await _min_isr(world, host, listener.port, hosted)
    return judge_stop(broker, cluster.brokers, _facts(cluster, min_isr))


def _facts(cluster: ClusterFacts, min_isr: Mapping[str, int]) -> list[PartitionFacts]:
    return [
        PartitionFacts(p, facts.leader, facts.replicas, facts.isr, min_isr.get(p.topic, 1))
        for p, facts in cluster.partitions.items()
    ]


async def _min_isr(world: World, host: str, port: int, topics: Sequence[str]) -> dict[str, int]:
    connection = await Connection.open(world, host, port, "klamm-cli", _TIMEOUT_S)
    found: dict[str, int] = {}
    try:
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            asked = [DescribeConfigsResource(_TOPIC, t, (MIN_ISR,)) for t in topics[start : start + _TOPICS_AT_ONCE]]
            request = DescribeConfigsRequest(resources=asked)
            answer = await connection.request(ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION, request, _TIMEOUT_S)
            found |= {r.resource_name: int(c.value) for r in answer.results for c in r.configs if c.name == MIN_ISR}
    finally:
        connection.close()
    return found
