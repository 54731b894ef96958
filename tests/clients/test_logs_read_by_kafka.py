"""Apache Kafka judges our log directories: its DumpLogSegments reads every file, its broker takes a directory over."""

import re
from pathlib import Path
from uuid import UUID

import pytest
from tests.support import apache_kafka, dump_log
from tests.support.clean_shutdown import clean_shutdown_epochs
from tests.support.managed_logs import crash, get_or_create

from klamm.config.topic_config import TopicConfig
from klamm.embedded.nodes import make_nodes
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.meta_properties import read_meta
from klamm.log.producers import Origin
from klamm.log.settings import CleanerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import RealDisk
from klamm.runtime.ports import free_ports
from klamm.runtime.workers import ProcessWorkers
from klamm.runtime.world import real_world
from klamm.wire.records import Codec, ControlType, EndMarker, NewRecord, build_batch, build_end_marker, records
from klamm.wire.records import batches as batches_of

ORDERS = TopicPartition("orders", 0)
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "0"}
NOW_MS = RealClock().now_ms()  # Apache Kafka forgets producers by the age of their records
CONFIGS = {
    "as sent": {},
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "own codec": {"compression.type": "zstd"},
    "dense index": {"index.interval.bytes": "0"},
}


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


def fill(log: Log) -> int:
    """Every codec, timestamps that go back and forth, producers, transactions of both ends; how many records."""
    for number in range(200):
        content = [
            NewRecord(
                b"value %d.%d" % (number, n),
                None if n % 3 else b"key",
                NOW_MS + number * 10 + (n * 7919) % 13,
                (("h", b"x"),) if n % 4 else (),
            )
            for n in range(1 + number % 9)
        ]
        codec = Codec(number % 5)
        match number % 20:
            case 7:
                batch = build_batch(content, codec, producer_id=40, producer_epoch=0, base_sequence=number)
                batch = build_batch(content, codec, producer_id=number, producer_epoch=1, base_sequence=0)
            case 11 | 12:
                batch = build_batch(
                    content, codec, producer_id=1000 + number, producer_epoch=0, base_sequence=0, transactional=True
                )
            case _:
                batch = build_batch(content, codec)
        log.append_as_leader(batch, number // 60)
        if number % 20 == 15:
            for pid, kind in ((1000 + number - 4, ControlType.COMMIT), (1000 + number - 3, ControlType.ABORT)):
                marker = build_end_marker(EndMarker(kind, 3), pid, 0, NOW_MS + number * 10)
                log.append_as_leader(marker, number // 60, Origin.COORDINATOR)
    return log.end_offset


def opened(directory: Path, overrides: dict[str, str]) -> Log:
    config = TopicConfig.parse({"segment.bytes": "6000", "index.interval.bytes": "300", **overrides})
    return Log.open(real_world(), str(directory / "orders-0"), ORDERS, config)


def dump(*files: Path, flags: tuple[str, ...] = (), is_compacted: bool = False) -> str:
    """What the tool prints; a complaint fails the test, but for what compaction leaves."""
    text, complaints = dump_log.dump(files, *flags, is_compacted=is_compacted)
    assert not complaints, complaints
    return text


def files(log: Log, suffix: str) -> list[Path]:
    found = sorted(Path(log.directory).glob(f"*{suffix}"))
    assert found
    return found


@pytest.fixture(scope="module", params=list(CONFIGS.values()), ids=list(CONFIGS))
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Log:
    made = opened(tmp_path_factory.mktemp("log"), request.param)
    fill(made)
    made.close()
    assert len(made.segments) > 3
    return made


def test_kafkas_dump_log_segments_reads_the_produced_records_from_klamms_segments(log: Log) -> None:
    printed = dump(*files(log, ".log"), flags=("--deep-iteration", "--print-data-log"))

    ours = [
        (record.offset, record.timestamp, len(record.value or b""))
        for segment in log.segments
        for content in [Path(segment.log_path).read_bytes()]
        for header in batches_of(content)
        for record in records(content, header)
    ]
    theirs = re.findall(r"^\| offset: (\d+) \w+: (\d+) keySize: -?\d+ valueSize: (-?\d+)", printed, re.MULTILINE)
    assert [(int(o), int(t), int(s)) for o, t, s in theirs] == ours
    assert len(ours) == log.end_offset
    assert "isvalid: false" not in printed
    assert printed.count("isvalid: true") == printed.count("baseOffset:")


def test_kafkas_dump_log_segments_accepts_klamms_offset_and_time_indexes(log: Log) -> None:
    indexes = [*files(log, ".index"), *files(log, ".timeindex")]
    printed = dump(*indexes)

    assert len(re.findall(r"^offset: \d+ position: ", printed, re.MULTILINE)) > 10
    assert printed.count("timestamp: ") >= len(log.segments)
    assert dump(*indexes, flags=("--verify-index-only",))
    assert dump(*indexes, flags=("--index-sanity-check",)).count("passed sanity check") == len(indexes)


def test_kafkas_dump_log_segments_reads_klamms_producer_state_snapshot(log: Log) -> None:
    printed = dump(files(log, ".snapshot")[-1])

    theirs = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+)", printed
    )
    ours = [(p.producer_id, p.epoch, p.coordinator_epoch) for p in log.producers.by_id.values()]
    assert sorted(tuple(map(int, entry[:3])) for entry in theirs) == sorted(ours)
    assert {entry[3] for entry in theirs} == {"OptionalLong.empty"}
    assert len(ours) > 20


def test_kafkas_dump_log_segments_reads_klamms_transaction_index(log: Log) -> None:
    printed = dump(*files(log, ".txnindex"))

    theirs = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", printed)
    ours = log.aborted_transactions(0, log.end_offset + 1)
    assert [tuple(map(int, entry)) for entry in theirs] == [tuple(entry) for entry in ours]
    assert len(ours) == 10


def test_kafkas_dump_log_segments_accepts_indexes_rebuilt_by_klamms_log_recovery(tmp_path: Path) -> None:
    made = opened(tmp_path, {})
    fill(made)
    made.flush_now()
    for path in Path(made.directory).glob("*index"):
        path.unlink()

    back = opened(tmp_path, {})
    back.close()

    assert back.end_offset == made.end_offset
    dump(*files(back, ".log"), *files(back, ".index"), *files(back, ".timeindex"), *files(back, ".snapshot"))


async def compact(logs: LogManager) -> int:
    """Clean everything, in a process of its own as a node does; how many cleanings it took."""
    cleaner = LogCleaner(real_world(), logs, CleanerSettings())
    workers = ProcessWorkers(1)
    count = 0
    while await cleaner.clean_next(workers):
        count += 1
    await workers.close()
    return count


async def test_kafkas_dump_log_segments_reads_a_log_compacted_by_klamm(tmp_path: Path) -> None:
    logs = LogManager(real_world(), [str(tmp_path)], 1, "cluster")
    await logs.load()
    log = get_or_create(logs, ORDERS, TopicConfig.parse({"segment.bytes": "6000"}), None, is_new=True)
    end = fill(log)
    log.update_config(TopicConfig.parse(COMPACTED))
    log.update_high_watermark(end)
    log.roll()
    log.flush_now()
    size = log.size
    assert await compact(logs) == 1
    assert log.size < size / 4
    await logs.close()

    printed = dump(*files(log, ".log"), flags=("--deep-iteration", "--print-data-log"), is_compacted=True)
    keys = re.findall(r"^\| offset: (\d+) .* key: key payload: ", printed, re.MULTILINE)
    assert len(keys) == 1, "the log has one key"
    assert "isvalid: false" not in printed
    others = [path for suffix in (".index", ".timeindex", ".txnindex", ".snapshot") for path in files(log, suffix)]
    dump(*others, is_compacted=True)


@pytest.mark.parametrize(
    ("is_clean", "is_compacted"),
    [(True, False), (False, False), (False, True)],
    ids=["clean shutdown", "killed", "compacted and killed"],
)
async def test_apache_kafka_reads_klamms_log_directory_and_klamm_reads_it_afterwards(
    tmp_path: Path, shared_zookeeper: ZooKeeperServer, is_clean: bool, is_compacted: bool
) -> None:
    chroot = f"/taken-over-{is_clean}-{is_compacted}"
    properties = {"controlled.shutdown.enable": "false"}
    (node,) = make_nodes(
        str(tmp_path), free_ports(1), shared_zookeeper.connect_string + chroot, properties, apache_kafka.broker()
    )
    node.start()
    apache_kafka.wait_until_started(node)
    node.stop()  # it has made its cluster id and its files
    meta = read_meta(RealDisk(), node.log_directory)
    assert meta is not None
    assert meta.broker_id is not None
    assert meta.cluster_id is not None

    def manager() -> LogManager:
        assert meta is not None
        return LogManager(real_world(), [node.log_directory], meta.broker_id or 0, meta.cluster_id or "")

    ours = manager()
    await ours.load()
    assert None not in clean_shutdown_epochs(ours)
    config = TopicConfig.parse({"segment.bytes": "6000"})
    log = get_or_create(ours, ORDERS, config, UUID(int=77), is_new=True)
    end = fill(log)
    log.update_high_watermark(end)
    if is_compacted:
        log.update_config(TopicConfig.parse(COMPACTED))
        log.flush_now()
        assert await compact(ours) == 1
    await ours.write_small_files()
    before = [(path.name, path.read_bytes()) for path in files(log, ".log")]
    if is_clean:
        await ours.close()
    else:
        await crash(ours)

    node.start()
    apache_kafka.wait_until_started(node)
    node.stop()
    said = RealDisk().read(node.output_path).decode()
    again = manager()
    await again.load()

    back = again.get(ORDERS)
    assert back is not None
    assert (back.end_offset, back.notes, back.topic_id) == (end, [], UUID(int=77))
    assert [(path.name, path.read_bytes()) for path in files(back, ".log")] == before
    assert back.epochs.entries == log.epochs.entries
    assert {p: s.last_offset for p, s in back.producers.by_id.items()} == {
        p: s.last_offset for p, s in log.producers.by_id.items()
    }
    assert None not in clean_shutdown_epochs(again)
    assert not [line for line in said.splitlines() if "orders-0" in line and ("WARN" in line or "ERROR" in line)], said
    await again.close()
