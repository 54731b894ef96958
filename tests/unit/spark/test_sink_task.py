"""A task of an exactly-once write: what it does with a commit of an earlier run."""

from types import SimpleNamespace
from typing import Any

import pytest

from klamm.client.errors import RequestRefused
from klamm.client.transactions import ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.spark import sink_task
from klamm.spark.option_set import Reads
from klamm.spark.sink_commits import Commit, CommitsUnusable, TaskPart
from klamm.spark.sink_options import write_options
from klamm.spark.sink_schema import SinkColumns
from klamm.spark.sink_task import SinkJob, TaskName, TransactionalTask, WriteName
from klamm.spark.sink_transactions import OpenTransaction

WRITE = WriteName("orders-copy", 7)
EARLIER = OpenTransaction("klamm:orders-copy:1:0:0", ProducerIdAndEpoch(5, 0))
LAST = Commit(7, (TaskPart(0, 3, 1, EARLIER),))


def refuse(*_: Any, **__: Any) -> Any:
    raise RequestRefused(EARLIER.transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_a_task_whose_earlier_transaction_the_brokers_forgot_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    options = write_options(
        {
            "kafka.bootstrap.servers": "a:1", "topic": "out", "delivery": "exactly-once",
            "writeId": WRITE.query, "writeBatch": "7",
        },
        Reads.BATCH,
    )  # fmt: skip
    brokers: Any = SimpleNamespace(client=SimpleNamespace(run=lambda steps: steps))
    monkeypatch.setattr(sink_task, "transactions_of", lambda brokers: SimpleNamespace(end=refuse))
    monkeypatch.setattr(sink_task, "CommitTopic", lambda *_: SimpleNamespace(last=lambda *_: LAST))
    job = SinkJob(options, SinkColumns(None, None, 0, None, None), "2")
    task = TransactionalTask(brokers, job, WRITE, TaskName(0, 0), lambda: 0)

    with pytest.raises(CommitsUnusable, match=r"orders-copy, batch 7: the brokers have forgotten .*with a new writeId"):
        task.run([])
