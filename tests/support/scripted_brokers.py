"""Brokers in memory that answer ApiVersions, Metadata, ListOffsets and Fetch, and misbehave where a test says so."""

import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.blocking import Buffer
from klamm.wire.api import ApiKey, api
from klamm.wire.codec import WireMessage
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import (
    AbortedTransaction,
    ApiVersion,
    ApiVersionsResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    FetchResponsePartitionData,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderTopicResult,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    TopicProduceResponse,
)
from klamm.wire.records.batch import header_at

FIRST_FETCH_BY_ID = 13
OFFERED = {
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (4, 12),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.PRODUCE: (3, 11),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
}


@dataclass
class ScriptedLog:
    """Batches as (first offset, last offset, bytes); `times` maps a record's timestamp to its offset."""

    leader: int
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    aborted: list[AbortedTransaction] = field(default_factory=list)
    times: dict[int, int] = field(default_factory=dict)
    last_stable: int | None = None
    epoch: int = -1
    """The leader epoch; -1 as of a broker that tells none."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """The leader epochs of the records, each with its first offset."""

    def elect(self, leader: int, epoch: int, kept: int, *batches: tuple[int, int, bytes]) -> None:
        """Make this broker the leader in a new epoch, with the records before offset `kept`, and then these batches."""
        self.leader, self.epoch = leader, epoch
        self.batches = [b for b in self.batches if b[1] < kept] + list(batches)
        self.epochs = [(e, first) for e, first in self.epochs if first < kept] + [(epoch, kept)]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """As OffsetForLeaderEpoch: the greatest epoch up to this one, and the offset where its records end."""
        if not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        ends = [*(first for _, first in self.epochs[1:]), self.end]
        known = [(e, end) for (e, _), end in zip(self.epochs, ends, strict=True) if e <= epoch]
        return known[-1] if known else (epoch, self.epochs[0][1])

    @property
    def end(self) -> int:
        """The offset after the last batch."""
        return self.batches[-1][1] + 1 if self.batches else self.start

    @property
    def size(self) -> int:
        """The bytes of all batches."""
        return sum(len(batch) for _, _, batch in self.batches)

    def read(self, offset: int, max_bytes: int) -> bytes:
        content = b""
        for _, last, batch in self.batches:
            if last >= offset and (not content or len(content) + len(batch) <= max_bytes):
                content += batch
        return content

    def offset_for(self, time: int, read_committed: bool) -> int:
        """The offset for a timestamp, or for EARLIEST or LATEST."""
        if time == -2:
            return self.start
        if time == -1:
            return self.last_stable if read_committed and self.last_stable is not None else self.end
        return min((o for t, o in self.times.items() if t >= time), default=-1)


@dataclass
class ScriptedCluster:
    """`on_request` sees each request before its answer: it may change anything, or raise to break the connection."""

    logs: dict[TopicPartition, ScriptedLog] = field(default_factory=dict)
    brokers: dict[int, tuple[str, int]] = field(default_factory=lambda: {1: ("one", 9092), 2: ("two", 9092)})
    internal: set[str] = field(default_factory=set)
    offered: dict[ApiKey, tuple[int, int]] = field(default_factory=lambda: dict(OFFERED))
    errors: dict[TopicPartition, list[ErrorCode]] = field(default_factory=dict)
    on_request: Callable[[int, Any], None] = lambda broker, request: None
    refuses_to_take: bool = False
    requests: Counter[str] = field(default_factory=Counter)
    fetched_from: list[tuple[int, int]] = field(default_factory=list)
    metadata_errors: dict[str, list[ErrorCode]] = field(default_factory=dict)
    has_topic_ids: bool = True
    """False: as Apache Kafka with an inter.broker.protocol.version below 2.8."""
    cluster_id: str | None = "scripted"
    incarnations: Counter[str] = field(default_factory=Counter)
    cut_off: dict[int, "ScriptedCluster"] = field(default_factory=dict)
    """Brokers that are cut off from ZooKeeper, with the cluster as each of them knows it."""
    tells_leaders: bool = False
    """Whether a Fetch response names the leader where the broker is not (KIP-951)."""
    lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False, compare=False)
    """Held while brokers on real sockets answer, and for changes of several parts that must not be seen halfway."""

    def cut_off_broker(self, broker: int) -> "ScriptedCluster":
        """From now on the broker answers by what it knows now; returns what that is."""
        self.cut_off[broker] = replace(self, logs=deepcopy(self.logs), cut_off={})
        return self.cut_off[broker]

    def topic_id(self, name: str) -> uuid.UUID:
        if not self.has_topic_ids:
            return ZERO_ID
        return uuid.uuid5(ZERO_ID, f"{name} {self.incarnations[name]}")

    def delete_topic(self, name: str) -> None:
        self.logs = {p: log for p, log in self.logs.items() if p.topic != name}

    def recreate_topic(self, name: str, log: ScriptedLog) -> None:
        """With one partition, and another topic id."""
        self.delete_topic(name)
        self.incarnations[name] += 1
        self.logs[TopicPartition(name, 0)] = log

    def answer(self, broker: int, frame: bytes) -> list[Buffer]:
        """The response to a request frame."""
        if broker in self.cut_off:
            return self.cut_off[broker].answer(broker, frame)
        header, at = decode_request_header(frame)
        key = ApiKey(header.api_key)
        lowest, highest = self.offered[key]
        if not lowest <= header.api_version <= highest:
            assert key is ApiKey.API_VERSIONS, f"{key.name} v{header.api_version} was not offered"
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            return [*encode_response(key, 0, header.correlation_id, refusal)]
        request = api(key).request.decode(frame, header.api_version, at)
        self.requests[key.name] += 1
        self.on_request(broker, request)
        answers: dict[ApiKey, Callable[[int, Any], WireMessage]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.DESCRIBE_LOG_DIRS: self._describe_log_dirs,
            ApiKey.PRODUCE: self._produce,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._offset_for_leader_epoch,
            ApiKey.FETCH: self._fetch_by_id if header.api_version >= FIRST_FETCH_BY_ID else self._fetch,
        }
        response = answers[key](broker, request)
        if isinstance(request, ProduceRequest) and not request.acks:
            return []
        return [*encode_response(key, header.api_version, header.correlation_id, response)]

    def _api_versions(self, broker: int, request: object) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[ApiVersion(k, low, high) for k, (low, high) in self.offered.items()])

    def _metadata(self, broker: int, request: MetadataRequest) -> MetadataResponse:
        assert not request.allow_auto_topic_creation
        known = sorted({p.topic for p in self.logs})
        names = known if request.topics is None else [t.name or "" for t in request.topics]
        brokers = [MetadataResponseBroker(node_id=b, host=h, port=p) for b, (h, p) in self.brokers.items()]
        topics = [self._topic(name) for name in names]
        return MetadataResponse(brokers=brokers, cluster_id=self.cluster_id, topics=topics)

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(partition_index=p.partition, leader_id=log.leader, leader_epoch=log.epoch)
            for p, log in self.logs.items()
            if p.topic == name
        ]
        code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.metadata_errors.get(name):
            code, partitions = self.metadata_errors[name].pop(0), []
        return MetadataResponseTopic(
            error_code=code,
            name=name,
            topic_id=self.topic_id(name) if partitions else ZERO_ID,
            partitions=partitions,
            is_internal=name in self.internal,
        )

    def _error(self, broker: int, partition: TopicPartition, epoch: int = -1) -> ErrorCode:
        """The error code for a partition at this broker, asked in this leader epoch."""
        if self.errors.get(partition):
            return self.errors[partition].pop(0)
        if partition not in self.logs:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self.logs[partition]
        if -1 not in (epoch, log.epoch) and epoch != log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if log.leader == broker else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _offset_for_leader_epoch(
        self, broker: int, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        assert request.replica_id == -1
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                partition = TopicPartition(topic.topic, asked.partition)
                code = self._error(broker, partition, asked.current_leader_epoch)
                end = (-1, -1) if code else self.logs[partition].end_of_epoch(asked.leader_epoch)
                answers.append(OffsetForLeaderEpochResponseEpochEndOffset(code, partition.partition, *end))
            topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _list_offsets(self, broker: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                partition = TopicPartition(topic.name, asked.partition_index)
                code = self._error(broker, partition, asked.current_leader_epoch)
                answer = ListOffsetsPartitionResponse(partition_index=partition.partition, error_code=code)
                if not code:
                    answer.offset = self.logs[partition].offset_for(asked.timestamp, bool(request.isolation_level))
                    answer.leader_epoch = self.logs[partition].epoch
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(topic.name, answers))
        return ListOffsetsResponse(topics=topics)

    def _describe_log_dirs(self, broker: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        topics = []
        for asked in request.topics or ():
            logs = [(n, self.logs[TopicPartition(asked.topic, n)]) for n in asked.partitions]
            held = [DescribeLogDirsPartition(n, log.size) for n, log in logs if log.leader == broker]
            topics.append(DescribeLogDirsTopic(asked.topic, held))
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", topics=topics)])

    def _produce(self, broker: int, request: ProduceRequest) -> ProduceResponse:
        topics, endpoints = [], []
        for topic in request.topic_data:
            answers = []
            for sent in topic.partition_data:
                partition = TopicPartition(topic.name, sent.index)
                code = self._error(broker, partition)
                if not code:
                    assert sent.records is not None
                    log, content = self.logs[partition], bytes(sent.records)
                    log.batches.append((log.end, log.end + header_at(content).record_count - 1, content))
                answer = PartitionProduceResponse(index=sent.index, error_code=code)
                if code and self.tells_leaders:
                    log = self.logs[partition]
                    answer.current_leader = ProduceResponseLeaderIdAndEpoch(log.leader, log.epoch)
                    endpoints.append(ProduceResponseNodeEndpoint(log.leader, *self.brokers[log.leader]))
                answers.append(answer)
            topics.append(TopicProduceResponse(topic.name, answers))
        return ProduceResponse(responses=topics, node_endpoints=endpoints)

    def _fetch(self, broker: int, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        partition = TopicPartition(topic.topic, asked.partition)
        self.fetched_from.append((broker, asked.fetch_offset))
        answer = FetchResponsePartitionData(
            partition_index=asked.partition, error_code=self._error(broker, partition, asked.current_leader_epoch)
        )
        endpoints = []
        if answer.error_code and self.tells_leaders and partition in self.logs:
            log = self.logs[partition]
            answer.current_leader = FetchResponseLeaderIdAndEpoch(log.leader, log.epoch)
            endpoints = [FetchResponseNodeEndpoint(log.leader, *self.brokers[log.leader])]
        elif not answer.error_code:
            log = self.logs[partition]
            answer.high_watermark = log.end
            if not log.start <= asked.fetch_offset <= log.end:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            elif asked.last_fetched_epoch >= 0 and self._diverges(log, asked, answer):
                answer.records = b""
            else:
                answer.records = log.read(asked.fetch_offset, asked.partition_max_bytes)
                answer.aborted_transactions = log.aborted if request.isolation_level else None
        topics = [FetchableTopicResponse(topic=topic.topic, partitions=[answer])]
        return FetchResponse(responses=topics, node_endpoints=endpoints)

    @staticmethod
    def _diverges(log: ScriptedLog, asked: FetchPartition, answer: FetchResponsePartitionData) -> bool:
        """Whether the log lacks what was fetched last; the answer then says from where on."""
        epoch, end = log.end_of_epoch(asked.last_fetched_epoch)
        if epoch < 0:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
            answer.diverging_epoch = FetchResponseEpochEndOffset(epoch, end)
        return bool(answer.error_code) or answer.diverging_epoch.end_offset >= 0

    def _fetch_by_id(self, broker: int, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        names = {self.topic_id(p.topic): p.topic for p in self.logs}
        if topic.topic_id not in names:
            numbers = [p.partition for p in topic.partitions]
            code = ErrorCode.UNKNOWN_TOPIC_ID
            refused = [FetchResponsePartitionData(partition_index=n, error_code=code) for n in numbers]
            return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=refused)])
        topic.topic = names[topic.topic_id]
        response = self._fetch(broker, request)
        response.responses[0].topic_id = topic.topic_id
        return response


class ScriptedConnection:
    def __init__(self, world: "ScriptedWorld", broker: int) -> None:
        self._world = world
        self._cluster = world.cluster
        self._broker = broker
        self._frames: deque[bytes] = deque()
        self._answers = bytearray()
        self.closed = False
        self.discarded = False

    def send(self, buffers: Sequence[Buffer]) -> None:
        if self._cluster.refuses_to_take:
            raise BrokenPipeError("broken pipe")
        self._frames.append(b"".join(buffers)[4:])

    def receive(self, count: int) -> bytes:
        while count > len(self._answers) and self._frames:
            for part in self._cluster.answer(self._broker, self._frames.popleft()):
                self._answers += part
        if count > len(self._answers):
            raise TimeoutError("timed out")
        taken = bytes(self._answers[:count])
        del self._answers[:count]
        return taken

    def is_quiet(self) -> bool:
        """Whether no response is left to read."""
        return not (self.closed or self._answers or self._frames or self._broker in self._world.down)

    def close(self) -> None:
        self.closed = True

    def discard(self) -> None:
        self.closed = self.discarded = True


@dataclass
class ScriptedWorld:
    """A blocking world whose time passes only in `sleep`."""

    cluster: ScriptedCluster
    now: float = 0.0
    down: set[int] = field(default_factory=set)
    connections: list[ScriptedConnection] = field(default_factory=list)

    def connect(self, host: str, port: int, connect_timeout_s: float, answer_timeout_s: float) -> ScriptedConnection:
        for broker, address in self.cluster.brokers.items():
            if address == (host, port) and broker not in self.down:
                self.connections.append(ScriptedConnection(self, broker))
                return self.connections[-1]
        raise ConnectionRefusedError("connection refused")

    def now_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def processors(self) -> int:
        return 2
