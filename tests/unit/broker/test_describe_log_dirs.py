"""Where partitions lie, and how much room is left."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.cluster_state import request

from klamm.broker.handlers.describe_log_dirs import DescribeLogDirs
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import DiskUsage
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResult

HOMES = {TopicPartition("a", 0): "/one", TopicPartition("a", 1): "/two", TopicPartition("b", 0): "/one"}


FUTURE_HOMES = {TopicPartition("b", 0): "/two", TopicPartition("gone", 0): "/two"}


class FakeDisk:
    def __init__(self, *failing: str) -> None:
        self._failing = failing

    def usage(self, path: str) -> DiskUsage:
        if path in self._failing:
            raise OSError(5, "Input/output error", path)
        return DiskUsage(1_000, 400)

    async def in_thread(self, call: Any, *arguments: Any) -> Any:
        return call(*arguments)


async def describe(
    topics: list[DescribableLogDirTopic] | None = None, version: int = 4, failing: tuple[str, ...] = ()
) -> dict[str, DescribeLogDirsResult]:
    existing = {p: SimpleNamespace(size=100 + n, high_watermark=5, end_offset=n * 5) for n, p in enumerate(HOMES)}
    logs: Any = SimpleNamespace(
        logs=existing,
        get=existing.get,
        moves=SimpleNamespace(
            futures={p: SimpleNamespace(size=7, high_watermark=0, end_offset=3) for p in FUTURE_HOMES},
            future_directory_of=FUTURE_HOMES.get,
        ),
        directories=["/one", "/two", "/gone"],
        offline_directories={"/gone": "it failed"},
        directory_of=HOMES.get,
    )
    disk: Any = FakeDisk(*failing)
    response = await DescribeLogDirs(logs, disk).handle(
        request(ApiKey.DESCRIBE_LOG_DIRS, version), DescribeLogDirsRequest(topics)
    )
    response.encode(version)
    assert response.error_code is ErrorCode.NONE
    return {result.log_dir: result for result in response.results}


async def test_describe_log_dirs_returns_every_log_directory_with_partitions_sizes_and_free_bytes() -> None:
    found = await describe()

    assert [(t.name, [p.partition_index for p in t.partitions])
            for t in found["/one"].topics] == [("a", [0]), ("b", [0])]  # fmt: skip
    described = {
        (t.name, p.partition_index): (p.partition_size, p.offset_lag, p.is_future_key)
        for t in found["/two"].topics
        for p in t.partitions
    }
    # one that is copied, 7 offsets behind, and one whose log is offline
    assert described == {("a", 1): (101, 0, False), ("b", 0): (7, 7, True), ("gone", 0): (7, -1, True)}
    assert (found["/two"].total_bytes, found["/two"].usable_bytes) == (1_000, 400)


async def test_describe_log_dirs_returns_the_offset_lag_of_a_follower() -> None:
    assert (await describe())["/one"].topics[0].partitions[0].offset_lag == 5


async def test_describe_log_dirs_returns_an_error_for_an_offline_log_directory() -> None:
    found = await describe(failing=("/two",))

    assert found["/gone"].error_code is found["/two"].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert found["/one"].error_code is ErrorCode.NONE


@pytest.mark.parametrize("version", range(5))
async def test_describe_log_dirs_with_named_partitions_returns_only_those_partitions(version: int) -> None:
    found = await describe([DescribableLogDirTopic("a", (1, 7))], version)

    assert found["/one"].topics == []
    assert [p.partition_index for p in found["/two"].topics[0].partitions] == [1]
