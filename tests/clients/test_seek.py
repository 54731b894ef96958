"""Python clients seek to offsets, log end, beginning and timestamps; test_groups_of_other_clients has the others."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.support.cluster import Cluster

from klamm.runtime.processes import ticks

RECORDS = 5
TIMEOUT_S = 30
EXPECTED = [b"2", b"5", b"1", b"3"]
"""The next values after offset 1, one before the end, the beginning, and the time of the third record."""


@pytest.fixture
def name(cluster: Cluster, own_name: str) -> str:
    """A topic whose record N in partition 0 has the value N and the timestamp N seconds."""
    cluster.create_topic(own_name, 1, 3, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(1, RECORDS + 1):
        producer.produce(own_name, str(number).encode(), partition=0, timestamp=number * 1_000)
    assert producer.flush(TIMEOUT_S) == 0
    return own_name


def with_confluent(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def next_value() -> bytes:
        for _ in ticks(TIMEOUT_S, 0):
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return bytes(message.value() or b"")
        raise AssertionError("no record came")

    next_value()  # a partition can seek once it is being fetched
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    [at_time] = consumer.offsets_for_times([TopicPartition(topic, 0, 3_000)], timeout=TIMEOUT_S)
    found = []
    for offset in (1, end - 1, OFFSET_BEGINNING, at_time.offset):
        consumer.seek(TopicPartition(topic, 0, offset))
        found.append(next_value())
    consumer.seek(TopicPartition(topic, 0, OFFSET_END))
    assert consumer.poll(1.0) is None
    consumer.close()
    return found


def with_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), consumer_timeout_ms=TIMEOUT_S * 1_000)
    partition = KafkaPythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 1)
    found = [next(consumer).value]
    consumer.seek_to_end(partition)
    consumer.seek(partition, consumer.position(partition) - 1)
    found.append(next(consumer).value)
    consumer.seek_to_beginning(partition)
    found.append(next(consumer).value)
    consumer.seek(partition, consumer.offsets_for_times({partition: 3_000})[partition].offset)
    found.append(next(consumer).value)
    consumer.close()
    return found


def with_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    async def main() -> list[bytes]:
        partition = AiokafkaPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 1)
            found = [(await consumer.getone()).value]
            await consumer.seek_to_end(partition)
            consumer.seek(partition, await consumer.position(partition) - 1)
            found.append((await consumer.getone()).value)
            await consumer.seek_to_beginning(partition)
            found.append((await consumer.getone()).value)
            times = await consumer.offsets_for_times({partition: 3_000})
            consumer.seek(partition, times[partition].offset)
            found.append((await consumer.getone()).value)
            return found

    return asyncio.run(main())


@pytest.mark.parametrize("read", [with_confluent, with_kafka_python, with_aiokafka])
def test_a_python_consumer_seeks_to_offsets_to_the_log_end_and_to_timestamps(
    cluster: Cluster, name: str, read: Callable[[str, str], list[bytes]]
) -> None:
    assert read(cluster.bootstrap, name) == EXPECTED
