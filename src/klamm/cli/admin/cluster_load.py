"""Read assignment, racks, sizes and rates of a cluster from its brokers."""

import asyncio
from collections.abc import Collection, Mapping

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import read_cluster, read_moves
from klamm.cli.admin.configs import read_controller_only
from klamm.cli.admin.log_dirs import describe_log_dirs
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.cluster_load import ClusterLoad


async def read_load(admin: Admin, measure_s: float) -> tuple[ClusterLoad, frozenset[BrokerId]]:
    """The cluster's load, and the brokers that get replicas only by explicit assignment.

    Rates are measured where `measure_s` is above 0: how much logs grow in so many seconds. Raises KlammError while
    partitions are being reassigned, and CannotAsk where a broker does not say its sizes.
    """
    if moving := await read_moves(admin):
        raise KlammError(
            f"{len(moving)} partitions are being reassigned ({ErrorCode.REASSIGNMENT_IN_PROGRESS.name}). Wait for "
            "the end (klamm reassign status --wait), or cancel them."
        )
    cluster = await read_cluster(admin)
    live = sorted(cluster.brokers)
    sizes = await _read_sizes(admin, live)
    rates: dict[TopicPartition, float] = {}
    if measure_s > 0:
        if not await admin.pause(measure_s):
            raise CannotAsk(f"--measure {measure_s:g} is longer than --timeout. Raise --timeout.")
        rates = _growth(sizes, await _read_sizes(admin, live), measure_s)
    load = ClusterLoad(
        {b: cluster.brokers[b].rack for b in live},
        {at: p.replicas for at, p in cluster.partitions.items()},
        {at: float(size) for at, size in sizes.items() if at in cluster.partitions},
        {at: rate for at, rate in rates.items() if at in cluster.partitions},
    )
    return load, await read_controller_only(admin, live)


async def _read_sizes(admin: Admin, brokers: Collection[BrokerId]) -> dict[TopicPartition, int]:
    """The bytes of the largest replica of each partition. Raises CannotAsk."""
    answers = await asyncio.gather(*(_ask_log_dirs(admin, b) for b in brokers))
    sizes: dict[TopicPartition, int] = {}
    for answer in answers:
        for at, size in answer.items():
            sizes[at] = max(size, sizes.get(at, 0))
    return sizes


async def _ask_log_dirs(admin: Admin, broker: BrokerId) -> dict[TopicPartition, int]:
    """The bytes of each replica of a broker; offline log directories have none. Raises CannotAsk."""
    return {
        TopicPartition(t.name, p.partition_index): p.partition_size
        for directory in await describe_log_dirs(admin, broker)
        for t in directory.topics
        for p in t.partitions
        if not p.is_future_key
    }


def _growth(
    before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], seconds: float
) -> dict[TopicPartition, float]:
    """Bytes per second by which logs grew; 0 where segments were deleted meanwhile."""
    return {at: max(size - before[at], 0) / seconds for at, size in after.items() if at in before}
