"""Which replicas lie on failed log directories, as LeaderAndIsr answers tell.

Source: processLeaderAndIsrResponseReceived (3.9).
"""

from collections.abc import Iterable
from typing import NamedTuple

from klamm.controller.context import ControllerContext, Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId


class DirChanges(NamedTuple):
    offline: list[Partition]
    """Those newly so."""
    online: list[Partition]


def diff_offline_dirs(
    context: ControllerContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> DirChanges:
    """KAFKA_STORAGE_ERROR means offline, NONE means online; any other code says nothing about the directory."""
    known = context.offline_dirs.get(broker, {})
    changes = DirChanges([], [])
    for partition, code in answers:
        if code == ErrorCode.KAFKA_STORAGE_ERROR and partition not in known:
            changes.offline.append(partition)
        elif code == ErrorCode.NONE and partition in known:
            changes.online.append(partition)
    return changes
