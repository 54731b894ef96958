"""Which replicas are on failed log directories, according to LeaderAndIsr responses.

Source: processLeaderAndIsrResponseReceived (3.9).
"""

from collections.abc import Iterable
from typing import NamedTuple

from klamm.controller.context import ControllerContext, Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId


class DirChanges(NamedTuple):
    """Partitions whose log directory on a broker failed, or works again."""

    offline: list[Partition]
    """Partitions whose directory was not known to have failed."""
    online: list[Partition]


def diff_offline_dirs(
    context: ControllerContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> DirChanges:
    """Find the replicas on this broker whose log directory newly failed or works again.

    `answers` are the error codes of a LeaderAndIsr response: KAFKA_STORAGE_ERROR means that the directory failed, NONE
    that it works; other codes change nothing.
    """
    known = context.offline_dirs.get(broker, {})
    changes = DirChanges([], [])
    for partition, code in answers:
        if code == ErrorCode.KAFKA_STORAGE_ERROR and partition not in known:
            changes.offline.append(partition)
        elif code == ErrorCode.NONE and partition in known:
            changes.online.append(partition)
    return changes
