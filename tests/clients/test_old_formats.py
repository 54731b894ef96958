"""Clients that know only the message formats 0 and 1 beside those of today: kafka-python as for old brokers."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as OldPartition
from tests.support.cluster import Cluster

RECORDS = 300
Pair = tuple[bytes | None, bytes | None]
EXPECTED: list[Pair] = [
    (None if n % 3 == 0 else b"key-%d" % n, None if n % 7 == 4 and n % 3 else b"value-%d" % n * (n % 5 + 1))
    for n in range(RECORDS)
]
FORMATS = {0: (0, 9), 1: (0, 10, 0)}
CODECS = [
    (magic, codec) for magic in FORMATS for codec in (None, "gzip", "snappy", "lz4") if (magic, codec) != (0, "lz4")
]
"""kafka-python needs another library for the lz4 of format 0: `tests/unit/wire/test_legacy_records.py`."""


def produce_old(cluster: Cluster, topic: str, magic: int, codec: str | None) -> list[int]:
    """Produce in an old format; the offsets that the node answered."""
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap, api_version=FORMATS[magic], compression_type=codec, linger_ms=20
    )
    sent = [producer.send(topic, value, key, partition=0) for key, value in EXPECTED]
    offsets = [each.get(20).offset for each in sent]
    producer.close()
    return offsets


def produce_new(cluster: Cluster, topic: str, codec: str | None) -> None:
    """Produce in today's format, with headers."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "compression.type": codec or "none", "linger.ms": 20, "log_level": 0}
    )
    for key, value in EXPECTED:
        producer.produce(topic, value, key, partition=0, headers=[("name", b"value")])
    assert producer.flush(20) == 0


def consume_old(cluster: Cluster, topic: str, magic: int, start: int = 0) -> Iterator[tuple[int, Pair]]:
    """Offset, key and value of each record from an offset on, read in an old format."""
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        api_version=FORMATS[magic],
        consumer_timeout_ms=20_000,
        max_partition_fetch_bytes=20_000,
    )
    consumer.assign([OldPartition(topic, 0)])
    consumer.seek(OldPartition(topic, 0), start)
    try:
        for record in consumer:
            yield record.offset, (record.key, record.value)
            if record.offset == RECORDS - 1:
                return
    finally:
        consumer.close()


def consume_new(cluster: Cluster, topic: str) -> list[tuple[int, Pair]]:
    """Offset, key and value of each record, read in today's format with checked checksums."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "check.crcs": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, Pair]] = []
    try:
        while len(found) < RECORDS:
            messages = consumer.consume(RECORDS, timeout=20)
            assert messages, f"{len(found)} of {RECORDS} records"
            found += [(int(m.offset() or 0), (m.key(), m.value())) for m in messages]
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(("magic", "codec"), CODECS)
def test_records_produced_in_an_old_message_format_are_readable_in_every_format(
    cluster: Cluster, magic: int, codec: str | None
) -> None:
    topic = f"old-{magic}-{codec}"
    cluster.create_topic(topic, 1, 2)
    assert produce_old(cluster, topic, magic, codec) == list(range(RECORDS))

    expected = list(enumerate(EXPECTED))
    assert consume_new(cluster, topic) == expected
    for other in FORMATS if codec != "lz4" else [1]:
        assert list(consume_old(cluster, topic, other)) == expected


@pytest.mark.parametrize(("magic", "codec"), CODECS)
def test_records_in_message_format_2_are_readable_by_clients_of_old_formats(
    cluster: Cluster, magic: int, codec: str | None
) -> None:
    topic = f"new-{magic}-{codec}"
    cluster.create_topic(topic, 1, 2)
    produce_new(cluster, topic, codec)

    assert list(consume_old(cluster, topic, magic)) == list(enumerate(EXPECTED))
    assert list(consume_old(cluster, topic, magic, 117)) == list(enumerate(EXPECTED))[117:]
