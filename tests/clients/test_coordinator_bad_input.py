"""Coordinators of real nodes: huge metadata, old generations, deleted topics, damaged and offline partitions."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.cluster import Cluster

from klamm.client.versions import Request
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.testing.errors import RequestFailed
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

HUGE = 95_000_000
LONGEST_STRING = 32_767
TOO_LARGE_FRAME = 200_000_000
GROUP_KEY, NO_ERROR = 0, ErrorCode.NONE


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes; each partition of `__consumer_offsets` is on one of them."""
    overrides = {
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.enable": "false",
        "zookeeper.session.timeout.ms": "2000",
    }
    with Cluster(tmp_path_factory.mktemp("bad-input"), 2, overrides=overrides) as running:
        running.create_topic("orders", 1, 2)
        yield running


def ask(cluster: Cluster, group: str, key: ApiKey, message: Any) -> Any:
    return cluster.ask(lambda admin: admin.ask_coordinator(group, Request(key, message), lambda answer: NO_ERROR))


def join(cluster: Cluster, group: str, metadata: bytes = b"", timeout_ms: int = 10_000) -> Any:
    """Join as a new member of a group of its own; the answer names its id and generation."""
    protocols = [JoinGroupRequestProtocol("range", metadata)]
    message = JoinGroupRequest(group, timeout_ms, timeout_ms, "", None, "consumer", protocols)
    given = ask(cluster, group, ApiKey.JOIN_GROUP, message)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    message = JoinGroupRequest(group, timeout_ms, timeout_ms, given.member_id, None, "consumer", protocols)
    answer = ask(cluster, group, ApiKey.JOIN_GROUP, message)
    assert answer.error_code == NO_ERROR
    return answer


def sync(cluster: Cluster, group: str, joined: Any, assignment: bytes = b"") -> int:
    assignments = [SyncGroupRequestAssignment(joined.member_id, assignment)]
    message = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, "consumer", "range", assignments)
    return int(ask(cluster, group, ApiKey.SYNC_GROUP, message).error_code)


def commit(cluster: Cluster, group: str, generation: int = -1, member: str = "", metadata: str = "") -> int:
    """Commit offset 1 of orders-0; the error."""
    topics = [OffsetCommitRequestTopic("orders", [OffsetCommitRequestPartition(0, 1, committed_metadata=metadata)])]
    answer = ask(cluster, group, ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group, generation, member, topics=topics))
    return int(answer.topics[0].partitions[0].error_code)


def test_a_join_group_with_95_mb_of_metadata_is_refused_while_other_groups_are_served(cluster: Cluster) -> None:
    joined = join(cluster, "huge", bytes(HUGE), timeout_ms=120_000)  # the sync, too, takes its time
    assert len(joined.members[0].metadata) == HUGE

    assert sync(cluster, "huge", joined, bytes(HUGE)) == ErrorCode.UNKNOWN_SERVER_ERROR

    small = join(cluster, "small")
    assert sync(cluster, "small", small, b"all of it") == NO_ERROR
    heartbeat = HeartbeatRequest("small", small.generation_id, small.member_id)
    assert ask(cluster, "small", ApiKey.HEARTBEAT, heartbeat).error_code == NO_ERROR
    assert all(node.is_running for node in cluster.nodes)


def test_an_offset_commit_with_too_long_metadata_is_refused(cluster: Cluster) -> None:
    assert commit(cluster, "verbose", metadata="x" * LONGEST_STRING) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(cluster, "verbose") == NO_ERROR


def test_a_request_over_the_size_limit_closes_only_its_own_connection(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    with socket.create_connection(("127.0.0.1", node.port), 10) as connection:
        connection.sendall(TOO_LARGE_FRAME.to_bytes(4, "big") + b"\x00\x0b\x00\x05")
        assert connection.recv(1) == b""

    assert commit(cluster, "next") == NO_ERROR


def test_offset_commits_with_an_old_generation_or_an_unknown_member_are_refused(cluster: Cluster) -> None:
    old = join(cluster, "aging")
    assert sync(cluster, "aging", old) == NO_ERROR
    protocols = [JoinGroupRequestProtocol("range", b"new")]
    message = JoinGroupRequest("aging", 10_000, 10_000, old.member_id, None, "consumer", protocols)
    again = ask(cluster, "aging", ApiKey.JOIN_GROUP, message)
    assert (again.error_code, again.generation_id) == (NO_ERROR, old.generation_id + 1)

    assert commit(cluster, "aging", old.generation_id, old.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert commit(cluster, "aging", again.generation_id, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(cluster, "aging") == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.group("aging").offsets() == {}


def test_offsets_of_a_deleted_topic_are_removed_and_cannot_be_committed(cluster: Cluster) -> None:
    cluster.create_topic("short", 1, 2)
    group = cluster.group("reader")
    group.commit({TopicPartition("short", 0): 0, TopicPartition("orders", 0): 0})

    cluster.delete_topic("short")

    cluster.wait_until("its offset is removed", lambda: list(group.offsets()) == [TopicPartition("orders", 0)])
    with pytest.raises(RequestFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
        group.commit({TopicPartition("short", 0): 1})


def coordinator(cluster: Cluster, group: str) -> tuple[int, int]:
    """Error and broker id."""
    message = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=(group,))
    found = cluster.ask(lambda admin: admin.ask(ApiKey.FIND_COORDINATOR, message)).coordinators[0]
    return found.error_code, found.node_id


def group_on(cluster: Cluster, broker_id: int) -> str:
    """The name of a group that this node coordinates."""
    return next(
        name for name in map("group-{}".format, range(100)) if coordinator(cluster, name) == (NO_ERROR, broker_id)
    )


def test_groups_of_an_offline_consumer_offsets_partition_have_no_coordinator_until_its_node_returns(
    cluster: Cluster,
) -> None:
    there, here = group_on(cluster, 2), group_on(cluster, 1)
    for group in (there, here):
        cluster.group(group).commit({TopicPartition("orders", 0): 7})

    cluster.node(2).kill()
    cluster.wait_until(
        "the partition is offline", lambda: coordinator(cluster, there) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    )
    assert cluster.group(here).offsets() == {TopicPartition("orders", 0): 7}
    cluster.repair()

    cluster.wait_until("the coordinator is back", lambda: coordinator(cluster, there) == (NO_ERROR, 2))
    assert cluster.group(there).offsets() == {TopicPartition("orders", 0): 7}


def test_a_corrupt_consumer_offsets_batch_is_skipped_and_logged_while_other_groups_load(cluster: Cluster) -> None:
    names = [name for name in map("stored-{}".format, range(20)) if coordinator(cluster, name) == (NO_ERROR, 1)][:3]
    for offset, name in enumerate(names):
        cluster.group(name).commit({TopicPartition("orders", 0): 100 + offset})
    node = cluster.node(1)
    node.stop()
    damage(Path(node.log_directory), names[1])

    node.restart()
    cluster.wait_until_complete()

    cluster.wait_until("the groups are loaded", lambda: coordinator(cluster, names[0]) == (NO_ERROR, 1))
    found = [cluster.group(name).offsets() for name in names]
    assert found == [{TopicPartition("orders", 0): 100}, {}, {TopicPartition("orders", 0): 102}]
    log = Path(node.output_path).read_text()
    assert "corrupt batch skipped while loading" in log
    assert "__consumer_offsets-" in log


def damage(directory: Path, name: str) -> None:
    """Change a byte of the value behind the name, in the partition of `__consumer_offsets` that has it."""
    [segment] = [path for path in directory.glob("__consumer_offsets-*/*.log") if name.encode() in path.read_bytes()]
    content = bytearray(segment.read_bytes())
    at = content.index(name.encode()) + len(name) + len(b"\x00\x06orders\x00\x00\x00\x00") + 8
    content[at] ^= 0xFF
    segment.write_bytes(bytes(content))


def test_a_new_producer_with_the_same_transactional_id_fences_the_old_producer(cluster: Cluster) -> None:
    def producer() -> Producer:
        made = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "one", "log_level": 0})
        made.init_transactions(30)
        made.begin_transaction()
        made.produce("orders", b"x")
        return made

    old = producer()
    old.flush(30)
    new = producer()

    with pytest.raises(Exception, match=r"fenced|_FENCED"):
        old.commit_transaction(30)
    new.commit_transaction(30)
