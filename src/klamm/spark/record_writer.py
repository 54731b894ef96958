"""Sends batches of records to partition leaders: at most one request in flight at each, so that order stays.

While a request is in flight the task encodes the next rows. Source: Sender.java, RecordAccumulator.java.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klamm.client.backoff import Backoff
from klamm.client.blocking import BlockingConnection
from klamm.client.errors import (
    ConnectionLost,
    DeliveryFailed,
    RetriableError,
    code_name,
    is_retriable,
)
from klamm.client.records import produce_many_request
from klamm.client.transactions import NO_PRODUCER, ProducerIdAndEpoch
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.read_client import ReadClient
from klamm.spark.record_encoder import EncodedRecords, Run, encode_runs
from klamm.wire.compression import Codec, compress
from klamm.wire.messages import PartitionProduceResponse
from klamm.wire.records.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    add_to_sequence,
    sealed_batch,
)

NO_ACKS: Final = 0
ALL_SIZES: Final = 1 << 62
BATCH_OVERHEAD: Final = 100
"""About what a batch has in a request beside its records."""
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class SendSettings(NamedTuple):
    acks: int
    codec: Codec
    level: int | None
    request_timeout_s: float
    delivery_timeout_s: float
    """How long a partition may refuse records before the write fails."""
    max_request_bytes: int
    max_buffered_bytes: int


class Identity(NamedTuple):
    """Who writes: without a producer id, as an idempotent producer, or in a transaction."""

    producer: ProducerIdAndEpoch = NO_PRODUCER
    transactional_id: str | None = None


@dataclass(slots=True)
class _Batch:
    """Records for one partition; `encoded` and its sequence stay the same for every attempt."""

    records: EncodedRecords
    payload: bytes | memoryview
    sequence: int = NO_SEQUENCE
    encoded: bytes | None = None

    @property
    def size(self) -> int:
        """About how many bytes it has in a request."""
        return len(self.payload) + BATCH_OVERHEAD


class _InFlight(NamedTuple):
    connection: BlockingConnection
    batches: Mapping[TopicPartition, _Batch]


class RecordWriter:
    """`write` batches, `flush` at the end. One that failed is not used again."""

    def __init__(
        self, brokers: ReadClient, settings: SendSettings, identity: Identity, now_ms: Callable[[], int]
    ) -> None:
        """`now_ms` gives the timestamps of batches."""
        self._brokers = brokers
        self._settings = settings
        self._identity = identity
        self._now_ms = now_ms
        self._queues: dict[TopicPartition, deque[_Batch]] = {}
        self._in_flight: dict[Address, _InFlight] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._retries: dict[TopicPartition, Backoff] = {}
        self._not_before_s: dict[TopicPartition, float] = {}
        self._buffered = 0

    def write(self, batches: Iterable[EncodedRecords]) -> None:
        """Queue batches, and send until no more than the allowed bytes wait.

        Raises DeliveryFailed, Unreachable, TopicGone, UnsupportedVersion.
        """
        unsent = 0
        for records in batches:
            unsent += self._queue(records)
            if unsent >= self._settings.max_request_bytes:
                unsent = 0
                self._send()
                self._wait_for(self._settings.max_buffered_bytes)
        self._send()

    def flush(self) -> None:
        """Wait until everything is delivered. Raises as `write` does."""
        self._wait_for(0)

    def _queue(self, records: EncodedRecords) -> int:
        """Compress a batch and queue it; its size in a request."""
        codec, level = self._settings.codec, self._settings.level
        payload = records.payload if codec is Codec.NONE else compress(codec, records.payload, level)
        batch = _Batch(records, payload)
        self._queues.setdefault(records.partition, deque()).append(batch)
        self._buffered += batch.size
        return batch.size

    def _wait_for(self, max_buffered: int) -> None:
        """Send and receive until at most this many bytes are queued."""
        while self._buffered > max_buffered:
            self._send()
            if self._in_flight:
                self._receive(next(iter(self._in_flight)))
            else:
                now_s = self._brokers.client.world.now_s()
                self._brokers.client.world.sleep(max(0.0, min(self._not_before_s.values()) - now_s))

    # ---- requests

    def _send(self) -> None:
        """Send a request to each leader that has none in flight and to whom something can be sent."""
        now_s = self._brokers.client.world.now_s()
        self._not_before_s = {p: at_s for p, at_s in self._not_before_s.items() if at_s > now_s}
        busy = {p for flight in self._in_flight.values() for p in flight.batches}
        idle = [p for p in self._queues if p not in busy and p not in self._not_before_s]
        if not idle:
            return
        try:
            leaders = self._brokers.client.run(self._brokers.cluster.leaders(idle))
        except RetriableError as error:
            leaders = {}
            for partition in idle:
                self._retry(partition, error)
            return
        chosen: dict[Address, dict[TopicPartition, _Batch]] = {}
        sizes: dict[Address, int] = {}
        for partition in idle:
            if partition not in leaders:
                self._retry(partition, RetriableError(self._brokers.cluster.no_leader_reason(partition)))
                continue
            address, batch = leaders[partition], self._queues[partition][0]
            size = sizes.get(address, 0) + batch.size
            if address not in self._in_flight and (address not in sizes or size <= self._settings.max_request_bytes):
                chosen.setdefault(address, {})[partition] = batch
                sizes[address] = size
        for address, batches in chosen.items():
            self._send_to(address, batches)

    def _send_to(self, address: Address, batches: Mapping[TopicPartition, _Batch]) -> None:
        """Send one batch of each of these partitions to their leader."""
        request = produce_many_request(
            {p: self._encode(p, batch) for p, batch in batches.items()},
            self._settings.request_timeout_s,
            self._settings.acks,
            transactional_id=self._identity.transactional_id,
        )
        try:
            connection = self._brokers.client.at(address)
            connection.tell(request) if self._settings.acks == NO_ACKS else connection.send(request)
        except ConnectionLost as error:
            self._on_lost(address, batches, error)
        else:
            self._in_flight[address] = _InFlight(connection, batches)

    def _receive(self, address: Address) -> None:
        """Receive the response of this leader, and finish, repeat or split each batch."""
        connection, batches = self._in_flight.pop(address)
        try:
            answer = connection.receive()
        except ConnectionLost as error:
            self._on_lost(address, batches, error)
            return
        self._brokers.cluster.on_answer(address)
        if self._settings.acks == NO_ACKS:
            for partition in batches:
                self._on_delivered(partition)
            return
        found = _by_partition(answer)
        for partition, batch in batches.items():
            if partition in found:
                self._on_answer(partition, batch, found[partition])
                self._brokers.cluster.learn_leader(partition, found[partition], answer)
            else:
                self._retry(
                    partition, RetriableError(f"the Produce response of the leader does not contain {partition}")
                )

    def _encode(self, partition: TopicPartition, batch: _Batch) -> bytes:
        """The batch for the wire; the first time it gets the partition's next sequence."""
        if batch.encoded is None:
            count = batch.records.rows
            is_idempotent = self._identity.producer != NO_PRODUCER
            if is_idempotent and batch.sequence == NO_SEQUENCE:
                batch.sequence = self._sequences.get(partition, 0)
                self._sequences[partition] = add_to_sequence(batch.sequence, count)
            now_ms = self._now_ms()
            header = BatchHeader(
                base_offset=0,
                batch_length=0,
                partition_leader_epoch=NO_LEADER_EPOCH,
                magic=MAGIC,
                crc=0,
                attributes=self._settings.codec | (TRANSACTIONAL_BIT if self._identity.transactional_id else 0),
                last_offset_delta=count - 1,
                base_timestamp=now_ms,
                max_timestamp=now_ms,
                producer_id=self._identity.producer.id,
                producer_epoch=self._identity.producer.epoch,
                base_sequence=batch.sequence,
                record_count=count,
            )
            batch.encoded = sealed_batch(header, batch.payload)
        return batch.encoded

    # ---- answers

    def _on_answer(self, partition: TopicPartition, batch: _Batch, answer: PartitionProduceResponse) -> None:
        """Finish, repeat or split a batch. Raises DeliveryFailed where none of them can help."""
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._on_delivered(partition)
        elif code in _TOO_LARGE and batch.records.rows > 1:
            self._split(partition, batch)
        elif is_retriable(code):
            self._retry(
                partition, RetriableError(f"the leader of {partition} refused the records with {code_name(code)}")
            )
        else:
            raise DeliveryFailed(_refusal_text(partition, batch, answer))

    def _on_delivered(self, partition: TopicPartition) -> None:
        """Remove the first batch of the partition."""
        queue = self._queues[partition]
        self._buffered -= queue.popleft().size
        if not queue:
            del self._queues[partition]
        self._retries.pop(partition, None)

    def _split(self, partition: TopicPartition, batch: _Batch) -> None:
        """Put two halves in the place of the first batch of the partition, with the same sequences."""
        middle, count = batch.records.rows // 2, batch.records.rows
        queue = self._queues[partition]
        self._buffered -= queue.popleft().size
        halves = [
            next(encode_runs(batch.records.source.slice(start, end), [Run(partition, 0, end - start)], ALL_SIZES))
            for start, end in ((0, middle), (middle, count))
        ]
        codec, level = self._settings.codec, self._settings.level
        later = [_Batch(half, compress(codec, half.payload, level)) for half in halves]
        if batch.sequence != NO_SEQUENCE:
            later[0].sequence = batch.sequence
            later[1].sequence = add_to_sequence(batch.sequence, middle)
        queue.extendleft(reversed(later))
        self._buffered += sum(half.size for half in later)

    def _on_lost(self, address: Address, batches: Iterable[TopicPartition], error: ConnectionLost) -> None:
        """Repeat the batches of a lost connection. Raises DeliveryFailed if it is unknown which were written."""
        self._brokers.client.drop(address)
        if self._settings.acks == NO_ACKS:
            raise DeliveryFailed(
                f"{error}. With acks=0 that may mean that the broker refused records: set kafka.acks to 1 or all to "
                "know which."
            ) from error
        for partition in batches:
            self._retry(partition, error)

    def _retry(self, partition: TopicPartition, error: Exception) -> None:
        """Look up the partition's leader again, after a pause. Raises Unreachable where it failed for too long."""
        self._brokers.cluster.forget_leader(partition)
        backoff = self._retries.setdefault(partition, self._brokers.backoff(self._settings.delivery_timeout_s))
        wait_s = backoff.next_wait_s(f"writing to {partition}", error)
        self._not_before_s[partition] = self._brokers.client.world.now_s() + wait_s


def _by_partition(answer: Any) -> dict[TopicPartition, PartitionProduceResponse]:
    """The responses of a Produce request by partition."""
    return {TopicPartition(topic.name, p.index): p for topic in answer.responses for p in topic.partition_responses}


def _refusal_text(partition: TopicPartition, batch: _Batch, answer: PartitionProduceResponse) -> str:
    """Which records the broker refused, why, and what to do."""
    reasons = [e.batch_index_error_message for e in answer.record_errors or () if e.batch_index_error_message]
    reason = (reasons[0] if reasons else answer.error_message or "").strip().rstrip(".")
    code, records = answer.error_code, batch.records
    what = "a record" if records.rows == 1 else f"a batch of {records.rows} records"
    text = f"the leader of {partition} refused {what} with {code_name(code)}{f' ({reason})' if reason else ''}."
    if code in _TOO_LARGE:
        text += f" It has {len(batch.payload):,} bytes: raise max.message.bytes of the topic, or write smaller records."
    return text
