"""Which partitions a broker that shuts down leads and follows. Source: KafkaController.doControlledShutdown (3.9)."""

from collections.abc import Iterable
from typing import NamedTuple

from klamm.controller.context import ControllerContext
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId


class ControlledShutdownPlan(NamedTuple):
    """Partitions that the broker leads, and partitions that it follows."""

    led: list[Partition]
    followed: list[Partition]


def check_controlled_shutdown(context: ControllerContext, broker: BrokerId, broker_epoch: int) -> ErrorCode:
    """Return the error of a request from an unknown broker or with a stale epoch, else NONE.

    An epoch of -1 (version 0 and 1) is not compared.
    """
    known = context.registered.get(broker)
    if known is None:
        return ErrorCode.BROKER_NOT_AVAILABLE if broker_epoch == -1 else ErrorCode.UNKNOWN_SERVER_ERROR
    if broker_epoch != -1 and broker_epoch < known.epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def plan_controlled_shutdown(
    context: ControllerContext, broker: BrokerId, replicas: Iterable[Partition], into: ControlledShutdownPlan
) -> None:
    """Add the partitions that the broker leads or follows to `into`.

    Partitions with a single replica are left out: they do not delay a shutdown.
    """
    for p in replicas:
        if len(p.replicas) > 1 and p.leadership is not None and not context.is_to_be_deleted(p):
            (into.led if p.leader == broker else into.followed).append(p)


def remaining_leaders(context: ControllerContext, broker: BrokerId) -> list[Partition]:
    """Partitions with other replicas that the broker still leads."""
    led = context.led_by.get(broker, ())
    return [p for p in led if len(p.replicas) > 1 and not context.is_to_be_deleted(p)]
