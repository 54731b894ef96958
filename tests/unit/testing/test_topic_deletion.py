"""`Cluster.delete_topic`: brokers drop a topic from metadata before its znodes are deleted."""

from collections.abc import Callable, Collection, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.embedded.nodes import NodeProcess
from klamm.model.errors import ErrorCode
from klamm.testing import cluster as testing
from klamm.testing.cluster import Cluster
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS


class ScriptedCluster(Cluster):
    """Two nodes that are not started; `live` counts as running, and scripted brokers answer what is asked."""

    def __init__(self, directory: Path, brokers: Brokers, live: Collection[int]) -> None:
        super().__init__(directory, 2)
        self._brokers = brokers
        self._live = live

    def ask(self, work: Callable[[Any], Coroutine[Any, Any, Any]], *_: object) -> Any:  # type: ignore[override]
        return run(self._brokers, work)

    def _running(self) -> Collection[NodeProcess]:
        return [node for node in self.nodes if node.broker_id in self._live]


def topic_in_deletion(codes: Iterator[ErrorCode]) -> Brokers:
    """Brokers 1 and 2 with the topic t until it is deleted; the attempts to create it again have these codes."""
    brokers = Brokers(1, 2)
    is_deleted = False

    def metadata(_version: int, _message: MetadataRequest) -> MetadataResponse:
        topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(0, 0, 1, replica_nodes=(1, 2))])
        return brokers.metadata([] if is_deleted else [topic])

    def delete(_version: int, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
        nonlocal is_deleted
        is_deleted = True
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])

    def create(_version: int, message: CreateTopicsRequest) -> CreateTopicsResponse:
        assert message.validate_only
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=next(codes))])

    brokers.answers |= {ApiKey.METADATA: metadata, ApiKey.DELETE_TOPICS: delete, ApiKey.CREATE_TOPICS: create}
    return brokers


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "_LOOK_S", 0.0)


def test_a_deleted_topic_of_a_test_cluster_can_be_created_again(tmp_path: Path) -> None:
    codes = iter([EXISTS, EXISTS, ErrorCode.NONE])

    ScriptedCluster(tmp_path, topic_in_deletion(codes), {1, 2}).delete_topic("t")

    assert list(codes) == []


def test_a_topic_whose_name_stays_taken_is_reported_at_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster.wait_until, "__defaults__", (0.05,))
    brokers = topic_in_deletion(iter(lambda: EXISTS, None))

    with pytest.raises(AssertionError, match="waiting until the name t is free in ZooKeeper"):
        ScriptedCluster(tmp_path, brokers, {1, 2}).delete_topic("t")


def test_the_name_of_a_deleted_topic_is_not_waited_for_while_a_node_with_a_replica_is_down(tmp_path: Path) -> None:
    ScriptedCluster(tmp_path, topic_in_deletion(iter(())), {1}).delete_topic("t")
