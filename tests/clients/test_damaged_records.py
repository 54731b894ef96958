"""Bits flip in closed segments of real nodes: consumers get every record, and the files are whole again."""

from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.cluster import Cluster

from klamm.wire.records import CorruptRecords, batches
from klamm.wire.records.batch import crc_is_valid

TOPIC = "orders"
RECORDS = 3_000
OVERRIDES = {
    "log.segment.bytes": "100000",
    "klamm.log.scrub.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


def produce(cluster: Cluster) -> None:
    """Produce numbered records, all in sync."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": 2_000, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d-" % number + b"x" * 300, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def consume(cluster: Cluster) -> list[int]:
    """The numbers of all records, read by a client that does not check checksums."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "check.crcs": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[int] = []
        while len(found) < RECORDS:
            messages = consumer.consume(RECORDS - len(found), timeout=30)
            assert messages, f"{len(found)} of {RECORDS} records"
            for message in messages:
                if message.error() is None:
                    number, dash, rest = (message.value() or b"").partition(b"-")
                    assert (dash, rest) == (b"-", b"x" * 300), message.offset()
                    found.append(int(number))
        return found
    finally:
        consumer.close()


def closed_segments(cluster: Cluster, broker: int) -> list[Path]:
    """The `.log` files of the partition on this broker but the last one."""
    directory = Path(cluster.node(broker).properties["log.dirs"]) / f"{TOPIC}-0"
    return sorted(directory.glob("*.log"))[:-1]


def flip(path: Path, at: int) -> None:
    """Change a bit of the file, as a failing device does."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def damage_in(paths: list[Path]) -> Iterator[str]:
    """What is wrong in these segment files."""
    for path in paths:
        content = path.read_bytes()
        end = 0
        try:
            for header in batches(content):
                end = header.position + header.size
                if not crc_is_valid(content, header):
                    yield f"{path}: {header.base_offset}"
        except CorruptRecords as error:
            yield f"{path}: {error}"
        if end != len(content):
            yield f"{path}: broken chain"


def test_corrupt_records_on_leader_and_follower_are_repaired_and_never_reach_a_consumer(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2, overrides=OVERRIDES)
    try:
        cluster.start()
        cluster.create_topic(TOPIC, 1, 2)
        produce(cluster)
        segments = {broker: closed_segments(cluster, broker) for broker in (1, 2)}
        assert len(segments[1]) > 3
        intact = {broker: [path.read_bytes() for path in paths] for broker, paths in segments.items()}
        flip(segments[1][0], 5_000)
        flip(segments[1][1], 8)
        flip(segments[2][2], 9_000)
        flip(segments[2][0], 70)
        assert len(list(damage_in([*segments[1], *segments[2]]))) >= 4

        assert consume(cluster) == list(range(RECORDS))

        def is_whole() -> bool:
            try:
                return {b: [path.read_bytes() for path in paths] for b, paths in segments.items()} == intact
            except FileNotFoundError:  # a repaired segment is about to replace the damaged one
                return False

        cluster.wait_until("all segments are whole again", is_whole)
        said = cluster.recent_logs()
        assert "damaged records of a log were replaced" in said, said
    finally:
        cluster.stop()
