"""The topic with the commits of exactly-once writes, where brokers know it or not."""

from types import SimpleNamespace
from typing import Any

import pytest

from klamm.client.backoff import Backoff
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.option_set import Reads
from klamm.spark.sink_commits import NEW_TOPIC_S, CommitsUnusable, CommitTopic
from klamm.spark.sink_options import write_options
from klamm.wire.messages import MetadataResponsePartition, MetadataResponseTopic

TOPIC = "commits"
KNOWN = MetadataResponseTopic(name=TOPIC, partitions=[MetadataResponsePartition()])
UNKNOWN = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=TOPIC)


class Brokers:
    """Brokers that know the topic from the answer with this number on."""

    def __init__(self, known_from: float) -> None:
        self.answers = 0
        self.waited_s = 0.0
        self.options = SimpleNamespace(api_timeout_s=60.0)
        self.client = SimpleNamespace(world=SimpleNamespace(sleep=self._sleep))
        self._known_from = known_from

    def _sleep(self, seconds: float) -> None:
        self.waited_s += seconds

    def backoff(self, total_s: float) -> Backoff:
        return Backoff(lambda: self.waited_s, total_s, 0.1, 1.0)

    def topics(self, names: list[str]) -> dict[str, MetadataResponseTopic]:
        self.answers += 1
        return {TOPIC: KNOWN if self.answers >= self._known_from else UNKNOWN}


def commit_topic(brokers: Any) -> CommitTopic:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "out", "delivery": "exactly-once", "commitTopic": TOPIC}
    return CommitTopic(brokers, write_options({**given, "writeId": "q", "writeBatch": "7"}, Reads.BATCH), lambda: 0)


def test_a_task_asks_again_while_a_broker_does_not_know_the_new_topic_for_commits() -> None:
    brokers = Brokers(known_from=3)

    partition, _ = commit_topic(brokers)._partition("q")

    assert partition == TopicPartition(TOPIC, 0)
    assert brokers.answers == 3


def test_a_topic_for_commits_that_no_broker_knows_for_some_time_was_deleted() -> None:
    brokers = Brokers(known_from=float("inf"))

    with pytest.raises(CommitsUnusable, match="the topic commits, which has the commits of this query, does not exist"):
        commit_topic(brokers)._partition("q")

    assert 10.0 / 2 < brokers.waited_s <= NEW_TOPIC_S
