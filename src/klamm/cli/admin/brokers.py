"""`klamm brokers`: who is there, who controls, what each leads and holds, and how full its disks are."""

import asyncio
from collections import Counter
from typing import Any, Final, NamedTuple

from klamm.cli.admin.client import Admin, CannotAsk, code_name
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.configs import read_controller_only
from klamm.model.cluster import Address, Cluster
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribeLogDirsRequest


class LogDir(NamedTuple):
    broker: BrokerId
    path: str
    replicas: int
    bytes: int
    total_bytes: int | None
    """Of the volume; None where the broker does not tell: before 3.3."""
    usable_bytes: int | None
    error: str | None
    """Kafka's code name where the directory is out of use."""


class BrokerFacts(NamedTuple):
    id: BrokerId
    is_controller: bool
    is_controller_only: bool
    """It is there to be controller, and gets replicas only where somebody names it."""
    address: Address | None
    """None: it holds replicas, and is not alive."""
    rack: str | None
    leads: int
    preferred_by: int
    holds: int
    out_of_sync: int
    """Replicas that it holds and that are not in the ISR."""
    directories: tuple[LogDir, ...]
    problem: str | None


async def read_brokers(admin: Admin) -> list[BrokerFacts]:
    """Sorted; those that hold replicas and are away among them."""
    cluster = await read_cluster(admin)
    asked = sorted(cluster.brokers)
    found = dict(zip(asked, await asyncio.gather(*(_directories(admin, b) for b in asked)), strict=True))
    answering = [b for b in asked if not isinstance(found[b], str)]
    return facts(cluster, found, await read_controller_only(admin, answering))


async def _directories(admin: Admin, broker: BrokerId) -> list[LogDir] | str:
    """What it says, or why it does not."""
    try:
        request = DescribeLogDirsRequest(topics=None)
        answer = await admin.ask_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, request, awaits_start=False)
    except CannotAsk as error:
        return str(error)
    if answer.error_code:
        return f"does not tell its log directories ({code_name(answer.error_code)})"
    return [_directory(broker, d) for d in answer.results]


def _directory(broker: BrokerId, found: Any) -> LogDir:
    partitions = [p for t in found.topics for p in t.partitions]
    return LogDir(
        broker,
        found.log_dir,
        len(partitions),
        sum(p.partition_size for p in partitions),
        None if found.total_bytes < 0 else found.total_bytes,
        None if found.usable_bytes < 0 else found.usable_bytes,
        code_name(found.error_code) if found.error_code else None,
    )


def facts(
    cluster: Cluster, directories: dict[BrokerId, list[LogDir] | str], controller_only: frozenset[BrokerId]
) -> list[BrokerFacts]:
    leads, preferred, holds, behind = (Counter[BrokerId]() for _ in range(4))
    for p in cluster.partitions.values():
        leads[p.leader] += 1
        preferred[p.preferred] += 1
        holds.update(p.replicas)
        behind.update(b for b in p.replicas if b not in p.isr)
    return [
        _facts(b, cluster, directories.get(b, []), b in controller_only, (leads[b], preferred[b], holds[b], behind[b]))
        for b in sorted({*cluster.brokers, *holds})
    ]


def _facts(
    b: BrokerId,
    cluster: Cluster,
    directories: list[LogDir] | str,
    is_controller_only: bool,
    counts: tuple[int, int, int, int],
) -> BrokerFacts:
    there = cluster.brokers.get(b)
    told = () if isinstance(directories, str) else tuple(directories)
    problem = directories if isinstance(directories, str) else None
    if there is None:
        problem = "not alive"
    elif offline := [d.path for d in told if d.error]:
        problem = f"out of use: {', '.join(offline)}"
    address, rack = (there.address, there.rack) if there else (None, None)
    return BrokerFacts(b, b == cluster.controller, is_controller_only, address, rack, *counts, told, problem)


_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_in_words(count: int | None) -> str:
    """`1.5 GiB`; nothing for None."""
    if count is None:
        return ""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
