"""What the coordinator of a group or transaction says now, for `klamm explain`."""

from typing import Final

from klamm.cli.admin import groups, transactions
from klamm.cli.admin.client import Admin
from klamm.cli.admin.groups import Lag
from klamm.explain.live import GroupNow, LagNow, MemberNow, TransactionNow
from klamm.model.ids import TopicPartition
from klamm.runtime.world import real_world

TREND_INTERVAL_S: Final = 6.0
"""Between two looks at a group that lags: longer than consumers wait between two commits (5 s)."""


async def read_group(admin: Admin, name: str) -> GroupNow:
    """Read the group from its coordinator.

    Where the group lags, its offsets are read twice, a moment apart, to see whether the lag grows. Raises CannotAsk.
    """
    group = await groups.describe_group(admin, name)
    earlier: dict[TopicPartition, LagNow] = {}
    lags = _by_partition(await groups.read_lag(admin, group))
    interval_s = min(TREND_INTERVAL_S, admin.left_s / 2)
    if any(found.lag for found in lags.values()) and await admin.pause(interval_s):
        group = await groups.describe_group(admin, name)
        earlier, lags = lags, _by_partition(await groups.read_lag(admin, group))
    members = tuple(MemberNow(m.member_id, m.instance_id, m.client_id, m.host, m.partitions) for m in group.members)
    return GroupNow(group.state, group.assignor, members, lags, earlier, interval_s)


def _by_partition(lags: list[Lag]) -> dict[TopicPartition, LagNow]:
    """Return the committed offset and the end offset of each partition."""
    return {found.partition: LagNow(found.committed, found.end) for found in lags}


async def read_transaction(admin: Admin, name: str) -> TransactionNow:
    """Read the transaction of this transactional id from its coordinator.

    Raises CannotAsk, also where the coordinator does not know the id.
    """
    found = await transactions.describe_transaction(admin, name)
    return TransactionNow(
        found.state,
        found.producer_id,
        found.epoch,
        found.timeout_ms,
        found.start_ms,
        found.partitions,
        real_world().clock.now_ms(),
    )
