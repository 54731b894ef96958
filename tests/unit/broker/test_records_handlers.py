"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch: what goes to the replicas, and how their word is told."""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.cluster_state import ORDERS_ID, broker, cache, partition, request, update
from tests.unit.coordinator.test_large_groups import ObservedSlices

from klamm.broker.handlers.fetch import FETCH, Fetch
from klamm.broker.handlers.leader_epochs import OFFSET_FOR_LEADER_EPOCH, LeaderEpochs
from klamm.broker.handlers.list_offsets import LIST_OFFSETS, ListOffsets
from klamm.broker.handlers.produce import PRODUCE, Produce
from klamm.log.epochs import EpochEnd
from klamm.log.errors import RecordError
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.net.server import CloseConnection
from klamm.replication.appending import AppendResult
from klamm.replication.fetch_data import FetchData, FetchParams, Isolation
from klamm.replication.fetch_sessions import FetchAnswer, FetchRequested
from klamm.replication.fetch_waiter import CachedPartition, FetchWaiter
from klamm.replication.offset_lookup import FoundOffset
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    ReplicaState,
    TopicProduceData,
)
from klamm.wire.records import Codec, NewRecord, build_batch

ORDERS_0 = TopicPartition("orders", 0)
BATCH = build_batch([NewRecord(None, b"v", 1)])


class Replicas:
    """Says what it was told to say, and remembers what it was asked."""

    def __init__(self) -> None:
        self.appended: Mapping[TopicPartition, Any] = {}
        self.result = AppendResult(base_offset=7, log_start_offset=2)
        self.fetched: tuple[FetchParams, FetchRequested] | None = None
        self.data = FetchData(high_watermark=9, last_stable_offset=9, log_start_offset=1, records=b"r" * 70)
        self.found = FoundOffset(timestamp=5, offset=6, leader_epoch=4)
        self.looked_up: dict[str, Any] = {}

    async def append(
        self, acks: int, timeout_ms: int, records: Mapping[TopicPartition, Any], *, on_appended: Callable[[], None]
    ) -> Any:
        self.appended = records
        return dict.fromkeys(records, self.result)

    async def fetch(self, params: FetchParams, requested: FetchRequested) -> FetchAnswer:
        self.fetched = params, requested
        watch = FetchWaiter(params.replica_id, stays=False)
        return FetchAnswer(ErrorCode.NONE, 0, [(CachedPartition(p, watch), self.data) for p in requested.partitions])

    async def look_up_offset(self, topic_partition: TopicPartition, timestamp: int, **facts: Any) -> FoundOffset:
        self.looked_up = {"timestamp": timestamp, **facts}
        return self.found

    def partition(self, topic_partition: TopicPartition) -> None:
        """This broker has no replica."""
        return

    def segment_offsets_before(self, *asked: Any) -> tuple[ErrorCode, list[int]]:
        self.looked_up = {"old": asked}
        return ErrorCode.NONE, [9, 5, 0]

    def end_of_epoch(self, *asked: Any) -> tuple[ErrorCode, EpochEnd]:
        return ErrorCode.NONE, EpochEnd(3, 12)


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


REFUSED = {
    "unknown topic": ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "no records": ({"records": None}, ErrorCode.INVALID_RECORD),
    "zstd for an old client": (
        {"version": 6, "records": build_batch([NewRecord(None, b"v", 1)], Codec.ZSTD)},
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
}


NOT_ASKED: Any = None
"""No verification: the batches are not transactional."""


class TestProduce:
    async def produce(
        self,
        replicas: Replicas,
        version: int = 11,
        records: bytes | None = BATCH,
        topic: str = "orders",
        acks: int = -1,
        client_id: str = "c",
    ) -> ProduceResponse | None:
        message = ProduceRequest(None, acks, 100, [TopicProduceData(topic, [PartitionProduceData(0, records)])])
        handler = Produce(cache(), replicas, NOT_ASKED)  # type: ignore[arg-type]
        response = await handler.handle(request(ApiKey.PRODUCE, version, client_id), message)
        if response is not None:
            response.encode(version)
        return response

    @pytest.mark.parametrize("version", range(PRODUCE.min_version, PRODUCE.max_version + 1))
    async def test_every_produce_version_answers_base_offset_and_log_start_offset(
        self, replicas: Replicas, version: int
    ) -> None:
        response = await self.produce(replicas, version)

        assert response is not None
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (ErrorCode.NONE, 7, 2)
        assert replicas.appended == {ORDERS_0: BATCH}

    @pytest.mark.parametrize("version", range(PRODUCE.min_version, PRODUCE.max_version + 1))
    async def test_every_produce_version_answers_a_partitions_error_with_its_invalid_records(
        self, replicas: Replicas, version: int
    ) -> None:
        replicas.result = AppendResult(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, record_errors=[RecordError(3, "no key")], message="not here"
        )

        response = await self.produce(replicas, version)

        assert response is not None
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset, answer.error_message) == (6, -1, "not here")
        assert (answer.record_errors[0].batch_index, answer.record_errors[0].batch_index_error_message) == (3, "no key")
        assert (answer.current_leader.leader_id == 1) == (version >= 10)
        assert [e.node_id for e in response.node_endpoints] == ([1] if version >= 10 else [])

    @pytest.mark.parametrize(("asked", "expected"), REFUSED.values(), ids=REFUSED)
    async def test_an_invalid_produce_request_is_refused_without_an_append(
        self, replicas: Replicas, asked: Any, expected: ErrorCode
    ) -> None:
        response = await self.produce(replicas, **asked)

        assert response is not None
        assert response.responses[0].partition_responses[0].error_code == expected
        assert replicas.appended == {}

    async def test_a_produce_with_acks_0_gets_no_response_and_an_error_closes_its_connection(
        self, replicas: Replicas
    ) -> None:
        assert await self.produce(replicas, acks=0) is None
        with pytest.raises(CloseConnection, match="nowhere-0 UNKNOWN_TOPIC_OR_PARTITION"):
            await self.produce(replicas, acks=0, topic="nowhere")


@pytest.mark.parametrize(
    ("is_leader", "is_confirmed", "replica", "expected"),
    [
        (True, True, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (True, False, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (False, False, -1, ErrorCode.OFFSET_OUT_OF_RANGE),  # of a follower: its consumer asks the leader
        (True, False, 2, ErrorCode.OFFSET_OUT_OF_RANGE),  # for a follower
    ],
)
async def test_a_leader_that_may_be_replaced_tells_no_consumer_that_an_offset_is_out_of_range(
    replicas: Replicas,
    monkeypatch: pytest.MonkeyPatch,
    is_leader: bool,
    is_confirmed: bool,
    replica: int,
    expected: ErrorCode,
) -> None:
    async def confirm(topic_partition: TopicPartition) -> bool:
        assert topic_partition == ORDERS_0
        return is_confirmed

    monkeypatch.setattr(replicas, "partition", lambda topic_partition: SimpleNamespace(is_leader=is_leader))
    monkeypatch.setattr("klamm.broker.handlers.fetch.current_leader", lambda *facts: None)
    replicas.data = FetchData(ErrorCode.OFFSET_OUT_OF_RANGE)
    message = FetchRequest(replica_id=BrokerId(replica), topics=[FetchTopic("orders", ZERO_ID, [FetchPartition(0)])])

    handler = Fetch(cache(), replicas, 1000, confirm)  # type: ignore[arg-type]
    response = await handler.handle(request(ApiKey.FETCH, 12), message)

    assert response.responses[0].partitions[0].error_code == expected


class TestFetch:
    async def fetch(self, replicas: Replicas, version: int, **fields: Any) -> FetchResponse:
        topic = FetchTopic("orders" if version < 13 else "", ORDERS_ID if version >= 13 else ZERO_ID)
        topic.partitions = [FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1000)]
        fields = {"max_wait_ms": 50, "min_bytes": 10, "max_bytes": 1 << 30, **fields}
        message = FetchRequest(topics=[topic], **fields)
        handler = Fetch(cache(), replicas, 57_671_680, NOT_ASKED)  # type: ignore[arg-type]
        response = await handler.handle(request(ApiKey.FETCH, version), message)
        response.encode(version)
        return response

    @pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
    async def test_every_fetch_version_answers_the_records_and_the_high_watermark(
        self, replicas: Replicas, version: int
    ) -> None:
        response = await self.fetch(replicas, version)

        answer = response.responses[0].partitions[0]
        assert (answer.records, answer.high_watermark, answer.error_code) == (b"r" * 70, 9, ErrorCode.NONE)
        assert replicas.fetched is not None
        params, requested = replicas.fetched
        assert (requested.partitions[0].topic, requested.uses_topic_ids) == ("orders", version >= 13)
        assert params.leader_only == (version < 11)
        assert params.max_bytes == 57_671_680

    @pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
    async def test_every_fetch_version_answers_not_leader_and_newer_versions_name_the_current_leader(
        self, replicas: Replicas, version: int
    ) -> None:
        replicas.data = FetchData(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        response = await self.fetch(replicas, version)

        assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (response.responses[0].partitions[0].current_leader.leader_id == 1) == (version >= 12)
        assert [e.node_id for e in response.node_endpoints] == ([1] if version >= 16 else [])

    @pytest.mark.parametrize(
        ("is_rack_aware", "rack", "near"),
        [(True, "b", {2}), (True, "c", set()), (True, "", set()), (False, "b", set())],
    )
    async def test_a_fetch_with_a_rack_may_be_sent_to_reachable_brokers_of_the_rack_if_there_is_a_replica_selector(
        self, replicas: Replicas, is_rack_aware: bool, rack: str, near: set[int]
    ) -> None:
        brokers = [broker(1, rack="a"), broker(2, rack="b"), broker(3, "OTHER", rack="b")]
        known = cache(update({"orders": [partition(0, 1)]}, brokers))
        handler = Fetch(known, replicas, 1000, NOT_ASKED, is_rack_aware=is_rack_aware)  # type: ignore[arg-type]
        replicas.data = FetchData(preferred_replica=BrokerId(2))
        asked = FetchTopic("orders", partitions=[FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=10)])

        response = await handler.handle(request(ApiKey.FETCH, 11), FetchRequest(topics=[asked], rack_id=rack))

        assert response.responses[0].partitions[0].preferred_read_replica == 2
        assert replicas.fetched is not None
        assert set(replicas.fetched[0].near_brokers) == near

    @pytest.mark.parametrize(
        ("version", "expected"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
    )
    async def test_fetch_before_version_6_gets_not_leader_instead_of_kafka_storage_error(
        self, replicas: Replicas, version: int, expected: ErrorCode
    ) -> None:
        replicas.data = FetchData(ErrorCode.KAFKA_STORAGE_ERROR)

        assert (await self.fetch(replicas, version)).responses[0].partitions[0].error_code == expected

    async def test_a_fetch_response_carries_the_diverging_epoch_and_its_end_offset(self, replicas: Replicas) -> None:
        replicas.data = FetchData(diverging=EpochEnd(2, 40))

        response = await self.fetch(replicas, 12)

        answer = response.responses[0].partitions[0].diverging_epoch
        assert (answer.epoch, answer.end_offset) == (2, 40)

    @pytest.mark.parametrize(
        ("version", "fields"), [(14, {"replica_id": 3}), (15, {"replica_state": ReplicaState(3, 8)})]
    )
    async def test_the_replica_id_of_a_followers_fetch_is_read_in_old_and_new_versions(
        self, replicas: Replicas, version: int, fields: Any
    ) -> None:
        await self.fetch(replicas, version, **fields)

        assert replicas.fetched is not None
        assert replicas.fetched[0].replica_id == replicas.fetched[1].replica_id == 3
        assert replicas.fetched[0].broker_epoch == (8 if version == 15 else -1)
        assert replicas.fetched[0].max_bytes == 57_671_680  # fetch.max.bytes bounds whoever claims to be one, too

    async def test_forgotten_partitions_of_a_fetch_session_are_identified_by_topic_id(self, replicas: Replicas) -> None:
        unknown = uuid.UUID(int=1)
        forgotten = [
            ForgottenTopic(topic_id=ORDERS_ID, partitions=(1, 2)),
            ForgottenTopic(topic_id=unknown, partitions=(0,)),
        ]

        await self.fetch(replicas, 13, session_id=5, session_epoch=2, forgotten_topics_data=forgotten)

        assert replicas.fetched is not None
        requested = replicas.fetched[1]
        assert (requested.session_id, requested.session_epoch) == (5, 2)
        assert requested.forgotten == [("orders", ORDERS_ID, 1), ("orders", ORDERS_ID, 2), (None, unknown, 0)]

    async def test_a_fetch_with_isolation_level_1_returns_only_committed_records(self, replicas: Replicas) -> None:
        await self.fetch(replicas, 11, isolation_level=1)

        assert replicas.fetched is not None
        assert replicas.fetched[0].isolation is Isolation.READ_COMMITTED


class TestListOffsets:
    def ask(self, replicas: Replicas, version: int, timestamp: int = -1, times: int = 1) -> ListOffsetsResponse:
        asked = [ListOffsetsPartition(0, timestamp=timestamp) for _ in range(times)]
        message = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("orders", asked)])
        handler = ListOffsets(cache(), replicas)  # type: ignore[arg-type]
        response = asyncio.run(handler.handle(request(ApiKey.LIST_OFFSETS, version), message))
        response.encode(version)
        return response

    def test_list_offsets_version_0_returns_several_offsets_per_partition(self, replicas: Replicas) -> None:
        answer = self.ask(replicas, 0, -1).topics[0].partitions[0]

        assert (answer.error_code, answer.old_style_offsets) == (ErrorCode.NONE, (9, 5, 0))
        assert replicas.looked_up == {"old": (ORDERS_0, -1, 1, -1)}

    async def test_list_offsets_version_0_is_answered_in_time_slices(self, replicas: Replicas) -> None:
        checkpoints: list[None] = []
        slices = ObservedSlices(lambda: checkpoints.append(None))
        asked = [ListOffsetsPartition(0, timestamp=-1, max_num_offsets=1)] * 300
        handler = ListOffsets(cache(), replicas)  # type: ignore[arg-type]
        await handler.handle(
            request(ApiKey.LIST_OFFSETS, 0)._replace(slices=slices),
            ListOffsetsRequest(-1, 0, [ListOffsetsTopic("orders", asked)]),
        )

        assert len(checkpoints) == len(asked)

    @pytest.mark.parametrize("version", range(1, LIST_OFFSETS.max_version + 1))
    def test_every_list_offsets_version_answers_timestamp_and_offset(self, replicas: Replicas, version: int) -> None:
        answer = self.ask(replicas, version).topics[0].partitions[0]

        assert (answer.error_code, answer.timestamp, answer.offset) == (ErrorCode.NONE, 5, 6)
        assert answer.leader_epoch == (4 if version >= 4 else -1)

    @pytest.mark.parametrize(("version", "timestamp"), [(0, -3), (6, -3), (7, -4), (8, -5), (9, -6)])
    def test_list_offsets_refuses_special_timestamps_that_only_later_versions_support(
        self, replicas: Replicas, version: int, timestamp: int
    ) -> None:
        answer = self.ask(replicas, version, timestamp).topics[0].partitions[0]

        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert replicas.looked_up == {}

    @pytest.mark.parametrize(
        ("version", "expected"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
    )
    def test_list_offsets_before_version_5_gets_leader_not_available_instead_of_offset_not_available(
        self, replicas: Replicas, version: int, expected: ErrorCode
    ) -> None:
        replicas.found = FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)

        assert self.ask(replicas, version).topics[0].partitions[0].error_code == expected

    def test_a_partition_named_twice_in_list_offsets_gets_invalid_request(self, replicas: Replicas) -> None:
        answers = self.ask(replicas, 9, times=2).topics[0].partitions

        assert [a.error_code for a in answers] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("version", range(OFFSET_FOR_LEADER_EPOCH.min_version, OFFSET_FOR_LEADER_EPOCH.max_version + 1))
def test_every_offset_for_leader_epoch_version_answers_the_epochs_end_offset(replicas: Replicas, version: int) -> None:
    asked = OffsetForLeaderTopic("orders", [OffsetForLeaderPartition(partition=0, leader_epoch=3)])

    response = LeaderEpochs(replicas).handle(  # type: ignore[arg-type]
        request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version), OffsetForLeaderEpochRequest(topics=[asked])
    )

    response.encode(version)
    answer = response.topics[0].partitions[0]
    assert (answer.partition, answer.leader_epoch, answer.end_offset) == (0, 3, 12)
