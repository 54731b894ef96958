"""A process that copies a topic exactly once with one of three libraries, until it is killed; events as JSON lines.

    python -m tests.support.transactional_copier LIBRARY BOOTSTRAP GROUP SOURCE TARGET ID [ABORT_EVERY]

Each record keeps partition, key and value, and gets the headers `transaction` (a name) and `records` (how many records
that transaction has). Every ABORT_EVERY-th transaction is aborted after its records are written. After an error the
process ends with status UNCERTAIN: it does not know how its transaction ended, and has to be started again.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from tests.support.group_member import HEARTBEAT_MS, SESSION_TIMEOUT_MS, say

UNCERTAIN = 4
MAX_RECORDS = 20
POLL_MS = 200
TIMEOUT_S = 20
WATCHDOG_S = 30
TRANSACTION_TIMEOUT_MS = 20_000
Headers = list[tuple[str, bytes]]


class Options(NamedTuple):
    bootstrap: str
    group: str
    source: str
    target: str
    transactional_id: str


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes


class Copier(Protocol):
    """A consumer and a transactional producer of one library."""

    def poll(self) -> list[Record]:
        """The next records, of partitions that the consumer still has."""

    def write(self, records: Sequence[Record], headers: Headers) -> None:
        """Begin a transaction and write the records in it."""

    def commit(self, next_offsets: dict[int, int]) -> None:
        """Commit the transaction together with the group's offsets."""

    def abort(self) -> None:
        """Abort the transaction, and read again from the committed offsets."""


class ConfluentCopier:
    def __init__(self, options: Options) -> None:
        from confluent_kafka import Consumer, Producer

        self._options = options
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._has_lost_partitions = False
        self._consumer.subscribe([options.source], on_revoke=self._on_revoke)

    def _on_revoke(self, *_: Any) -> None:
        self._has_lost_partitions = True

    def poll(self) -> list[Record]:
        self._has_lost_partitions = False
        messages = [m for m in self._consumer.consume(MAX_RECORDS, POLL_MS / 1000) if m.error() is None]
        if self._has_lost_partitions:  # some of these records may be another member's now
            self._rewind("a rebalance")
            return []
        return [
            Record(m.partition() or 0, m.offset() or 0, _bytes(m.key()), _bytes(m.value()) or b"") for m in messages
        ]

    def write(self, records: Sequence[Record], headers: Headers) -> None:
        self._producer.begin_transaction()
        for record in records:
            self._producer.produce(
                self._options.target, record.value, record.key, partition=record.partition, headers=list(headers)
            )

    def commit(self, next_offsets: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        offsets = [TopicPartition(self._options.source, p, offset) for p, offset in next_offsets.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S)
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.flush(TIMEOUT_S)
        self._producer.abort_transaction(TIMEOUT_S)
        self._rewind("an abort")

    def _rewind(self, why: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, KafkaException

        asked_s = time.monotonic()
        committed = self._consumer.committed(self._consumer.assignment(), TIMEOUT_S)
        for found in committed:
            if found.error is not None:
                raise KafkaException(found.error)
        say("rewound", why=why, asked_s=asked_s, offsets={p.partition: p.offset for p in committed})
        for found in committed:
            if found.offset < 0:
                found.offset = OFFSET_BEGINNING
            self._consumer.seek(found)


class KafkaPythonCopier:
    def __init__(self, options: Options) -> None:
        from kafka import KafkaConsumer, KafkaProducer

        self._options = options
        self._consumer = KafkaConsumer(
            options.source,
            bootstrap_servers=options.bootstrap.split(","),
            group_id=options.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            isolation_level="read_committed",
            max_poll_records=MAX_RECORDS,
        )
        self._producer = KafkaProducer(
            bootstrap_servers=options.bootstrap.split(","),
            transactional_id=options.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        self._producer.init_transactions()

    def poll(self) -> list[Record]:
        polled = self._consumer.poll(POLL_MS)
        return [Record(r.partition, r.offset, r.key, r.value) for batch in polled.values() for r in batch]

    def write(self, records: Sequence[Record], headers: Headers) -> None:
        self._producer.begin_transaction()
        for r in records:
            self._producer.send(self._options.target, r.value, r.key, list(headers), partition=r.partition)

    def commit(self, next_offsets: dict[int, int]) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        offsets = {
            TopicPartition(self._options.source, p): OffsetAndMetadata(offset, "", -1)
            for p, offset in next_offsets.items()
        }
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.flush()
        self._producer.abort_transaction()
        for partition in self._consumer.assignment():
            self._consumer.seek(partition, self._consumer.committed(partition) or 0)


class AiokafkaCopier:
    def __init__(self, options: Options) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        self._options = options
        self._loop = asyncio.new_event_loop()
        self._run(self._open(AIOKafkaConsumer, AIOKafkaProducer))

    async def _open(self, consumer: Any, producer: Any) -> None:
        options = self._options
        self._consumer = consumer(
            options.source,
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            isolation_level="read_committed",
        )
        self._producer = producer(
            bootstrap_servers=options.bootstrap,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        await self._producer.start()
        await self._consumer.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def poll(self) -> list[Record]:
        polled = self._run(self._consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS))
        return [Record(r.partition, r.offset, r.key, r.value) for batch in polled.values() for r in batch]

    def write(self, records: Sequence[Record], headers: Headers) -> None:
        async def send() -> None:
            await self._producer.begin_transaction()
            for r in records:
                await self._producer.send(
                    self._options.target, r.value, key=r.key, partition=r.partition, headers=list(headers)
                )

        self._run(send())

    def commit(self, next_offsets: dict[int, int]) -> None:
        from aiokafka import TopicPartition

        offsets = {TopicPartition(self._options.source, p): offset for p, offset in next_offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(offsets, self._options.group))
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        async def abort() -> None:
            await self._producer.flush()
            await self._producer.abort_transaction()
            for partition in self._consumer.assignment():
                self._consumer.seek(partition, await self._consumer.committed(partition) or 0)

        self._run(abort())


COPIERS: dict[str, Callable[[Options], Copier]] = {
    "confluent": ConfluentCopier,
    "kafka-python": KafkaPythonCopier,
    "aiokafka": AiokafkaCopier,
}


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def copy_batches(copier: Copier, abort_every: int) -> None:
    """Copy until an error."""
    name, number = uuid4().hex[:8], 0
    while True:
        records = copier.poll()
        if not records:
            continue
        number += 1
        transaction = f"{name}-{number}"
        watchdog = threading.Timer(WATCHDOG_S, give_up)  # some clients wait without an end for a dead coordinator
        watchdog.daemon = True
        watchdog.start()
        copier.write(records, [("transaction", transaction.encode()), ("records", b"%d" % len(records))])
        if abort_every and number % abort_every == 0:
            copier.abort()
            watchdog.cancel()
            say("aborted", transaction=transaction)
            continue
        copier.commit({r.partition: r.offset + 1 for r in records})
        watchdog.cancel()
        say("copied", transaction=transaction, records=len(records), offsets=_ranges(records), ended_s=time.monotonic())


def _ranges(records: Sequence[Record]) -> dict[int, tuple[int, int]]:
    """The first offset of each partition, and the one after the last."""
    offsets: dict[int, list[int]] = {}
    for record in records:
        offsets.setdefault(record.partition, []).append(record.offset)
    return {partition: (min(found), max(found) + 1) for partition, found in offsets.items()}


def give_up() -> None:
    """End the process, whatever the client waits for."""
    print(f"the transaction has not ended within {WATCHDOG_S} s", file=sys.stderr, flush=True)
    os._exit(UNCERTAIN)


def main() -> None:
    library, *words = sys.argv[1:]
    try:
        copy_batches(COPIERS[library](Options(*words[:5])), int(words[5]) if len(words) > 5 else 0)
    except Exception as error:  # any error: the next process finds out what is committed
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(UNCERTAIN)  # threads of the clients may wait for an answer


if __name__ == "__main__":
    main()
