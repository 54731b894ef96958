"""The producer and the reader with scripted brokers: batches, retries, splits, positions, gaps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.client.test_routing import ONE, TWO

from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import ConnectionLost, DeliveryFailed, RequestRefused, Unreachable
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.producer import NO_ACKS, Producer, ProducerSettings
from klamm.client.reader import LIMITS, Gap, LogReader
from klamm.client.steps import Running, Steps, Wait
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.loop import SimulatedLoop
from klamm.wire.messages import (
    BatchIndexAndErrorMessage,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchResponsePartitionData,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    TopicProduceResponse,
)
from klamm.wire.records import CorruptRecords, NewRecord, batches, build_batch, records

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Client:
    """`AsyncClient` without connections: broker `leader` leads everything."""

    def __init__(self) -> None:
        self.cluster = ClusterMetadata([ONE], asyncio.get_running_loop().time)
        self.answer: Callable[[Any], Any] = lambda _message: None
        self.leader = 1
        self.asked: list[Address] = []
        """Whom other requests than Metadata and InitProducerId went to."""
        self.in_flight = self.most_in_flight = 0
        self.told: list[ProduceRequest] = []
        self.tell_error: Exception | None = None

    async def run(self, steps: Steps[Any]) -> Any:
        running = Running(steps)
        while (step := running.step) is not None:
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                running.send(None)
                continue
            message = step.request.body(min(step.request.newest, 4))
            if isinstance(message, ProduceRequest | FetchRequest):
                self.asked.append(step.address)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
            await asyncio.sleep(0.001)
            self.in_flight -= isinstance(message, ProduceRequest | FetchRequest)
            try:
                answer = self._answer(message)
            except ConnectionLost as error:
                running.throw(error)
            else:
                running.send(answer)
        return running.result

    async def tell(self, _address: Address, request: Any) -> None:
        if self.tell_error is not None:
            raise self.tell_error
        self.told.append(request.body(7))

    def _answer(self, message: Any) -> Any:
        match message:
            case MetadataRequest():
                partitions = [MetadataResponsePartition(partition_index=n, leader_id=self.leader) for n in (0, 1)]
                topics = [MetadataResponseTopic(name="orders", partitions=partitions)]
                brokers = [MetadataResponseBroker(n, *address) for n, address in ((1, ONE), (2, TWO))]
                return MetadataResponse(brokers=brokers, topics=topics)
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=77, producer_epoch=3)
        return self.answer(message)


def play(body: Callable[[Client], Awaitable[None]]) -> None:
    loop = SimulatedLoop()

    async def main() -> None:
        await body(Client())

    loop.run(main())


# ---- the producer


class Leader:
    """Stores what is produced; `codes` are the next answers."""

    def __init__(self, client: Client, *codes: int | Exception, max_records: int = 1_000_000) -> None:
        client.answer = self.produce
        self.codes = list(codes)
        self.max_records = max_records
        self.sequences: list[tuple[int, int]] = []
        self.stored: list[bytes | None] = []
        self.requests = 0
        self.is_asked = asyncio.Event()

    def produce(self, message: Any) -> Any:
        assert isinstance(message, ProduceRequest)
        self.requests += 1
        self.is_asked.set()
        code = self.codes.pop(0) if self.codes else 0
        if isinstance(code, Exception):
            raise code
        answers = [self._store(p.index, p.records, code) for p in message.topic_data[0].partition_data]
        return ProduceResponse([TopicProduceResponse("orders", answers)])

    def _store(self, number: int, content: Any, code: int) -> PartitionProduceResponse:
        [header] = batches(content)
        if header.record_count > self.max_records:
            code = ErrorCode.MESSAGE_TOO_LARGE
        if not code:
            self.sequences.append((header.base_sequence, header.record_count))
            self.stored += [r.value for r in records(content, header)]
        errors = [BatchIndexAndErrorMessage(1, "no key")] if code == ErrorCode.INVALID_RECORD else []
        return PartitionProduceResponse(number, code, record_errors=errors)


async def send(client: Client, count: int, **settings: Any) -> Producer:
    """Send records `0`, `1`, ...; named `line 1`, ... ."""
    producer = Producer(client, ProducerSettings(timeout_s=10, **settings))  # type: ignore[arg-type]
    await producer.start()
    try:
        for number in range(count):
            producer.add(P0, NewRecord(b"%d" % number), f"line {number + 1}")
        await producer.flush()
    finally:
        await producer.close()
    return producer


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


def test_the_producer_sends_records_in_order_with_consecutive_sequence_numbers() -> None:
    async def body(client: Client) -> None:
        leader = Leader(client)
        producer = await send(client, 100, max_batch_bytes=300)
        assert leader.stored == numbers(100)
        assert leader.requests > 5
        following = 0
        for sequence, count in leader.sequences:
            assert sequence == following
            following += count
        assert producer.delivered.records == 100

    play(body)


def test_producer_retries_keep_record_order_and_sequence_numbers() -> None:
    async def body(client: Client) -> None:
        codes: list[int | Exception] = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ConnectionLost("gone"),
            ErrorCode.REQUEST_TIMED_OUT,
        ]
        leader = Leader(client, *codes)
        await send(client, 10)
        assert leader.stored == numbers(10)
        assert leader.sequences == [(0, 10)]
        assert leader.requests == 4

    play(body)


def test_the_producer_treats_duplicate_sequence_number_as_success() -> None:
    async def body(client: Client) -> None:
        leader = Leader(client, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        await send(client, 3)
        assert leader.requests == 1

    play(body)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_the_producer_splits_a_batch_refused_with_message_too_large(is_idempotent: bool) -> None:
    async def body(client: Client) -> None:
        leader = Leader(client, max_records=3)
        producer = await send(client, 10, is_idempotent=is_idempotent)
        assert leader.stored == numbers(10)
        assert producer.delivered.records == 10
        if is_idempotent:
            assert [s for s, _ in leader.sequences] == [0, 2, 5, 7]

    play(body)


def test_records_sent_after_a_split_batch_get_new_sequence_numbers() -> None:
    async def body(client: Client) -> None:
        leader = Leader(client, max_records=3)
        producer = Producer(client, ProducerSettings(timeout_s=10))  # type: ignore[arg-type]
        await producer.start()
        for number in range(4):
            producer.add(P0, NewRecord(b"%d" % number), str(number))
        await leader.is_asked.wait()
        await asyncio.sleep(0)  # the producer has the answer, and splits the batch
        producer.add(P0, NewRecord(b"4"), "4")
        await producer.flush()
        assert leader.sequences == [(0, 2), (2, 2), (4, 1)]
        assert leader.stored == numbers(5)
        await producer.close()

    play(body)


def test_the_producer_looks_the_leader_up_again_after_a_leader_change() -> None:
    async def body(client: Client) -> None:
        leader = Leader(client)

        def move(message: Any) -> Any:
            client.leader = 2
            client.answer = leader.produce
            raise ConnectionLost("one:1 is gone")

        client.answer = move
        await send(client, 1)
        assert client.asked == [ONE, TWO]

    play(body)


def test_the_producer_follows_a_leader_that_a_refusal_names() -> None:
    async def body(client: Client) -> None:
        leader = Leader(client)

        def refuse(message: Any) -> Any:
            client.answer = leader.produce
            named = ProduceResponseLeaderIdAndEpoch(2, 5)
            refusal = PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=named)
            endpoints = [ProduceResponseNodeEndpoint(2, *TWO)]
            return ProduceResponse([TopicProduceResponse("orders", [refusal])], node_endpoints=endpoints)

        client.answer = refuse
        await send(client, 1)
        assert client.asked == [ONE, TWO]  # broker 1 leads by the metadata

    play(body)


def test_the_producer_sends_one_request_at_a_time_to_each_leader() -> None:
    async def body(client: Client) -> None:
        leader = Leader(client)
        producer = Producer(client, ProducerSettings(timeout_s=10))  # type: ignore[arg-type]
        await producer.start()
        for number in range(20):
            producer.add(P1 if number % 2 else P0, NewRecord(b"%d" % number), "")
            await asyncio.sleep(0.0003)
        await producer.flush()
        await producer.close()
        assert client.most_in_flight == 1
        assert leader.requests > 2

    play(body)


def test_the_producers_error_names_the_record_that_the_broker_refused() -> None:
    async def body(client: Client) -> None:
        Leader(client, ErrorCode.INVALID_RECORD)
        with pytest.raises(
            DeliveryFailed, match=r"^line 2: the leader of orders-0 refused it with INVALID_RECORD \(no"
        ):
            await send(client, 3)
        Leader(client, max_records=0)
        with pytest.raises(DeliveryFailed, match=r"line 1: .*MESSAGE_TOO_LARGE.* raise max.message.bytes"):
            await send(client, 2)
        Leader(client, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(DeliveryFailed, match=r"line 1 to line 3: .*TOPIC_AUTHORIZATION_FAILED"):
            await send(client, 3)

    play(body)


def test_the_producer_fails_with_the_last_error_if_a_partition_accepts_nothing_in_time() -> None:
    async def body(client: Client) -> None:
        Leader(client, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000)
        with pytest.raises(Unreachable, match=r"writing to orders-0: no attempt succeeded within 10 s.*NOT_ENOUGH"):
            await send(client, 1)

    play(body)


def test_a_producer_with_acks_0_fails_when_the_connection_closes() -> None:
    async def body(client: Client) -> None:
        await send(client, 3, acks=NO_ACKS, is_idempotent=False)
        assert [m.acks for m in client.told] == [0]
        client.tell_error = ConnectionLost("one:1: the peer closed the connection")
        with pytest.raises(DeliveryFailed, match="pass --acks 1"):
            await send(client, 3, acks=NO_ACKS, is_idempotent=False)

    play(body)


# ---- the reader


class Log:
    """A leader with ten records from `start` on; `codes` are the next answers to Fetch."""

    def __init__(self, client: Client, *codes: int | Exception, start: int = 0) -> None:
        client.answer = self.serve
        self.codes = list(codes)
        self.start = start
        self.batch = build_batch([NewRecord(b"%d" % n) for n in range(start, start + 10)], base_offset=start)
        self.fetched: list[int] = []

    def serve(self, message: Any) -> Any:
        if isinstance(message, ListOffsetsRequest):
            asked = message.topics[0].partitions[0].timestamp
            found = ListOffsetsPartitionResponse(0, offset=self.start if asked == -2 else self.start + 10)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [found])])
        assert isinstance(message, FetchRequest)
        position = message.topics[0].partitions[0].fetch_offset
        self.fetched.append(position)
        code = self.codes.pop(0) if self.codes else 0
        if isinstance(code, Exception):
            raise code
        if not self.start <= position <= self.start + 10:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        content = self.batch if not code and position < self.start + 10 else b""
        data = FetchResponsePartitionData(
            0, code, high_watermark=self.start + 10, last_stable_offset=7, records=content
        )
        return FetchResponse(responses=[FetchableTopicResponse("orders", partitions=[data])])


def at(offset: int) -> dict[TopicPartition, OffsetAndEpoch]:
    return {P0: OffsetAndEpoch(offset)}


async def read(client: Client, position: int, gaps: list[Gap] | None = None, **limits: Any) -> Any:
    """The first result."""
    reader = LogReader(client, at(position), LIMITS._replace(**limits), 10)  # type: ignore[arg-type]
    reader.start()
    try:
        while isinstance(found := await reader.take(), Gap):
            assert gaps is not None, found
            gaps.append(found)
        return found
    finally:
        await reader.close()


def test_a_fetch_moves_the_readers_position_to_the_end_of_the_batch() -> None:
    async def body(client: Client) -> None:
        Log(client)
        found = await read(client, 3)
        assert (found.position, found.next_position, found.end, found.is_at_end) == (3, 10, 10, True)
        found = await read(client, 3, read_committed=True)
        assert found.end == 7
        log = Log(client)
        reader = LogReader(client, at(3), LIMITS, 10)  # type: ignore[arg-type]
        reader.start()
        assert [(await reader.take()).next_position for _ in range(2)] == [10, 10]
        assert log.fetched[:2] == [3, 10]
        await reader.close()

    play(body)


def test_the_reader_retries_retriable_fetch_errors_and_raises_others() -> None:
    async def body(client: Client) -> None:
        log = Log(client, ErrorCode.NOT_LEADER_OR_FOLLOWER, ConnectionLost("gone"), ErrorCode.FENCED_LEADER_EPOCH)
        assert (await read(client, 0)).next_position == 10
        assert log.fetched[:4] == [0, 0, 0, 0]
        Log(client, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(RequestRefused, match=r"orders-0.*TOPIC_AUTHORIZATION_FAILED"):
            await read(client, 0)
        Log(client, *[ConnectionLost("gone")] * 1_000)
        with pytest.raises(Unreachable, match="reading orders-0"):
            await read(client, 0)

    play(body)


def test_the_reader_reports_deleted_records_as_a_gap_and_continues_after_the_gap() -> None:
    async def body(client: Client) -> None:
        Log(client, start=100)
        gaps: list[Gap] = []
        assert (await read(client, 20, gaps)).position == 100
        assert gaps[0][:3] == (P0, 20, OffsetAndEpoch(100))
        assert "the log begins at offset 100" in gaps[0].reason
        assert (await read(client, 500, gaps)).position == 110
        assert "the log ends at offset 110" in gaps[1].reason

    play(body)


def test_the_reader_raises_corrupt_records_for_bytes_that_are_no_record_batch() -> None:
    async def body(client: Client) -> None:
        Log(client).batch = bytes(100)
        with pytest.raises(CorruptRecords, match="orders-0: the answer to a fetch from offset 3"):
            await read(client, 3)
        Log(client).batch = b"\0" * 10
        with pytest.raises(CorruptRecords, match="10 bytes, but no complete batch"):
            await read(client, 3)

    play(body)


def test_the_reader_stops_fetching_while_its_queue_is_full() -> None:
    async def body(client: Client) -> None:
        log = Log(client)
        reader = LogReader(client, at(10), LIMITS, 10)  # type: ignore[arg-type]
        reader.start()
        await asyncio.sleep(60)
        assert len(log.fetched) == 5  # four in the queue, one that waits for room
        await reader.close()

    play(body)


def test_a_partition_is_read_although_another_one_always_fills_the_response() -> None:
    async def body(client: Client) -> None:
        reader = LogReader(client, {P0: OffsetAndEpoch(0), P1: OffsetAndEpoch(0)}, LIMITS, 10)  # type: ignore[arg-type]

        def fill(message: Any) -> Any:
            """Answer with one record of the first partition of the request."""
            first, *others = message.topics[0].partitions
            batch = build_batch([NewRecord(b"")], base_offset=first.fetch_offset)
            found = [FetchResponsePartitionData(first.partition, records=batch)]
            found += [FetchResponsePartitionData(other.partition) for other in others]
            return FetchResponse(responses=[FetchableTopicResponse("orders", partitions=found)])

        client.answer = fill
        reader.start()
        taken = [await reader.take() for _ in range(20)]
        await reader.close()
        assert {found.partition: found.next_position for found in taken} == {P0: 5, P1: 5}

    play(body)
