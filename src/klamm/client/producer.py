"""Records into partitions: what waits for one is sent as a batch while the request before it is under way.

A partition has one batch in flight, so its order stays. Source: KafkaProducer, RecordAccumulator, Sender.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.errors import ConnectionLost, DeliveryFailed, RetriableError, code_name, is_retriable
from klamm.client.per_leader import PerLeader
from klamm.client.records import ALL_IN_SYNC, produce_many_request
from klamm.client.steps import Ask, one_step, retried
from klamm.client.transactions import NO_PRODUCER, init_producer_id
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.compression import Codec
from klamm.wire.messages import PartitionProduceResponse
from klamm.wire.records import NO_SEQUENCE, NewRecord, build_batch
from klamm.wire.records.batch import add_to_sequence

NO_ACKS: Final = 0
MAX_BATCH_BYTES: Final = 512 * 1024
"""Of records before compression; one larger record is a batch of its own."""
MAX_BUFFERED_BYTES: Final = 32 << 20
_RECORD_OVERHEAD: Final = 24
"""About what a record has beside key, value and headers."""
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ProducerSettings(NamedTuple):
    acks: int = ALL_IN_SYNC
    codec: Codec = Codec.NONE
    is_idempotent: bool = True
    timeout_s: float = 120.0
    """How long a partition may refuse records before the producer gives up."""
    request_timeout_s: float = 30.0
    max_batch_bytes: int = MAX_BATCH_BYTES


class Counts(NamedTuple):
    records: int = 0
    size: int = 0
    """Bytes of keys, values and headers."""


@dataclass(slots=True)
class _Batch:
    """Records for one partition; `encoded` and its sequence stay the same for every attempt."""

    records: list[NewRecord] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """What the caller calls each record, for errors."""
    size: int = 0
    sequence: int = NO_SEQUENCE
    encoded: bytes | None = None

    @property
    def is_sealed(self) -> bool:
        """Whether no record can be added any more: the batch is being sent, or has its sequence number."""
        return self.encoded is not None or self.sequence != NO_SEQUENCE

    def append(self, record: NewRecord, name: str, size: int) -> None:
        """Add a record of `size` bytes; `name` says in error messages which record it is."""
        self.records.append(record)
        self.names.append(name)
        self.size += size

    def halves(self) -> "list[_Batch]":
        """Return two batches with half of the records each, in order."""
        found: list[_Batch] = []
        for part in (slice(None, len(self.records) // 2), slice(len(self.records) // 2, None)):
            half = _Batch()
            for record, name in zip(self.records[part], self.names[part], strict=True):
                half.append(record, name, record_size(record))
            half.sequence = self.sequence
            if found and self.sequence != NO_SEQUENCE:
                half.sequence = add_to_sequence(self.sequence, len(found[0].records))
            found.append(half)
        return found


class Producer:
    """`start` it, `add` records and `wait_for_room`, `flush` at the end, `close` it."""

    def __init__(self, client: AsyncClient, settings: ProducerSettings) -> None:
        self._client = client
        self._settings = settings
        self._queues: dict[TopicPartition, deque[_Batch]] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._producer = NO_PRODUCER
        self._buffered = 0
        self._progress = asyncio.Event()
        self._error: Exception | None = None
        self._sender = PerLeader(client, lambda: self._queues, self._send, "writing to", settings.timeout_s)
        self._sending: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when an error has ended the sending; the next wait raises it."""
        self.delivered = Counts()

    async def start(self) -> None:
        """Get a producer id where the producer is idempotent, and begin to send. Raises Unreachable."""
        loop = asyncio.get_running_loop()
        if self._settings.is_idempotent:
            backoff = Backoff(loop.time, self._settings.timeout_s)
            attempt = lambda: init_producer_id(self._client.cluster)  # noqa: E731
            self._producer = await self._client.run(retried("asking for a producer id", attempt, backoff))
        self._sending = loop.create_task(self._run(), name="producer")

    async def close(self) -> None:
        """Stop sending; what was not delivered is dropped."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._sender.close()

    def add(self, partition: TopicPartition, record: NewRecord, name: str) -> None:
        """Queue a record; `name` says which it is if it is refused."""
        size = record_size(record)
        queue = self._queues.setdefault(partition, deque())
        if not queue or queue[-1].is_sealed or queue[-1].size + size > self._settings.max_batch_bytes:
            queue.append(_Batch())
        queue[-1].append(record, name, size)
        self._buffered += size
        self._sender.notify()

    async def wait_for_room(self) -> None:
        """Wait until less than MAX_BUFFERED_BYTES are queued. Raises what ended the sending."""
        await self._wait_for(MAX_BUFFERED_BYTES)

    async def flush(self) -> None:
        """Wait until everything is delivered. Raises DeliveryFailed, Unreachable, TopicGone, UnsupportedVersion."""
        await self._wait_for(0)

    async def _wait_for(self, most_buffered: int) -> None:
        """Wait until at most `most_buffered` bytes are queued."""
        while self._error is None and self._buffered > most_buffered:
            self._progress.clear()
            await self._progress.wait()
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        """Send until an error that no retry can repair; the caller's next wait raises it."""
        try:
            await self._sender.run()
        except Exception as error:  # noqa: BLE001  also a bug: else the caller waits for ever
            self._error = error
            self._progress.set()
            self.failed.set_result(None)

    # ---- requests

    async def _send(self, address: Address, partitions: Collection[TopicPartition]) -> None:
        """Send the first batch of each partition in one request, and handle the response."""
        first = {p: self._queues[p][0] for p in partitions}
        encoded = {p: self._encode(p, batch) for p, batch in first.items()}
        request = produce_many_request(encoded, self._settings.request_timeout_s, self._settings.acks)
        if self._settings.acks == NO_ACKS:
            await self._send_without_acks(address, request, first)
            return
        try:
            answer = await self._client.run(one_step(Ask(address, request)))
        except ConnectionLost as error:
            for partition in first:
                self._sender.retry(partition, error)
            return
        found = {
            TopicPartition(topic.name, p.index): p for topic in answer.responses for p in topic.partition_responses
        }
        for partition, batch in first.items():
            if partition in found:
                self._on_answer(partition, batch, found[partition])
                self._client.cluster.learn_leader(partition, found[partition], answer)
            else:
                self._sender.retry(
                    partition, RetriableError(f"the Produce response of the leader does not contain {partition}")
                )

    async def _send_without_acks(
        self, address: Address, request: Request, first: Mapping[TopicPartition, _Batch]
    ) -> None:
        """Send the request, which has no response. Raises DeliveryFailed where the broker closes the connection.

        The closed connection is a broker's only sign that it refused records.
        """
        try:
            await self._client.tell(address, request)
        except ConnectionLost as error:
            raise DeliveryFailed(
                f"{error}. With acks=0 that may mean that the broker refused records: pass --acks 1 to know which."
            ) from error
        for partition, batch in first.items():
            self._on_delivered(partition, batch)

    def _encode(self, partition: TopicPartition, batch: _Batch) -> bytes:
        """The batch for the wire; the first time it gets the partition's next sequence."""
        if batch.encoded is None:
            if self._settings.is_idempotent and batch.sequence == NO_SEQUENCE:
                batch.sequence = self._sequences.get(partition, 0)
                self._sequences[partition] = add_to_sequence(batch.sequence, len(batch.records))
            producer_id, epoch = self._producer
            batch.encoded = build_batch(
                batch.records,
                self._settings.codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=batch.sequence,
            )
        return batch.encoded

    def _on_answer(self, partition: TopicPartition, batch: _Batch, answer: PartitionProduceResponse) -> None:
        """Handle the broker's answer to a batch: remove, repeat or split the batch.

        Raises DeliveryFailed for a final error.
        """
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._on_delivered(partition, batch)
        elif code in _TOO_LARGE and len(batch.records) > 1:
            queue = self._queues[partition]
            queue.popleft()
            queue.extendleft(reversed(batch.halves()))
        elif is_retriable(code):
            self._sender.retry(
                partition, RetriableError(f"the leader of {partition} refused the records with {code_name(code)}")
            )
        else:
            raise DeliveryFailed(_refusal_text(partition, batch, answer))

    def _on_delivered(self, partition: TopicPartition, batch: _Batch) -> None:
        """Count the batch and remove it from its queue."""
        self._sender.succeeded(partition)
        queue = self._queues[partition]
        queue.popleft()
        if not queue:
            del self._queues[partition]
        self._buffered -= batch.size
        self.delivered = Counts(self.delivered.records + len(batch.records), self.delivered.size + batch.size)
        self._progress.set()


def record_size(record: NewRecord) -> int:
    """About how many bytes the record has in a batch."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers


def _refusal_text(partition: TopicPartition, batch: _Batch, answer: PartitionProduceResponse) -> str:
    """Which record the broker refused, and why."""
    wrong = [e.batch_index for e in answer.record_errors or () if 0 <= e.batch_index < len(batch.names)]
    reasons = [e.batch_index_error_message for e in answer.record_errors or () if e.batch_index_error_message]
    which = batch.names[wrong[0]] if wrong else batch.names[0]
    if not wrong and len(batch.names) > 1:
        which = f"{batch.names[0]} to {batch.names[-1]}"
    reason = (reasons[0] if reasons else answer.error_message or "").strip().rstrip(".")
    remedy = ""
    if answer.error_code in _TOO_LARGE:
        remedy = f" The record has {batch.size:,} bytes: raise max.message.bytes of the topic, or send less."
    return (
        f"{which}: the leader of {partition} refused it with {code_name(answer.error_code)}"
        f"{f' ({reason})' if reason else ''}.{remedy}"
    )
