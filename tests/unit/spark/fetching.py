"""A topic with scripted brokers, to fetch from."""

from collections.abc import Callable
from typing import Any

from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.scripts import log, scripted

from klamm.model.ids import TopicPartition
from klamm.spark.ranges import OffsetRange
from klamm.wire.messages import FetchRequest

ORDERS = TopicPartition("orders", 0)
SMALL_FETCHES = {"kafka__max__partition__fetch__bytes": "300"}


def orders(start: int, end: int) -> OffsetRange:
    return OffsetRange(ORDERS, start, end)


def world_of_orders(end: int = 100) -> ScriptedWorld:
    return scripted(orders_0=log(0, end))


def after_fetches(world: ScriptedWorld, count: int, change: Callable[[], None]) -> None:
    """Make the change once, when the fetch after so many arrives."""
    fetches: list[int] = []

    def on_request(broker: int, request: Any) -> None:
        if isinstance(request, FetchRequest):
            fetches.append(broker)
            if len(fetches) == count + 1:
                change()

    world.cluster.on_request = on_request
