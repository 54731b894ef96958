"""Send records with librdkafka (acks=all, idempotent), and record which were acknowledged, and when."""

import asyncio
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from klamm.cli.demo.flights import Row

MIN_GAP_S: Final = 0.2
QUEUE_RECORDS: Final = 20_000


class Loader:
    """A producer that keeps track. `acknowledged` has one byte for each record: 1 if it was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, record_count: int) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged = bytearray(record_count)
        self.acknowledged_count = 0
        self.failures: list[str] = []
        self.gaps: list[tuple[float, float]] = []
        """(end, length) of periods without any acknowledgement, in seconds of the loop."""
        self._now = asyncio.get_running_loop().time
        self._last = self._now()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": QUEUE_RECORDS,
                "delivery.timeout.ms": 120_000,
                "retry.backoff.max.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def offer(self, row: Row) -> bool:
        """Pass one record to the producer. Returns False if the producer's queue is full."""
        try:
            self._producer.produce(
                self.topic, row.value, row.key, on_delivery=lambda error, m: self._on_delivery(row.number, error, m)
            )
        except BufferError:
            return False
        self.sent += 1
        return True

    def poll(self, wait_s: float = 0.0) -> None:
        """Handle the delivery reports that have arrived; wait for one for `wait_s` at most."""
        self._producer.poll(wait_s)

    @property
    def unanswered(self) -> int:
        """The number of records that have neither an acknowledgement nor an error."""
        return len(self._producer)

    def longest_gap_s(self, began: float, ended: float) -> float:
        """The longest period without an acknowledgement that ended between these times of the loop, in seconds."""
        return max((length for when, length in self.gaps if began <= when <= ended), default=0.0)

    def _on_delivery(self, number: int, error: KafkaError | None, _message: Message | Any) -> None:
        """Record the acknowledgement or the error of a record."""
        if error is not None:
            self.failures.append(f"record {number}: {error}")
            return
        now = self._now()
        if now - self._last > MIN_GAP_S:
            self.gaps.append((now, now - self._last))
        self._last = now
        self.acknowledged[number] = 1
        self.acknowledged_count += 1
