"""Which nodes keep a mirror of the cluster while they are not controller."""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from klamm.model.ids import BrokerId

SMALL_CLUSTER: Final = 5
"""Up to this many live brokers, all nodes keep a mirror: any of them may win the election."""
STANDBYS: Final = 2
"""In larger clusters, the live brokers with this many lowest ids keep one: one is left when the controller was one."""


class StandbyMode(StrEnum):
    """The values of `klamm.controller.standby`."""

    AUTO = "auto"
    TRUE = "true"
    FALSE = "false"


def keeps_mirror(
    mode: StandbyMode, broker: BrokerId, live: Collection[BrokerId], only_controllers: Collection[BrokerId] = ()
) -> bool:
    """Whether this broker keeps a copy of ZooKeeper's topics in memory, to become controller quickly.

    `live` has the ids of the live brokers, some of which are chosen: first those that only serve as controller.
    """
    if mode is not StandbyMode.AUTO:
        return mode is StandbyMode.TRUE
    return len(live) <= SMALL_CLUSTER or broker in sorted(live, key=lambda b: (b not in only_controllers, b))[:STANDBYS]
