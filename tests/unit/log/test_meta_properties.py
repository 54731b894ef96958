"""Whose a directory is, what it was left as, and what is refused at the start."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.clean_shutdown import clean_shutdown_epochs
from tests.support.managed_logs import get_or_create
from tests.unit.log.support import ORDERS, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.checkpoints import parse_offsets, read_offsets
from klamm.log.errors import BadLogDirectory, CorruptFile
from klamm.log.manager import LogManager
from klamm.log.meta_properties import (
    MetaProperties,
    read_all_meta,
    read_meta,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta,
)
from klamm.log.names import DirectoryKind, deleted_directory, offset_of, parse_directory, segment_file
from klamm.log.partition_metadata import read_topic_id
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.runtime.world import World

DISK = RealDisk()
HEX = "0123456789abcdef" * 2


def test_the_meta_properties_file_of_apache_kafka_is_read_and_unknown_keys_kept(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Fri Nov 20 2026\ncluster.id=abc\\=def\nversion=0\ndirectory.id=xyz\nbroker.id=3\n"
    )
    meta = read_meta(DISK, str(tmp_path))

    assert meta == MetaProperties(3, "abc=def", (("directory.id", "xyz"),))
    write_meta(DISK, str(tmp_path), meta)
    assert read_meta(DISK, str(tmp_path)) == meta


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("version=1\nnode.id=3\n", "has version=1, but a log directory in ZooKeeper mode has version=0"),
        ("", "is damaged: it has no line version=0. Restore it"),
        ("version=0\nbroker.id=three\n", "broker.id=three is not a number"),
    ],
)
async def test_a_meta_properties_file_of_another_version_or_with_bad_content_is_refused(
    world: World, tmp_path: Path, content: str, text: str
) -> None:
    (tmp_path / "meta.properties").write_text(content)

    with pytest.raises(BadLogDirectory, match=text):
        await LogManager(world, [str(tmp_path)], 1, "mine").load()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("version=0\nbroker.id=2\n", "belongs to broker 2, but this node is broker 1. Correct broker.id or log.dirs"),
        ("version=0\ncluster.id=theirs\n", "belongs to cluster theirs, but zookeeper.connect leads to cluster mine"),
    ],
)
async def test_a_log_directory_of_another_broker_or_cluster_is_refused(
    world: World, tmp_path: Path, content: str, text: str
) -> None:
    (tmp_path / "meta.properties").write_text(content)

    with pytest.raises(BadLogDirectory, match=text):
        await LogManager(world, [str(tmp_path)], 1, "mine").load()


def test_log_directories_with_different_cluster_ids_are_refused(tmp_path: Path) -> None:
    for name, cluster in (("one", "a"), ("two", "b")):
        (tmp_path / name).mkdir()
        write_meta(DISK, f"{tmp_path}/{name}", MetaProperties(1, cluster))

    with pytest.raises(
        BadLogDirectory, match=r"have different cluster.ids in meta.properties: .*/one has a; .*/two has b"
    ):
        read_all_meta(DISK, [f"{tmp_path}/one", f"{tmp_path}/two", f"{tmp_path}/none"])


async def test_a_missing_broker_id_is_added_to_meta_properties(world: World, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\ncluster.id=mine\ndirectory.id=x\n")
    logs = LogManager(world, [str(tmp_path)], 4, "mine")

    await logs.load()

    assert read_meta(DISK, str(tmp_path)) == MetaProperties(4, "mine", (("directory.id", "x"),))
    await logs.close()


async def test_a_log_directory_locked_by_another_process_is_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealDisk, "lock", lambda _disk, _path: None)

    with pytest.raises(BadLogDirectory, match="in use by another process"):
        await LogManager(world, [str(tmp_path)], 4, "mine").load()


@pytest.mark.parametrize("content", [b'{"version":0,"brokerEpoch":12}', b"", b"rubbish"])
def test_the_clean_shutdown_marker_is_removed_when_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)

    assert remove_clean_shutdown(DISK, str(tmp_path)) == (12 if b"12" in content else -1)
    assert remove_clean_shutdown(DISK, str(tmp_path)) is None


def test_the_clean_shutdown_marker_has_kafkas_format(tmp_path: Path) -> None:
    write_clean_shutdown(DISK, str(tmp_path), 7)

    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":7}'


async def test_a_failure_while_loading_logs_makes_the_next_start_unclean(world: World, tmp_path: Path) -> None:
    first = LogManager(world, [str(tmp_path)], 1, "mine")
    await first.load()
    await first.close()
    (tmp_path / "stranger").mkdir()
    with pytest.raises(BadLogDirectory, match=r"stranger is not the directory of a partition"):
        await LogManager(world, [str(tmp_path)], 1, "mine").load()
    (tmp_path / "stranger").rmdir()

    again = LogManager(world, [str(tmp_path)], 1, "mine")
    await again.load()

    assert clean_shutdown_epochs(again) == {None}
    await again.close()


async def test_malformed_offset_checkpoints_are_ignored_at_startup(world: World, tmp_path: Path) -> None:
    first = LogManager(world, [str(tmp_path)], 1, "mine")
    await first.load()
    get_or_create(first, ORDERS, TopicConfig.parse(), None, is_new=True).append_as_leader(batch("a"), 0)
    await first.close()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).write_text("rubbish")

    again = LogManager(world, [str(tmp_path)], 1, "mine")
    await again.load()

    log = again.get(ORDERS)
    assert log is not None
    assert (values_of(log), log.high_watermark) == (["a"], 0)
    await again.close()


async def test_a_log_that_exists_in_two_log_directories_is_refused(world: World, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "orders-0").mkdir(parents=True)

    with pytest.raises(BadLogDirectory, match="orders-0 is in two log directories"):
        await LogManager(world, [f"{tmp_path}/one", f"{tmp_path}/two"], 1, "mine").load()


async def test_topic_configs_apply_to_logs_at_startup_and_invalid_configs_are_logged(
    world: World, tmp_path: Path
) -> None:
    for name in ("orders-0", "wrong-0"):
        (tmp_path / name).mkdir()
    logs = LogManager(world, [str(tmp_path)], 1, "mine", {"log.retention.ms": "77"})

    with capture_logs() as lines:
        await logs.load(
            {"orders": {"segment.bytes": "500"}, "wrong": {"segment.bytes": "few", "confluent.x": "1", "flush.ms": "5"}}
        )

    orders, wrong = logs.get(ORDERS), logs.get(TopicPartition("wrong", 0))
    assert orders is not None
    assert wrong is not None
    assert (orders.config.segment_bytes, orders.config.retention_ms, wrong.config.retention_ms) == (500, 77, 77)
    assert (wrong.config.segment_bytes, wrong.config.flush_ms) == (1 << 30, 5)
    [line] = [line for line in lines if "a part of a topic config is ignored" in line["event"]]
    assert (line["topic"], "segment.bytes=few" in line["reason"], "confluent.x" in line["reason"]) == (
        "wrong",
        True,
        True,
    )
    assert logs.topic_config("a", {"retention.ms": "1"}).retention_ms == 1
    await logs.close()


async def test_new_logs_are_spread_evenly_over_the_log_directories(world: World, tmp_path: Path) -> None:
    logs = LogManager(world, [f"{tmp_path}/one", f"{tmp_path}/two"], 1, "mine")
    await logs.load()
    for number in range(6):
        get_or_create(logs, TopicPartition("orders", number), TopicConfig.parse(), None, is_new=True)

    homes = [logs.directory_of(partition) for partition in logs.logs]

    assert sorted(map(str, homes)) == [f"{tmp_path}/one"] * 3 + [f"{tmp_path}/two"] * 3
    assert logs.directory_of(TopicPartition("none", 0)) is None
    await logs.close()


# -- names and small files ---------------------------------------------------------------------------------------------


def test_segment_file_and_log_directory_names_are_parsed_as_in_kafka() -> None:
    assert segment_file(42, ".log") == "00000000000000000042.log"
    assert [offset_of(n) for n in ("00000000000000000042.log.swap", "42.log", "leader-epoch-checkpoint")] == [
        42,
        None,
        None,
    ]
    assert parse_directory("a-b-3") == (TopicPartition("a-b", 3), DirectoryKind.LIVE)
    assert parse_directory(f"a.b-3.{HEX}-delete") == (TopicPartition("a.b", 3), DirectoryKind.DELETE)
    assert parse_directory(f"a-3.{HEX}-future").kind is DirectoryKind.FUTURE
    assert parse_directory(f"a-3.{HEX}-stray").kind is DirectoryKind.STRAY
    assert parse_directory(deleted_directory(ORDERS, HEX)) == (ORDERS, DirectoryKind.DELETE)
    for wrong in ("nodash", "a-", "-1", "a-b", f"a-3.{HEX[:-1]}-delete"):
        with pytest.raises(ValueError, match="is not TOPIC-PARTITION"):
            parse_directory(wrong)


@pytest.mark.parametrize(
    "content", ["version: 0\n", "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ", "version: 0\ntopic_id: x", "x"]
)
def test_a_malformed_partition_metadata_file_raises_corrupt_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "partition.metadata").write_text(content)

    with pytest.raises(CorruptFile, match="its lines must be version: 0 and topic_id: ID"):
        read_topic_id(DISK, f"{tmp_path}/partition.metadata")


@pytest.mark.parametrize("content", [b"0\n1\norders 0\n", b"0\n1\norders x 5\n", b"0\n2\norders 0 5\n"])
def test_a_malformed_offset_checkpoint_raises_corrupt_file_with_its_path(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="the-path"):
        parse_offsets(content, "the-path")


def test_a_missing_offset_checkpoint_is_read_as_empty(tmp_path: Path) -> None:
    assert read_offsets(DISK, f"{tmp_path}/none") == {}
