"""Independent Kafka clients that send and read records: librdkafka, kafka-python, aiokafka, Java."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

import aiokafka
import confluent_kafka
import kafka
from tests.support.kafka_tools import kafka_tools
from tests.support.records import Found, Sent

TIMEOUT_S = 120
POLL_S = 60


class Witness(Protocol):
    """An independent client that sends records and reads a topic from its start."""

    name: str
    printable: bool
    """It carries only what a console tool can."""

    def send(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool) -> None: ...
    def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Found]: ...


class Confluent:
    name = "confluent-kafka"
    printable = False

    def send(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        errors = []

        def report(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
            if error is not None:
                errors.append(error)

        for r in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        r.value,
                        r.key,
                        on_delivery=report,
                        timestamp=r.timestamp_ms,
                        headers=list(r.headers),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0, "not delivered in time"
        assert not errors, errors[:3]

    def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Found]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        found: list[Found] = []
        while len(found) < count:
            batch = consumer.consume(min(count - len(found), 10_000), POLL_S)
            assert batch, f"only {len(found)} of {count} records within {POLL_S} s"
            for m in batch:
                assert m.error() is None, m.error()
                partition, offset = m.partition(), m.offset()
                assert partition is not None
                assert offset is not None
                headers = cast(tuple[tuple[str, bytes], ...], tuple(m.headers() or ()))
                found.append(Found(partition, offset, m.key(), m.value(), headers, m.timestamp()[1]))
        consumer.close()
        return found


class KafkaPython:
    name = "kafka-python"
    printable = False

    def send(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_in_flight_requests_per_connection=5 if idempotent else 1,
            acks="all",
            retries=10,
            linger_ms=5,
        )
        futures = [
            producer.send(topic, r.value, r.key, headers=list(r.headers), timestamp_ms=r.timestamp_ms) for r in records
        ]
        producer.flush(TIMEOUT_S)
        for future in futures:
            future.get(TIMEOUT_S)
        producer.close()

    def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Found]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","), enable_auto_commit=False, group_id=None, check_crcs=True
        )
        assigned = [kafka.TopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        found: list[Found] = []
        while len(found) < count:
            batches = consumer.poll(POLL_S * 1000, max_records=10_000)
            assert batches, f"only {len(found)} of {count} records within {POLL_S} s"
            for tp, messages in batches.items():
                found += [
                    Found(tp.partition, m.offset, m.key, m.value, tuple(m.headers), m.timestamp) for m in messages
                ]
        consumer.close()
        return found


class Aiokafka:
    name = "aiokafka"
    printable = False

    def send(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool) -> None:
        asyncio.run(self._send(bootstrap, topic, records, codec, idempotent))

    async def _send(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(topic, r.value, r.key, headers=list(r.headers), timestamp_ms=r.timestamp_ms)
                for r in records
            ]
            await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
        finally:
            await producer.stop()

    def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Found]:
        return asyncio.run(self._read(bootstrap, topic, partitions, count))

    async def _read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Found]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
        await consumer.start()
        try:
            assigned = [aiokafka.TopicPartition(topic, p) for p in range(partitions)]
            consumer.assign(assigned)
            for tp in assigned:
                consumer.seek(tp, 0)
            found: list[Found] = []
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=POLL_S * 1000, max_records=10_000)
                assert batches, f"only {len(found)} of {count} records within {POLL_S} s"
                for tp, messages in batches.items():
                    found += [
                        Found(tp.partition, m.offset, m.key, m.value, tuple(m.headers), m.timestamp) for m in messages
                    ]
            return found
        finally:
            await consumer.stop()


class JavaConsole:
    """kafka-clients 3.9.1 through kafka-console-producer and kafka-console-consumer."""

    name = "java"
    printable = True
    _NOTHING = b"(nothing)"

    def send(self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool) -> None:
        lines = [b"\t".join((self._headers(r), r.key or b"", self._text_or_null_marker(r.value))) for r in records]
        done = kafka_tools().run_class(
            "kafka.tools.ConsoleProducer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
            *("--request-required-acks", "all", "--producer-property", f"enable.idempotence={str(idempotent).lower()}"),
            *("--producer-property", f"max.in.flight.requests.per.connection={5 if idempotent else 1}"),
            *("--property", "parse.key=true", "--property", "parse.headers=true"),
            *("--property", f"null.marker={self._NOTHING.decode()}"),
            stdin=b"".join(line + b"\n" for line in lines),
            timeout_s=TIMEOUT_S,
        )
        assert done.status == 0, done.errors[-2000:]
        assert "ERROR" not in done.logged, done.logged[-2000:]

    def _text_or_null_marker(self, content: bytes | None) -> bytes:
        return content if content is not None else self._NOTHING

    def _headers(self, record: Sent) -> bytes:
        pairs = [name.encode() + b":" + content for name, content in record.headers]
        return b",".join(pairs) if pairs else self._NOTHING

    def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Found]:
        assert partitions == 1, "the console consumer reads one partition, unless it joins a group"
        done = kafka_tools().run_class(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--max-messages", str(count), "--timeout-ms", str(POLL_S * 1000)),
            *("--property", "print.key=true", "--property", "print.headers=true", "--property", "print.offset=true"),
            *("--property", "print.timestamp=true", "--property", f"null.literal={self._NOTHING.decode()}"),
            timeout_s=TIMEOUT_S,
        )
        assert done.status == 0, done.errors[-2000:]
        return [self._parse(0, line) for line in done.output.encode().split(b"\n")[:-1]]

    def _parse(self, partition: int, line: bytes) -> Found:
        timestamp, offset, headers, key, value = line.split(b"\t")
        pairs = [] if headers == b"NO_HEADERS" else [h.split(b":", 1) for h in headers.split(b",")]
        return Found(
            partition,
            int(offset.removeprefix(b"Offset:")),
            key,
            None if value == self._NOTHING else value,
            tuple((name.decode(), content) for name, content in pairs),
            int(timestamp.removeprefix(b"CreateTime:")),
        )


PYTHON_WITNESSES: tuple[Witness, ...] = (Confluent(), KafkaPython(), Aiokafka())
WITNESSES: tuple[Witness, ...] = (*PYTHON_WITNESSES, JavaConsole())
