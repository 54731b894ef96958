"""What a device that refuses does to a log and its directory, and to nobody else."""

import asyncio
import contextlib
import os
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.clean_shutdown import clean_shutdown_epochs
from tests.support.managed_logs import get_or_create
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.support import NOW_MS, ORDERS, ManualClock, Partition, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import AppendRefused, BadLogDirectory, CorruptFile, StorageFailed
from klamm.log.log import Log
from klamm.log.manager import LogManager, LogRequest
from klamm.log.registry import DirectoryFailure
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.world import World
from klamm.wire.records import CorruptRecords

CONFIG = TopicConfig.parse()
LAMPS = TopicPartition("lamps", 0)
IO_ERROR = OSError(5, "Input/output error")


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def frail(disk: FaultyDisk, clock: ManualClock) -> World:
    return World(clock, RealNetwork(), disk, RealRandomness())


def test_an_append_on_a_full_disk_fails_and_its_incomplete_bytes_are_never_read(
    frail: World, disk: FaultyDisk, tmp_path: Path
) -> None:
    log = Partition(frail, f"{tmp_path}/orders-0").open()
    log.append_as_leader(batch("a"), 0)
    disk.fail_from_here(torn_bytes=40)

    with pytest.raises(AppendRefused) as refused:
        log.append_as_leader(batch("b"), 0)

    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.end_offset == 1
    with pytest.raises(StorageFailed):
        log.read(0, 100)
    with pytest.raises(AppendRefused):
        log.append_as_leader(batch("b"), 0)
    disk.fail_at = None
    assert values_of(Partition(frail, log.directory).open()) == ["a"]


@pytest.mark.parametrize("nth", range(1, 60))
@pytest.mark.parametrize("torn_bytes", [0, 30])
def test_a_failure_of_any_disk_write_loses_no_accepted_record(
    frail: World, disk: FaultyDisk, tmp_path: Path, nth: int, torn_bytes: int
) -> None:
    """Appends, rolls, flushes, cuts: after the nth write of all failed, a reopened log has what was accepted."""
    place = Partition(frail, f"{tmp_path}/orders-0")
    log = place.open(segment_bytes=300, index_interval_bytes=1)
    disk.writes = 0
    disk.fail_at, disk.torn_bytes = nth, torn_bytes
    accepted: list[str] = []
    cut: list[str] | None = None
    try:
        for number in range(12):
            log.append_as_leader(batch(f"{number}", producer=(1, 0, number), timestamp=NOW_MS + number), number // 4)
            accepted.append(f"{number}")
        cut = accepted[:5]
        log.truncate_to(5)
        accepted, cut = cut, None
        log.append_as_leader(batch("again"), 9)
        accepted.append("again")
        log.close()
    except (AppendRefused, StorageFailed):
        assert log.has_failed
    disk.fail_at = None

    served = values_of(place.open(segment_bytes=300, index_interval_bytes=1))

    if cut is None:
        assert served == accepted
    else:  # in the middle of the cut: anything between before and after, without a gap
        assert served == accepted[: len(served)]
        assert len(served) >= len(cut)


async def test_a_failed_log_directory_goes_offline_while_the_others_stay_online(
    frail: World, disk: FaultyDisk, tmp_path: Path
) -> None:
    failures: list[DirectoryFailure] = []
    paths = [f"{tmp_path}/one", f"{tmp_path}/two"]
    logs = LogManager(frail, paths, 1, "cluster", on_directory_failed=failures.append)
    await logs.load()
    first = get_or_create(logs, ORDERS, CONFIG, None, is_new=True)
    other = get_or_create(logs, LAMPS, CONFIG, None, is_new=True)
    home = logs.directory_of(ORDERS)
    assert home is not None
    assert home != logs.directory_of(LAMPS)
    disk.fail_from_here(IO_ERROR, prefix=home)

    with pytest.raises(AppendRefused):
        first.append_as_leader(batch("a"), 0)

    assert failures == [DirectoryFailure(home, str(IO_ERROR), (ORDERS,))]
    assert (logs.get(ORDERS), logs.is_offline(ORDERS)) == (None, True)
    other.append_as_leader(batch("b"), 0)
    with pytest.raises(StorageFailed, match="it may be in an offline one"):
        get_or_create(logs, TopicPartition("new", 0), CONFIG, None)
    with pytest.raises(StorageFailed, match="is in the offline log directory"):
        get_or_create(logs, ORDERS, CONFIG, None, is_new=True)
    assert get_or_create(logs, TopicPartition("new", 0), CONFIG, None, is_new=True).end_offset == 0
    await logs.close()
    disk.fail_at = None

    again = LogManager(frail, paths, 1, "cluster")
    await again.load()
    assert None in clean_shutdown_epochs(again), "the failed directory must not count as left clean"
    assert set(again.logs) == {ORDERS, LAMPS, TopicPartition("new", 0)}
    await again.close()


async def test_a_log_directory_that_fails_at_startup_is_offline(frail: World, disk: FaultyDisk, tmp_path: Path) -> None:
    bad = f"{tmp_path}/bad"
    disk.fail_from_here(IO_ERROR, prefix=bad)
    logs = LogManager(frail, [bad, f"{tmp_path}/good"], 1, "cluster")

    await logs.load()

    assert logs.live_directories == [f"{tmp_path}/good"]
    assert logs.offline_directories == {bad: str(IO_ERROR)}
    await logs.close()


@pytest.mark.parametrize("what", ["segment", "log"])
async def test_a_failed_removal_of_deleted_files_takes_the_log_directory_offline(
    frail: World, disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    failures: asyncio.Queue[DirectoryFailure] = asyncio.Queue()
    logs = LogManager(frail, [str(tmp_path)], 1, "cluster", on_directory_failed=failures.put_nowait)
    await logs.load()
    at_once = TopicConfig.parse({"file.delete.delay.ms": "0"})
    log = get_or_create(logs, ORDERS, at_once, None, is_new=True)
    get_or_create(logs, LAMPS, at_once, None, is_new=True)

    def refuse(_path: str) -> None:
        raise IO_ERROR

    monkeypatch.setattr(disk, "remove", refuse)
    monkeypatch.setattr(disk, "remove_tree", refuse)

    if what == "segment":
        log.append_as_leader(batch("a"), 0)
        log.truncate_fully_and_start_at(7)
    else:
        assert logs.delete(ORDERS)

    failure = await asyncio.wait_for(failures.get(), 60)
    assert (failure.directory, failure.reason) == (str(tmp_path), str(IO_ERROR))
    assert LAMPS in failure.partitions
    await logs.close()


async def test_deleting_a_log_that_may_be_in_an_offline_log_directory_fails(
    frail: World, disk: FaultyDisk, tmp_path: Path
) -> None:
    bad = f"{tmp_path}/bad"
    disk.fail_from_here(IO_ERROR, prefix=bad)
    logs = LogManager(frail, [bad, f"{tmp_path}/good"], 1, "cluster")
    await logs.load()
    get_or_create(logs, LAMPS, CONFIG, None, is_new=True)

    assert logs.delete(LAMPS)
    with pytest.raises(StorageFailed, match=f"orders-0 may be in an offline log directory: {bad}"):
        logs.delete(ORDERS)

    await logs.close()


async def test_the_broker_start_fails_when_no_log_directory_is_usable(
    frail: World, disk: FaultyDisk, tmp_path: Path
) -> None:
    disk.fail_from_here(IO_ERROR)

    with pytest.raises(BadLogDirectory, match="No log directory can be used"):
        await LogManager(frail, [f"{tmp_path}/bad"], 1, "cluster").load()


async def test_a_failed_checkpoint_write_takes_its_log_directory_offline(
    frail: World, disk: FaultyDisk, tmp_path: Path
) -> None:
    failures: list[DirectoryFailure] = []
    logs = LogManager(frail, [f"{tmp_path}/one", f"{tmp_path}/two"], 1, "cluster", on_directory_failed=failures.append)
    await logs.load()
    disk.fail_from_here(IO_ERROR, prefix=f"{tmp_path}/one/replication")

    await logs.write_high_watermarks()

    assert [failure.directory for failure in failures] == [f"{tmp_path}/one"]
    await logs.close()


async def test_creating_many_logs_returns_a_log_or_an_error_for_each(
    frail: World, disk: FaultyDisk, tmp_path: Path
) -> None:
    one, two = f"{tmp_path}/one", f"{tmp_path}/two"
    logs = LogManager(frail, [one, two], 1, "cluster")
    await logs.load()
    there = get_or_create(logs, ORDERS, CONFIG, None, is_new=True)
    disk.fail_from_here(IO_ERROR, prefix=f"{one}/new-5")
    partitions = [ORDERS, *(TopicPartition("new", number) for number in range(250))]

    made = await logs.get_or_create_many([LogRequest(p, CONFIG, UUID(int=7), is_new=True) for p in partitions])

    assert isinstance(made[0], StorageFailed)
    assert there.has_failed
    refused = [p for p, log in zip(partitions, made, strict=True) if isinstance(log, StorageFailed)]
    assert TopicPartition("new", 5) in refused
    assert logs.live_directories == [two]
    assert set(logs.logs) == {
        p for p, log in zip(partitions, made, strict=True) if isinstance(log, Log) and log.directory.startswith(two)
    }
    assert all(log.topic_id == UUID(int=7) for log in logs.logs.values())
    assert len(logs.logs) > 150
    (refusal,) = await logs.get_or_create_many([LogRequest(TopicPartition("late", 0), CONFIG)])
    assert isinstance(refusal, StorageFailed)
    await logs.close()


async def test_a_failed_log_deletion_takes_the_log_directory_offline(
    frail: World, disk: FaultyDisk, tmp_path: Path
) -> None:
    logs = LogManager(frail, [str(tmp_path)], 1, "cluster")
    await logs.load()
    get_or_create(logs, ORDERS, CONFIG, None, is_new=True)
    assert not logs.delete(LAMPS)
    disk.fail_from_here(IO_ERROR)

    with pytest.raises(StorageFailed):
        logs.delete(ORDERS)

    assert (logs.live_directories, logs.is_offline(ORDERS)) == ([], True)
    with pytest.raises(StorageFailed, match="all log directories are offline"):
        get_or_create(logs, LAMPS, CONFIG, None, is_new=True)
    await logs.close()


async def test_a_clean_shutdown_flushes_all_logs(frail: World, disk: FaultyDisk, tmp_path: Path) -> None:
    logs = LogManager(frail, [str(tmp_path)], 1, "cluster")
    await logs.load()
    partitions = [TopicPartition("many", number) for number in range(40)]
    for log in await logs.get_or_create_many([LogRequest(p, CONFIG, is_new=True) for p in partitions]):
        assert isinstance(log, Log)
        log.append_as_leader(batch("a"), 0)

    await logs.close(9)

    again = LogManager(frail, [str(tmp_path)], 1, "cluster")
    await again.load()
    assert clean_shutdown_epochs(again) == {9}
    assert {log.recovery_point for log in again.logs.values()} == {1}
    await again.close()


def test_reading_a_segment_truncated_by_another_process_raises_corrupt_records(frail: World, tmp_path: Path) -> None:
    log = Partition(frail, f"{tmp_path}/orders-0").open()
    log.append_as_leader(batch("a" * 500), 0)
    os.truncate(log.segments.active.log_path, 5)

    with pytest.raises(CorruptRecords):
        log.read(0, 10)


@pytest.mark.parametrize("nth", range(1, 16))
def test_a_log_truncation_that_fails_halfway_leaves_no_offset_gap(
    frail: World, disk: FaultyDisk, tmp_path: Path, nth: int
) -> None:
    place = Partition(frail, f"{tmp_path}/orders-0")
    log = place.open(segment_bytes=160)
    written = [f"{number}" for number in range(10)]
    for value in written:
        log.append_as_leader(batch(value), 0)
    log.flush_now()
    assert len(log.segments) == 5
    disk.writes, disk.fail_at = 0, nth
    with contextlib.suppress(StorageFailed):
        log.truncate_to(1)
    disk.fail_at = None

    served = values_of(place.open(segment_bytes=160))

    assert served == written[: len(served)]
    assert served


@pytest.mark.parametrize("nth", range(1, 12))
def test_log_retention_that_fails_halfway_leaves_no_offset_gap(
    frail: World, disk: FaultyDisk, clock: ManualClock, tmp_path: Path, nth: int
) -> None:
    place = Partition(frail, f"{tmp_path}/orders-0")
    log = place.open(segment_bytes=160, retention_ms=1000)
    written = [f"{number}" for number in range(10)]
    for value in written:
        log.append_as_leader(batch(value), 0)
    log.update_high_watermark(10)
    log.flush_now()
    clock.ms += 2000
    log.append_as_leader(batch("young", timestamp=clock.ms), 0)
    log.update_high_watermark(11)
    disk.writes, disk.fail_at = 0, nth
    with contextlib.suppress(StorageFailed):
        log.delete_old_segments()
    disk.fail_at = None

    back = place.open(segment_bytes=160)

    assert values_of(back) == [*written, "young"][back.start_offset :]


@pytest.mark.parametrize("error", [IO_ERROR, CorruptFile("an index is damaged")], ids=["device", "damage"])
async def test_a_log_directory_that_fails_in_a_stop_does_not_keep_the_others_from_a_clean_shutdown(
    frail: World, disk: FaultyDisk, tmp_path: Path, error: OSError | CorruptFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads close the logs; what follows from a failure, such as a message to the controller, needs the loop."""
    failures: list[str] = []

    def on_failed(failure: DirectoryFailure) -> None:
        asyncio.get_running_loop()
        failures.append(failure.directory)

    paths = [f"{tmp_path}/one", f"{tmp_path}/two"]
    logs = LogManager(frail, paths, 1, "cluster", on_directory_failed=on_failed)
    await logs.load()
    for partition in (ORDERS, LAMPS):
        get_or_create(logs, partition, CONFIG, None, is_new=True).append_as_leader(batch("a"), 0)
    await logs.write_small_files()
    if isinstance(error, OSError):
        disk.fail_from_here(error, prefix=f"{paths[0]}/")
    else:
        real = Log.prepare_clean_shutdown

        def fail(log: Log) -> None:
            if log.directory.startswith(paths[0]):
                raise error
            real(log)

        monkeypatch.setattr(Log, "prepare_clean_shutdown", fail)

    await logs.close(9)

    assert failures == [paths[0]]
    disk.fail_at = None
    again = LogManager(frail, paths, 1, "cluster")
    await again.load()
    assert clean_shutdown_epochs(again) == {None, 9}
    assert [values_of(again.logs[partition]) for partition in (ORDERS, LAMPS)] == [["a"], ["a"]]
    await again.close()
