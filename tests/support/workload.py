"""A producer that runs during faults, and a reader that checks its records afterwards (librdkafka)."""

import threading
import time
from collections import deque

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.support.history import Acknowledged, Found, Verdict, compare, last_of_each_key

NOTICE_GAP_S = 0.25


class Workload:
    """Sends numbered records to every partition in turn, acks=all and idempotent, until stopped.

    `rate` is records per second over all partitions, `size` the bytes of each at least. With `keys`, that many keys
    take turns in each partition, and of each only the last record has to be found: the topic is compacted.
    Acknowledgements are kept with the time they came.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: int = 2_000,
        size: int = 1,
        in_flight: int = 5,
        keys: int | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[str] = []
        self.gaps: deque[tuple[float, float]] = deque(maxlen=10_000)
        """(end, length) of each period of more than 0.25 s without an acknowledgement."""
        self._rate = rate
        self._size = size
        self._keys = keys
        self._last = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 16_384,  # as Java's; what waits for a broker must fit into small segments
                "max.in.flight.requests.per.connection": in_flight,
                "delivery.timeout.ms": 120_000,
                "request.timeout.ms": 10_000,
                "retry.backoff.max.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 5_000,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._last = time.monotonic()
        self._thread.start()

    def stop(self, timeout_s: float = 130) -> None:
        """Stop sending, and wait for the outstanding acknowledgements."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(timeout_s)
        assert not left, f"{left} records without an answer after {timeout_s:g} s"

    def longest_gap_s(self, since: float = 0.0) -> float:
        """The longest period without an acknowledgement that ended after `since` (monotonic) or continues."""
        ended = [length for when, length in self.gaps if when >= since]
        return max([*ended, time.monotonic() - self._last])

    def check(self) -> Verdict:
        """Read all partitions and compare the records with the acknowledged ones."""
        found = read_all(self.bootstrap, self.topic, self.partitions)
        expected = self.acknowledged if self._keys is None else last_of_each_key(self.acknowledged, self._keys)
        return compare(expected, found)

    def _run(self) -> None:
        number = 0
        tick_s = max(0.01, self.partitions / self._rate)
        per_tick = max(1, int(self._rate * tick_s / self.partitions))
        while not self._stopping.is_set():
            for _ in range(per_tick):
                number += 1
                for partition in range(self.partitions):
                    self._send(partition, number)
            self._producer.poll(tick_s)
            self._stopping.wait(tick_s / 2)

    def _send(self, partition: int, number: int) -> None:
        key = None if self._keys is None else b"%d" % (number % self._keys)
        value = b"%0*d" % (self._size, number)
        while not self._stopping.is_set():
            try:
                self._producer.produce(self.topic, value, key, partition, self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_TOPIC:
                    raise
                self._producer.poll(0.1)  # a broker that has just started knows no topics yet
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """Record an acknowledgement or an error."""
        if error is not None:
            self.failures.append(str(error))
            return
        now = time.monotonic()
        if now - self._last > NOTICE_GAP_S:
            self.gaps.append((now, now - self._last))
        self._last = now
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert value is not None
        # no offset when the broker reports a duplicate without it
        self.acknowledged.append(Acknowledged(partition, int(value), -1 if offset is None else offset))


def read_all(bootstrap: str, topic: str, partitions: int, timeout_s: float = 60) -> dict[int, list[Found]]:
    """All records below the current high watermarks."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: dict[int, list[Found]] = {p: [] for p in range(partitions)}
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in found}
        waiting = {p for p, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in sorted(waiting)])
        deadline = time.monotonic() + timeout_s
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    found[partition].append(Found(offset, int(message.value() or b"")))
                elif error.code() != KafkaError._PARTITION_EOF:
                    continue  # librdkafka retries by itself
                if offset >= ends[partition] - 1:
                    waiting.discard(partition)
        assert not waiting, f"partitions {sorted(waiting)} were not read to the end within {timeout_s:g} s"
    finally:
        consumer.close()
    return found
