"""A streaming query in the driver, as Spark runs it, on scripted brokers."""

import json
from typing import Any

from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.batch_bytes import Record, batch
from tests.unit.spark.scripts import log, scripted, stream_options

from klamm.model.ids import TopicPartition
from klamm.spark.columns import arrow_schema
from klamm.spark.schema import Columns
from klamm.spark.stream_driver import StreamDriver
from klamm.spark.stream_offsets import from_json, to_json
from klamm.spark.tasks import Job, read_task

ORDERS = TopicPartition("orders", 0)
COLUMNS = ("partition", "offset", "dataLoss")


class Query:
    """A query as Spark runs it: offsets as text, the end stored before the batch is read."""

    def __init__(self, world: ScriptedWorld, **given: str) -> None:
        self.world = world
        self.given = given
        self.stored: list[str] = []
        self.committed = 0
        self.restart()

    def restart(self) -> None:
        """Lose everything but the checkpoint."""
        self.driver = StreamDriver(self.world, stream_options(**self.given))

    def start(self) -> Any:
        if not self.committed:
            return json.loads(json.dumps(to_json(self.driver.initial())))
        return json.loads(self.stored[self.committed - 1])

    def plan(self, *, unlimited: bool = False) -> bool:
        """Store the end of the next batch; whether there is one. A stored end is kept."""
        if len(self.stored) == self.committed:
            start = self.start()
            end = json.dumps(to_json(self.driver.next_end(from_json(start), unlimited=unlimited)))
            if end == json.dumps(start):
                return False
            self.stored.append(end)
        return True

    def rows(self) -> list[dict[str, Any]]:
        """Read the batch whose end is stored, without committing it."""
        tasks = self.driver.tasks(from_json(self.start()), from_json(json.loads(self.stored[self.committed])), 2)
        job = Job(stream_options(**self.given), Columns(COLUMNS, COLUMNS))
        rows = [row for task in tasks for rows in read_task(self.world, job, task) for row in rows.to_pylist()]
        assert set(arrow_schema(COLUMNS).names) == set(COLUMNS)
        return rows

    def run(self, **how: bool) -> list[tuple[int, int]] | None:
        """One micro-batch: its rows in order, None where there is nothing to do."""
        if not self.plan(**how):
            return None
        found = sorted((r["partition"], r["offset"]) for r in self.rows() if r["dataLoss"] is None)
        self.committed += 1
        return found


def append(world: ScriptedWorld, count: int, partition: int = 0, topic: str = "orders") -> None:
    target = world.cluster.logs[TopicPartition(topic, partition)]
    base = target.end
    records = [Record(b"k", b"%d" % o) for o in range(base, base + count)]
    target.batches.append((base, base + count - 1, batch(records, base)))


def two_partitions() -> ScriptedWorld:
    return scripted(orders_0=log(0, 20), orders_1=log(5, 10, leader=2))


def offsets(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, o) for o in range(start, end)]
