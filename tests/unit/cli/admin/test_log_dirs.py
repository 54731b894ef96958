"""Moves of replicas between the log directories of a broker, with scripted brokers."""

from typing import Any

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.client import CannotAsk
from klamm.cli.admin.log_dirs import (
    cancel_log_dir_moves,
    check_log_dirs,
    read_log_dir_progress,
    start_log_dir_moves,
    wait_until_moved,
)
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.log_dir_progress import LogDirState
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

AT, LATER = TopicPartition("orders", 0), TopicPartition("orders", 1)
ONE = BrokerId(1)
Dirs = dict[str, list[tuple[int, bool]]]
"""By log directory the numbers of its replicas, and whether each is a copy."""


class ReplicaMoves:
    """One broker that answers AlterReplicaLogDirs with these error codes in turn, and has these log directories."""

    def __init__(self, *answers: dict[int, ErrorCode], dirs: list[Dirs] | None = None, offline: str = "") -> None:
        self.brokers = Brokers(1)
        self.requests: list[dict[str, list[int]]] = []
        self._answers, self._dirs, self._offline = list(answers), dirs or [{}], offline
        self.brokers.answers[ApiKey.ALTER_REPLICA_LOG_DIRS] = self._alter
        self.brokers.answers[ApiKey.DESCRIBE_LOG_DIRS] = self._describe

    def _alter(self, _version: int, asked: Any) -> AlterReplicaLogDirsResponse:
        moves = {d.path: [n for t in d.topics for n in t.partitions] for d in asked.dirs}
        self.requests.append(moves)
        errors = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        results = [
            AlterReplicaLogDirPartitionResult(n, errors.get(n, ErrorCode.NONE)) for of in moves.values() for n in of
        ]
        return AlterReplicaLogDirsResponse(results=[AlterReplicaLogDirTopicResult("orders", results)])

    def _describe(self, _version: int, _asked: Any) -> DescribeLogDirsResponse:
        dirs = self._dirs.pop(0) if len(self._dirs) > 1 else self._dirs[0]
        results = []
        for path, replicas in dirs.items():
            partitions = [
                DescribeLogDirsPartition(partition_index=n, partition_size=1, offset_lag=0, is_future_key=is_copy)
                for n, is_copy in replicas
            ]
            error = ErrorCode.KAFKA_STORAGE_ERROR if path == self._offline else ErrorCode.NONE
            topics = [DescribeLogDirsTopic("orders", partitions)] if partitions else []
            results.append(DescribeLogDirsResult(error_code=error, log_dir=path, topics=topics))
        return DescribeLogDirsResponse(results=results)


def test_a_replica_that_is_yet_to_be_created_is_moved_once_it_exists() -> None:
    moves = ReplicaMoves({0: ErrorCode.REPLICA_NOT_AVAILABLE}, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, {})

    refused = run(moves.brokers, lambda admin: start_log_dir_moves(admin, {AT: {ONE: "/b"}, LATER: {ONE: "/c"}}))

    assert refused == []
    assert moves.requests == [{"/b": [0], "/c": [1]}, {"/b": [0]}, {"/b": [0]}]


def test_a_refused_move_to_a_log_directory_is_named_with_broker_and_directory() -> None:
    moves = ReplicaMoves({0: ErrorCode.KAFKA_STORAGE_ERROR})

    [refusal] = run(moves.brokers, lambda admin: start_log_dir_moves(admin, {AT: {ONE: "/b"}, LATER: {ONE: "/b"}}))

    assert str(refusal) == "orders-0 on broker 1: cannot move to /b (KAFKA_STORAGE_ERROR)"
    assert len(moves.requests) == 1


def test_a_replica_that_never_exists_is_refused_at_the_timeout() -> None:
    moves = ReplicaMoves({0: ErrorCode.REPLICA_NOT_AVAILABLE})

    [refusal] = run(moves.brokers, lambda admin: start_log_dir_moves(admin, {AT: {ONE: "/b"}}), timeout_s=3.0)

    assert refusal.code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert len(moves.requests) > 1


def test_log_directories_that_a_broker_does_not_have_or_that_are_offline_are_refused_before_anything_moves() -> None:
    moves = ReplicaMoves({}, dirs=[{"/a": [], "/b": []}], offline="/b")

    run(moves.brokers, lambda admin: check_log_dirs(admin, {AT: {ONE: "/a"}}, "f"))
    with pytest.raises(UsageError, match=r"^f: orders-0 .* in /x, .* \(LOG_DIR_NOT_FOUND\)\. Choose one of /a, /b"):
        run(moves.brokers, lambda admin: check_log_dirs(admin, {AT: {ONE: "/x"}}, "f"))
    with pytest.raises(UsageError, match=r"/b, which is offline on broker 1 \(KAFKA_STORAGE_ERROR\)"):
        run(moves.brokers, lambda admin: check_log_dirs(admin, {AT: {ONE: "/b"}}, "f"))


def test_waiting_for_log_directory_moves_ends_when_no_copy_is_left() -> None:
    moves = ReplicaMoves({}, dirs=[{"/a": [(0, False)], "/b": [(0, True)]}, {"/a": [], "/b": [(0, False)]}])

    [progress] = run(moves.brokers, lambda admin: wait_until_moved(admin, {AT: {ONE: "/b"}}))

    assert (progress.state, progress.current) == (LogDirState.COMPLETE, "/b")


def test_waiting_for_a_log_directory_move_that_goes_on_ends_at_the_timeout() -> None:
    moves = ReplicaMoves({}, dirs=[{"/a": [(0, False)], "/b": [(0, True)]}])

    with pytest.raises(CannotAsk, match="1 of 1 replicas were not in their log directories before the timeout"):
        run(moves.brokers, lambda admin: wait_until_moved(admin, {AT: {ONE: "/b"}}), timeout_s=2.0)


def test_cancelling_log_directory_moves_sends_back_only_the_replicas_that_move() -> None:
    moves = ReplicaMoves({}, dirs=[{"/a": [(0, False), (1, False)], "/b": [(0, True)]}])
    wanted = {AT: {ONE: "/b"}, LATER: {ONE: "/b"}}

    states = [p.state for p in run(moves.brokers, lambda admin: read_log_dir_progress(admin, wanted))]
    [stopped], refused = run(moves.brokers, lambda admin: cancel_log_dir_moves(admin, wanted))

    assert states == [LogDirState.MOVING, LogDirState.ELSEWHERE]
    assert (stopped.at, stopped.current, refused) == (AT, "/a", [])
    assert moves.requests == [{"/a": [0]}]
