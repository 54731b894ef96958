"""Reading one offset range: fetch, follow the leader when it moves, and never pass over what is lost in silence.

The next fetch is under way while the batches of the last one are decoded.
"""

import warnings
from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode
from klamm.model.topic_ids import ZERO_ID
from klamm.spark.batches import CorruptBatch, Run, read_run
from klamm.spark.cluster import ClusterView, Setback, passing_or_raise
from klamm.spark.connection import LARGEST_ANSWER_BYTES, BrokerConnection, BrokerLost
from klamm.spark.errors import RangeLost, TopicGone
from klamm.spark.offsets import EARLIEST, LATEST
from klamm.spark.ranges import OffsetRange
from klamm.spark.transactions import Aborted
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponsePartitionData,
    FetchTopic,
)

NEWEST_FETCH_BY_NAME: Final = 12


class Fetched(NamedTuple):
    run: Run
    aborted: list[Aborted] | None
    """None where the reader takes uncommitted records too."""


class RangeReader:
    """Goes from the range's start to its end; each batch that reaches into the range is given out once."""

    def __init__(self, cluster: ClusterView, wanted: OffsetRange) -> None:
        self._cluster = cluster
        self._options = cluster.options
        self._partition = wanted.topic_partition
        self._position = wanted.start
        self._end = wanted.end
        self._topic_id = wanted.topic_id
        if wanted.topic_id is not None:
            cluster.topic_ids[wanted.topic_partition.topic] = wanted.topic_id
        self._warned = False
        self._under_way: BrokerConnection | None = None
        self._max_bytes = cluster.options.fetch_bytes

    def __iter__(self) -> Iterator[Fetched]:
        patience = self._cluster.patience(self._options.patience_s)
        while self._position < self._end:
            try:
                fetched = self._fetch()
            except TopicGone as gone:
                self._lose(self._end, gone.reason)
                continue
            except (BrokerLost, Setback) as error:
                self._cluster.forget_leader(self._partition)
                patience.wait(f"{self._partition}: reading offset {self._position}", error)
                continue
            patience.restart()
            if fetched is not None:
                yield fetched

    def _fetch(self) -> Fetched | None:
        """None where the range got shorter instead. Raises BrokerLost, Setback, TopicGone."""
        answer = self._answer()
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range()
            return None
        if answer.error_code:
            raise Setback(passing_or_raise(self._partition, answer.error_code))
        run = self._whole_batches(answer)
        if run.next_offset <= self._position:
            raise CorruptBatch(
                f"{self._partition}: asked for offset {self._position}, got {run.next_offset - 1} and before"
            )
        self._position = run.next_offset
        self._send_ahead()
        if not self._options.read_committed:
            return Fetched(run, None)
        return Fetched(run, [Aborted(a.first_offset, a.producer_id) for a in answer.aborted_transactions or ()])

    def _whole_batches(self, answer: FetchResponsePartitionData) -> Run:
        records = answer.records or b""
        try:
            run = read_run(records)
        except CorruptBatch as error:
            raise CorruptBatch(f"{self._partition}, fetched from offset {self._position}: {error}") from error
        if run.positions:
            return run
        if records:  # not even one whole batch: brokers before KIP-74 cut it at the limit
            self._max_bytes = min(2 * self._max_bytes, LARGEST_ANSWER_BYTES)
        raise Setback(f"nothing there yet, the high watermark is {answer.high_watermark}")

    # ---- asking

    def _answer(self) -> FetchResponsePartitionData:
        connection = self._under_way or self._send()
        self._under_way = None
        try:
            response = connection.receive()
        except BrokerLost:
            self._cluster.drop(connection.address)
            raise
        if response.error_code:
            raise Setback(passing_or_raise(self._partition, response.error_code))
        found = [p for t in response.responses if self._is_ours(t) for p in t.partitions]
        if len(found) != 1 or found[0].partition_index != self._partition.partition:
            raise Setback(f"{self._partition}: the broker answered for {len(found)} other partitions")
        answer: FetchResponsePartitionData = found[0]
        return answer

    def _is_ours(self, topic: FetchableTopicResponse) -> bool:
        return topic.topic == self._partition.topic or (topic.topic_id != ZERO_ID and topic.topic_id == self._topic_id)

    def _send(self) -> BrokerConnection:
        connection = self._cluster.leader_of(self._partition)
        try:
            if self._topic_id is None:
                connection.send(self._request(), newest=NEWEST_FETCH_BY_NAME)
            else:
                self._warn_where_names_count(connection)
                connection.send(self._request())
        except BrokerLost:
            self._cluster.drop(connection.address)
            raise
        return connection

    def _send_ahead(self) -> None:
        """A failure here must not discard the batches just fetched: the next round meets its cause again."""
        if self._position >= self._end:
            return
        try:
            self._under_way = self._send()
        except (BrokerLost, Setback, TopicGone):
            self._cluster.forget_leader(self._partition)

    def _request(self) -> FetchRequest:
        topic, number = self._partition
        partition = FetchPartition(partition=number, fetch_offset=self._position, partition_max_bytes=self._max_bytes)
        return FetchRequest(
            max_wait_ms=self._options.fetch_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=int(self._options.read_committed),
            topics=[FetchTopic(topic=topic, topic_id=self._topic_id or ZERO_ID, partitions=[partition])],
        )

    def _warn_where_names_count(self, connection: BrokerConnection) -> None:
        newest = connection.version(ApiKey.FETCH)
        if newest > NEWEST_FETCH_BY_NAME or self._warned:
            return
        self._warned = True
        host, port = connection.address
        warnings.warn(
            f"{self._partition}: broker {host}:{port} offers FETCH only up to version {newest}, which names "
            "topics without their id; a topic that is deleted and created again during this read is not noticed",
            stacklevel=2,
        )

    # ---- what is not there

    def _on_out_of_range(self) -> None:
        earliest = self._offset(EARLIEST)
        latest = self._offset(LATEST)
        if self._position < earliest:
            why = f"the log now begins at offset {earliest}; they were deleted, by retention or by a request"
            self._lose(min(earliest, self._end), why)
        elif self._position > latest:
            self._lose(self._end, f"the log now ends at offset {latest}; it was cut, or the topic was made anew")
        else:
            raise Setback(
                f"{self._partition}: offset {self._position} is out of range, yet {earliest} to {latest} are there"
            )

    def _offset(self, which: int) -> int:
        return self._cluster.offsets({self._partition: which})[self._partition]

    def _lose(self, behind: int, reason: str) -> None:
        loss = RangeLost(self._partition, self._position, behind, reason)
        if self._options.fail_on_data_loss:
            raise loss
        warnings.warn(f"passed over, as failOnDataLoss is false: {loss}", stacklevel=2)
        self._position = behind
