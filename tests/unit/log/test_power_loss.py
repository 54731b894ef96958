"""Power loss and damage of the small files: neither stops a node, nor costs another partition anything."""

import asyncio
import errno
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.support.managed_logs import get_or_create
from tests.unit.log.simulated_node import DIRECTORY, SimulatedNode
from tests.unit.log.support import NOW_MS, ORDERS, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import BadLogDirectory, CorruptFile, StorageFailed
from klamm.log.log import Log
from klamm.log.manager import LogManager, LogRequest
from klamm.log.names import REPLACED_BY
from klamm.log.startup import LoadedConfigs
from klamm.model.ids import TopicPartition
from klamm.sim.power_loss import PowerLoss

LAMPS = TopicPartition("lamps", 0)
TOPIC_ID = UUID(int=9)
METADATA = f"{DIRECTORY}/{ORDERS}/partition.metadata"


async def create(logs: LogManager) -> None:
    for partition in (ORDERS, LAMPS):
        log = get_or_create(logs, partition, TopicConfig.parse(), TOPIC_ID, is_new=True)
        log.append_as_leader(batch("a"), 3)
    await logs.write_small_files()


def test_a_topic_id_written_to_partition_metadata_survives_power_loss() -> None:
    for seed in range(60):
        node = SimulatedNode(seed)

        async def sync(logs: LogManager) -> None:
            await create(logs)
            node.disk.sync_directory("/")  # noqa: B023
            node.disk.sync_directory(DIRECTORY)  # noqa: B023

        node.run(sync)
        node.disk.lose_power()

        async def topic_ids(logs: LogManager) -> list[UUID | None]:
            return [log.topic_id for log in logs.logs.values()]

        assert node.run(topic_ids) == [TOPIC_ID, TOPIC_ID], seed


def test_a_topic_id_survives_a_process_kill_right_after_the_first_append() -> None:
    """Without it, records of a deleted topic would pass for those of the next topic of this name."""
    node = SimulatedNode()

    async def append(logs: LogManager) -> None:
        wanted = [LogRequest(partition, TopicConfig.parse(), TOPIC_ID, is_new=True) for partition in (ORDERS, LAMPS)]
        for log in await logs.get_or_create_many(wanted):
            assert isinstance(log, Log)
            log.append_as_leader(batch("a"), 3)

    node.run(append)

    async def topic_ids(logs: LogManager) -> list[tuple[UUID | None, list[str]]]:
        return [(log.topic_id, values_of(log)) for log in logs.logs.values()]

    assert node.run(topic_ids) == [(TOPIC_ID, ["a"])] * 2


@pytest.mark.parametrize("sync_before_ack", ["false", "true"])
def test_a_topic_id_written_before_a_kill_is_on_the_device_before_the_next_process_counts_records_as_flushed(
    sync_before_ack: str,
) -> None:
    config = TopicConfig.parse({"klamm.sync.before.ack": sync_before_ack})
    for seed in range(30):
        node = SimulatedNode(seed)

        async def create_only(logs: LogManager) -> None:
            await logs.get_or_create_many([LogRequest(ORDERS, config, TOPIC_ID, is_new=True)])

        async def append(logs: LogManager) -> None:
            log = logs.logs[ORDERS]
            log.append_as_leader(batch("a"), 3)
            if log.config.klamm_sync_before_ack:
                await log.wait_until_durable()
            else:
                await log.flush()

        async def state(logs: LogManager) -> tuple[UUID | None, list[str]]:
            log = logs.logs[ORDERS]
            return log.topic_id, values_of(log)

        overrides = {"orders": {"klamm.sync.before.ack": sync_before_ack}}
        node.run(create_only, overrides)
        node.run(append, overrides)
        node.disk.lose_power()
        assert node.run(state, overrides) == (TOPIC_ID, ["a"]), seed


@pytest.mark.parametrize(
    "content",
    [None, b"", b"version: 0\ntopic_", bytes(43), b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ", b"\xff\xfe rubbish"],
    ids=["missing", "empty", "torn", "zeros", "version 1", "rubbish"],
)
def test_a_malformed_partition_metadata_file_is_rewritten_with_the_controllers_topic_id(content: bytes | None) -> None:
    node = SimulatedNode()

    async def close(logs: LogManager) -> None:
        await create(logs)
        await logs.close()

    node.run(close)
    node.overwrite(METADATA, content)

    async def reload(logs: LogManager) -> None:
        log, other = logs.get(ORDERS), logs.get(LAMPS)
        assert log is not None
        assert other is not None
        assert (log.topic_id, values_of(log), other.topic_id, values_of(other)) == (None, ["a"], TOPIC_ID, ["a"])
        assert get_or_create(logs, ORDERS, log.config, TOPIC_ID) is log
        await asyncio.sleep(0.1)
        assert node.disk.read(METADATA) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ"

    with capture_logs() as lines:
        node.run(reload)
    named = [line for line in lines if line["event"] == "log repaired" and line["partition"] == "orders-0"]
    assert len(named) == (0 if content is None else 1)
    assert all("the controller sends the topic id again" in line["note"] for line in named)


def test_an_unreadable_log_takes_only_its_partition_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    node = SimulatedNode()

    async def close(logs: LogManager) -> None:
        await create(logs)
        await logs.close()

    node.run(close)
    real = Log.open

    def refuse(world, directory, partition, *args, **named):  # type: ignore[no-untyped-def]
        if partition == ORDERS:
            raise CorruptFile("broken")
        return real(world, directory, partition, *args, **named)

    async def reload(logs: LogManager) -> None:
        assert list(logs.logs) == [LAMPS]
        assert logs.is_offline(ORDERS)
        assert logs.offline_directories == {}
        refusal, _ = await logs.get_or_create_many(
            [LogRequest(ORDERS, TopicConfig.parse()), LogRequest(TopicPartition("new", 0), TopicConfig.parse())]
        )
        assert "cannot be read: broken" in str(refusal)
        with pytest.raises(StorageFailed, match="cannot be read: broken"):
            logs.delete(ORDERS)
        assert set(logs.logs) == {LAMPS, TopicPartition("new", 0)}
        await logs.close()

    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(Log, "open", staticmethod(refuse))
        node.run(reload)
    assert [line["partition"] for line in lines if line["log_level"] == "error"] == ["orders-0"]

    async def again(logs: LogManager) -> None:
        log = logs.get(ORDERS)
        assert log is not None
        assert log.recovery_point == 1, "the checkpoint kept what it said of the log that could not be read"

    node.run(again)


def test_producer_state_survives_power_loss_after_a_clean_shutdown() -> None:
    """All records were flushed before; the snapshot that the shutdown wrote is the only one."""
    for seed in range(30):
        node = SimulatedNode(seed)

        async def stop(logs: LogManager) -> None:
            log = get_or_create(logs, ORDERS, TopicConfig.parse(), TOPIC_ID, is_new=True)
            log.append_as_leader(batch("a", producer=(9, 0, 0)), 3)
            await log.flush()
            await logs.close()

        node.run(stop)
        node.disk.lose_power()

        async def known_producers(logs: LogManager) -> list[int]:
            log = logs.get(ORDERS)
            return [] if log is None else list(log.producers.by_id)

        assert node.run(known_producers) == [9], seed


def test_the_directory_of_a_created_log_survives_power_loss() -> None:
    """Its name lies in the directory above: what was flushed into it would be gone with the name."""
    for seed in range(10):
        node = SimulatedNode(seed, "/data/logs")

        async def flush(logs: LogManager) -> None:
            await create(logs)
            for log in logs.logs.values():
                await log.flush()

        node.run(flush)
        node.disk.lose_power(PowerLoss.ALL)

        assert node.disk.exists("/data"), seed
        assert node.disk.exists("/data/logs"), seed


def replaced_log() -> SimulatedNode:
    """A node that has two directories and, in the first one, a log that was replaced by one in the second.

    A power loss brought it back.
    """
    node = SimulatedNode(1, "/data1", "/data2")

    async def replace(logs: LogManager) -> None:
        log = get_or_create(logs, ORDERS, TopicConfig.parse(), TOPIC_ID, is_new=True)
        assert log.directory == f"/data1/{ORDERS}"
        log.append_as_leader(batch("old"), 3)
        node.disk.write_atomically(f"{log.directory}/{REPLACED_BY}", f"/data2/{ORDERS}\n".encode())
        await logs.close()

    node.run(replace)
    return node


def test_a_replaced_log_is_not_used_while_its_successor_is_offline() -> None:
    node = replaced_log()

    async def look(logs: LogManager) -> None:
        assert list(logs.offline_directories) == ["/data2"]
        assert logs.get(ORDERS) is None
        assert logs.is_offline(ORDERS)
        for is_new in (False, True):
            with pytest.raises(StorageFailed, match="offline log directory /data2"):
                get_or_create(logs, ORDERS, TopicConfig.parse(), TOPIC_ID, is_new=is_new)
        await logs.close()
        assert b"orders 0 1" in node.disk.read("/data1/recovery-point-offset-checkpoint")

    async def repaired(logs: LogManager) -> None:
        log = logs.get(ORDERS)
        assert log is not None
        assert log.directory == f"/data2/{ORDERS}"

    node.disk.fault = lambda call, path: errno.EIO if path.startswith("/data2") else None
    node.run(look)
    node.disk.fault = lambda call, path: None
    node.disk.make_directories(f"/data2/{ORDERS}")
    node.run(repaired)


def test_a_deletion_of_a_killed_process_is_on_the_device_before_the_partition_gets_another_log() -> None:
    """Else a power loss would leave it in two log directories, and the node would not start."""
    node = SimulatedNode(1, "/data1")

    async def flushed(logs: LogManager) -> None:
        log = get_or_create(logs, ORDERS, TopicConfig.parse(), TOPIC_ID, is_new=True)
        log.append_as_leader(batch("a"), 3)
        await log.flush()

    async def delete(logs: LogManager) -> None:
        assert logs.delete(ORDERS)

    async def look(logs: LogManager) -> None:
        log = logs.get(ORDERS)
        assert log is not None
        assert log.directory == f"/data2/{ORDERS}"

    node.run(flushed)
    node.run(delete)
    node.directories = ["/data2", "/data1"]
    node.run(flushed)
    node.disk.lose_power(PowerLoss.ALL)
    node.run(look)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_directory_that_cannot_delete_a_replaced_log_goes_offline_and_the_node_starts(is_first: bool) -> None:
    old, new = ("/data1", "/data2") if is_first else ("/data2", "/data1")
    node = SimulatedNode(1, old)

    async def replace(logs: LogManager) -> None:
        await create(logs)
        log = logs.logs[ORDERS]
        node.disk.write_atomically(f"{log.directory}/{REPLACED_BY}", f"{new}/{ORDERS}\n".encode())
        await logs.close()

    async def look(logs: LogManager) -> None:
        assert list(logs.offline_directories) == [old]
        log = logs.get(ORDERS)
        assert log is not None
        assert (log.directory, values_of(log)) == (f"{new}/{ORDERS}", ["a"])
        assert logs.get(LAMPS) is None
        assert logs.is_offline(LAMPS)

    node.run(replace)
    node.directories = [new]

    async def move(logs: LogManager) -> None:
        log = get_or_create(logs, ORDERS, TopicConfig.parse(), TOPIC_ID, is_new=True)
        log.append_as_leader(batch("a"), 3)
        await logs.close()

    node.run(move)
    node.directories = [old, new] if is_first else [new, old]
    node.disk.fault = lambda call, path: errno.EIO if call == "rename" and path == f"{old}/{ORDERS}" else None
    node.run(look)


def test_a_replaced_log_is_not_used_while_its_successor_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    node = replaced_log()
    node.disk.make_directories(f"/data2/{ORDERS}")
    real = Log.open

    def refuse(world, directory, *args, **named):  # type: ignore[no-untyped-def]
        if directory.startswith("/data2"):
            raise CorruptFile("broken")
        return real(world, directory, *args, **named)

    async def look(logs: LogManager) -> None:
        assert (logs.get(ORDERS), logs.offline_directories) == (None, {})
        with pytest.raises(StorageFailed, match="cannot be read: broken"):
            get_or_create(logs, ORDERS, TopicConfig.parse(), TOPIC_ID)
        assert node.disk.exists(f"/data1/{ORDERS}/{REPLACED_BY}")

    monkeypatch.setattr(Log, "open", staticmethod(refuse))
    node.run(look)


def test_a_replaced_log_is_used_and_kept_once_its_successors_directory_is_removed_from_the_config() -> None:
    node = replaced_log()
    both = node.directories

    async def use(logs: LogManager) -> None:
        log = logs.get(ORDERS)
        assert log is not None
        assert values_of(log) == ["old"]

    async def find_both(logs: LogManager) -> None:
        raise AssertionError("one of the logs was deleted")

    node.directories = ["/data1"]
    node.run(use)
    node.directories = both
    node.disk.make_directories(f"/data2/{ORDERS}")
    with pytest.raises(BadLogDirectory, match="is in two log directories"):
        node.run(find_both)


def test_a_log_deletion_that_was_fsynced_survives_power_loss() -> None:
    """Also that of a future log, which the next sync of its directory covers."""
    back = set()
    for seed in range(20):
        node = SimulatedNode(seed, "/data1", "/data2")

        async def delete(logs: LogManager) -> None:
            await create(logs)
            for log in logs.logs.values():
                await log.flush()
            logs.moves.create_future(ORDERS, "/data2" if logs.directory_of(ORDERS) == "/data1" else "/data1")
            assert logs.delete(ORDERS)
            assert await logs.sync_deletions([ORDERS]) == []
            assert logs.delete(LAMPS)

        node.run(delete)
        node.disk.lose_power()

        async def partitions(logs: LogManager) -> list[TopicPartition]:
            return [*logs.logs, *logs.moves.futures]

        back.update(node.run(partitions))

    assert back == {LAMPS}  # its deletion was not synced


def test_the_newest_time_of_a_rolled_segment_survives_power_loss() -> None:
    """Its last entry in the time index is written by the roll, after the segment was flushed to its end."""
    node = SimulatedNode()

    async def roll(logs: LogManager) -> None:
        log = get_or_create(logs, ORDERS, TopicConfig.parse(), TOPIC_ID, is_new=True)
        for number in range(3):
            log.append_as_leader(batch("a", timestamp=NOW_MS + number), 3)
        await log.flush()
        await logs.write_recovery_points()
        log.roll()
        log.append_as_leader(batch("b", timestamp=NOW_MS + 9), 3)
        node.disk.sync_directory(log.directory)
        node.disk.open(f"{log.directory}/{3:020}.log").sync()

    async def look_up(logs: LogManager) -> list[int]:
        log = logs.logs[ORDERS]
        found = [await log.offset_for_timestamp(NOW_MS + number) for number in (1, 2, 3)]
        assert log.segments.first.largest_timestamp().timestamp == NOW_MS + 2
        return [record.offset for record in found if record is not None]

    node.run(roll)
    node.disk.lose_power(PowerLoss.ALL)

    assert node.run(look_up) == [1, 2, 3]


@pytest.mark.parametrize("is_offline", [False, True], ids=["sync fails", "offline before"])
def test_a_log_deletion_in_a_failing_log_directory_is_reported_as_not_durable(is_offline: bool) -> None:
    node = SimulatedNode(1, "/data1", "/data2")

    async def delete(logs: LogManager) -> None:
        for partition in (ORDERS, LAMPS):
            logs.moves.prefer_directory(partition, "/data1")
        await create(logs)
        assert logs.delete(ORDERS)
        node.disk.fail("/data1")
        if is_offline:
            logs.on_log_failed(logs.logs[LAMPS], OSError(5, "I/O error"))
        assert await logs.sync_deletions([ORDERS]) == [ORDERS]
        assert list(logs.offline_directories) == ["/data1"]

    node.run(delete)


@pytest.mark.parametrize("own", [{}, {"segment.bytes": "1000"}, {"retention.ms": "not a number"}])
def test_transaction_states_are_loaded_with_sync_before_ack(own: dict[str, str]) -> None:
    configs = LoadedConfigs({"__transaction_state": own, "orders": own}, {})

    assert configs.of("__transaction_state").klamm_sync_before_ack
    assert not configs.of("orders").klamm_sync_before_ack


def test_a_new_log_of_transaction_states_has_sync_before_ack() -> None:
    async def read_configs(logs: LogManager) -> list[bool]:
        return [logs.topic_config(topic).klamm_sync_before_ack for topic in ("__transaction_state", "orders")]

    assert SimulatedNode().run(read_configs) == [True, False]


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20])
def test_records_removed_by_a_synced_truncation_never_precede_newer_records_after_power_loss(
    segment_bytes: int,
) -> None:
    ends = set()
    for seed in range(80):
        node = SimulatedNode(seed)

        async def truncate(logs: LogManager) -> None:
            config = TopicConfig.parse({"segment.bytes": str(segment_bytes)})
            log = get_or_create(logs, ORDERS, config, None, is_new=True)
            for _ in range(4):
                log.append_as_leader(batch("old"), 1)
            await log.flush()
            log.truncate_to(1)
            assert not log.is_durable
            await log.wait_until_durable()
            assert log.is_durable
            for _ in range(4):
                log.append_as_leader(batch("new"), 2)

        node.run(truncate)
        node.disk.lose_power(PowerLoss.REORDERED)

        async def values(logs: LogManager) -> list[str]:
            log = logs.get(ORDERS)
            assert log is not None
            return values_of(log)

        found = node.run(values)
        assert found == ["old", "new", "new", "new", "new"][: len(found)], seed
        ends.add(len(found))
    assert len(ends) > 2


def test_a_flush_of_the_segments_before_a_truncated_one_does_not_count_as_its_sync() -> None:
    """A roll before the truncation requested it."""

    async def truncate(logs: LogManager) -> tuple[bool, bool]:
        log = get_or_create(logs, ORDERS, TopicConfig.parse(), None, is_new=True)
        for is_rolled in (True, False):
            log.append_as_leader(batch("old"), 1)
            log.append_as_leader(batch("old"), 1)
            if is_rolled:
                log.roll()
        log.truncate_to(3)
        await log.flush(log.segments.active.base_offset)
        after_rolled = log.is_durable
        await log.wait_until_durable()
        return after_rolled, log.is_durable

    assert SimulatedNode().run(truncate) == (False, True)
