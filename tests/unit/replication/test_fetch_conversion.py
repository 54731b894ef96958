"""What consumers of old versions are answered: converted records, or Kafka's error."""

import pytest
from tests.support.replica_cluster import ReplicaCluster
from tests.unit.replication.fetching import alone, at, one
from tests.unit.replication.runs import Run

from klamm.config.topic_config import TopicConfig
from klamm.log.log import Log
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.replication import fetch_conversion
from klamm.wire.compression import Codec
from klamm.wire.records import ControlType, EndMarker, NewRecord, batches, build_batch, build_end_marker
from klamm.wire.records.legacy import messages_of


async def log_of(cluster: ReplicaCluster, **configs: str) -> Log:
    """The log of a topic that broker 1 leads alone; configs have underscores for dots."""
    await alone(cluster)
    log = cluster.partition(1).hosted_log
    log.update_config(TopicConfig.parse({name.replace("_", "."): value for name, value in configs.items()}))
    return log


def append(cluster: ReplicaCluster, batch: bytes, origin: Origin = Origin.CLIENT) -> None:
    cluster.partition(1).append_as_leader(batch, 1, origin)


def values(content: bytes) -> list[bytes | None]:
    return [m.value for h in batches(content) for m in messages_of(content, h, 1 << 20)]


@pytest.mark.parametrize("magic", [0, 1])
def test_fetched_records_are_converted_to_the_message_format_of_an_old_consumer(run_on_disk: Run, magic: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await log_of(cluster)
        append(cluster, build_batch([NewRecord(b"a"), NewRecord(b"b")]))
        append(cluster, build_batch([NewRecord(b"c")], Codec.GZIP))
        content = bytes((await one(cluster, at(1), magic=magic)).records)  # type: ignore[arg-type]
        assert {header.magic for header in batches(content)} == {magic}
        assert values(content) == [b"b", b"c"]

    run_on_disk(scenario)


def test_fetches_of_old_consumers_skip_transaction_markers(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await log_of(cluster)
        for _ in range(3):
            append(cluster, build_end_marker(EndMarker(ControlType.COMMIT, 1), 5, 0, 1), Origin.COORDINATOR)
        data = await one(cluster, at(0), magic=1)
        assert (data.error, bytes(data.records)) == (ErrorCode.NONE, b"")  # type: ignore[arg-type]
        append(cluster, build_batch([NewRecord(b"a")]))
        data = await one(cluster, at(0, max_bytes=100), magic=1)
        assert values(bytes(data.records)) == [b"a"]  # type: ignore[arg-type]

    run_on_disk(scenario)


@pytest.mark.parametrize(
    ("configs", "how", "error"),
    [
        ({"message_downconversion_enable": "false"}, {"magic": 1, "knows_zstd": False}, ErrorCode.UNSUPPORTED_VERSION),
        ({"message_downconversion_enable": "false"}, {"knows_zstd": False}, ErrorCode.NONE),
        ({"compression_type": "zstd"}, {"magic": 1, "knows_zstd": False}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": "zstd"}, {"knows_zstd": False}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": "zstd"}, {}, ErrorCode.NONE),
    ],
)
def test_fetches_of_old_consumers_are_refused_if_topic_configs_rule_out_conversion(
    run_on_disk: Run, configs: dict[str, str], how: dict[str, object], error: ErrorCode
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await log_of(cluster, **configs)
        assert (await one(cluster, at(0), **how)).error is error

    run_on_disk(scenario)


def test_a_fetch_of_an_old_consumer_converts_records_up_to_a_zstd_batch(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await log_of(cluster)
        append(cluster, build_batch([NewRecord(b"a")]))
        append(cluster, build_batch([NewRecord(b"b")], Codec.ZSTD))
        assert values(bytes((await one(cluster, at(0), magic=0)).records)) == [b"a"]  # type: ignore[arg-type]
        assert (await one(cluster, at(1), magic=0)).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    run_on_disk(scenario)


def test_a_converted_fetch_limits_each_partition_to_max_bytes_but_at_least_one_batch(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await log_of(cluster)
        for _ in range(20):
            append(cluster, build_batch([NewRecord(bytes(1_000))]))
        monkeypatch.setattr(fetch_conversion, "REQUEST_BYTES", 1)
        monkeypatch.setattr(fetch_conversion, "MIN_PARTITION_BYTES", 3_000)
        assert 2 <= len(values(bytes((await one(cluster, at(0), magic=1)).records))) <= 3  # type: ignore[arg-type]
        monkeypatch.setattr(fetch_conversion, "MIN_PARTITION_BYTES", 20)
        assert len(values(bytes((await one(cluster, at(0), magic=1)).records))) == 1  # type: ignore[arg-type]

    run_on_disk(scenario)
