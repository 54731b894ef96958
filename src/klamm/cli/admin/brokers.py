"""Read the brokers of a cluster: racks, leaders, replicas and log directories."""

import asyncio
from collections import Counter
from typing import Any, Final, NamedTuple

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.configs import read_controller_only
from klamm.cli.admin.log_dirs import describe_log_dirs
from klamm.client.errors import code_name
from klamm.model.cluster import Address, Cluster
from klamm.model.ids import BrokerId


class LogDir(NamedTuple):
    broker: BrokerId
    path: str
    replicas: int
    bytes: int
    total_bytes: int | None
    """Size of the volume; None for brokers before 3.3."""
    usable_bytes: int | None
    error: str | None
    """Name of Kafka's error code when the directory is offline."""


class BrokerFacts(NamedTuple):
    id: BrokerId
    is_controller: bool
    is_controller_only: bool
    """It gets replicas only by explicit assignment."""
    address: Address | None
    """None: it has replicas, but is not alive."""
    rack: str | None
    leads: int
    preferred_by: int
    holds: int
    out_of_sync: int
    """Its replicas that are not in the ISR."""
    directories: tuple[LogDir, ...]
    problem: str | None


async def read_brokers(admin: Admin) -> list[BrokerFacts]:
    """Return address, leaders, replicas and log directories of each broker, sorted by id.

    Dead brokers with replicas are included.
    """
    cluster = await read_cluster(admin)
    ids = sorted(cluster.brokers)
    log_dirs = dict(zip(ids, await asyncio.gather(*(_read_log_dirs(admin, b) for b in ids)), strict=True))
    answering = [b for b in ids if not isinstance(log_dirs[b], str)]
    return broker_facts(cluster, log_dirs, await read_controller_only(admin, answering))


async def _read_log_dirs(admin: Admin, broker: BrokerId) -> list[LogDir] | str:
    """The log directories of a broker, or the reason why it does not list them."""
    try:
        return [_log_dir(broker, d) for d in await describe_log_dirs(admin, broker, awaits_start=False)]
    except CannotAsk as error:
        return str(error)


def _log_dir(broker: BrokerId, log_dirs: Any) -> LogDir:
    """Return one log directory of a DescribeLogDirs response.

    Total and usable bytes are None where the broker does not know them.
    """
    partitions = [p for t in log_dirs.topics for p in t.partitions]
    return LogDir(
        broker,
        log_dirs.log_dir,
        len(partitions),
        sum(p.partition_size for p in partitions),
        None if log_dirs.total_bytes < 0 else log_dirs.total_bytes,
        None if log_dirs.usable_bytes < 0 else log_dirs.usable_bytes,
        code_name(log_dirs.error_code) if log_dirs.error_code else None,
    )


def broker_facts(
    cluster: Cluster, directories: dict[BrokerId, list[LogDir] | str], controller_only: frozenset[BrokerId]
) -> list[BrokerFacts]:
    """Count leaders, preferred leaders, replicas and replicas out of sync of each broker; dead ones are included."""
    leads, preferred, holds, behind = (Counter[BrokerId]() for _ in range(4))
    for p in cluster.partitions.values():
        leads[p.leader] += 1
        preferred[p.preferred] += 1
        holds.update(p.replicas)
        behind.update(b for b in p.replicas if b not in p.isr)
    return [
        _facts_of_broker(
            b, cluster, directories.get(b, []), b in controller_only, (leads[b], preferred[b], holds[b], behind[b])
        )
        for b in sorted({*cluster.brokers, *holds})
    ]


def _facts_of_broker(
    b: BrokerId,
    cluster: Cluster,
    directories: list[LogDir] | str,
    is_controller_only: bool,
    counts: tuple[int, int, int, int],
) -> BrokerFacts:
    """Return the facts of one broker for the table.

    `counts` are the partitions that it leads, is preferred leader of, has, and has out of sync.
    """
    there = cluster.brokers.get(b)
    log_dirs = () if isinstance(directories, str) else tuple(directories)
    problem = directories if isinstance(directories, str) else None
    if there is None:
        problem = "not alive"
    elif offline := [d.path for d in log_dirs if d.error]:
        problem = f"log directory offline: {', '.join(offline)}"
    address, rack = (there.address, there.rack) if there else (None, None)
    return BrokerFacts(b, b == cluster.controller, is_controller_only, address, rack, *counts, log_dirs, problem)


_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(count: int | None) -> str:
    """Return the size as text, like `1.5 GiB`; an empty text for None."""
    if count is None:
        return ""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
