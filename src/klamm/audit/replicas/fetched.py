"""A replica as its broker returns it: Fetch of a consumer, which followers answer too since Kafka 2.4 (KIP-392)."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from klamm.audit.replicas.brokers import ReplicaBrokers
from klamm.audit.replicas.replica_log import Bounds, BrokenReplica, Piece, RangeMoved, ReplicaUnavailable
from klamm.client.errors import (
    ConnectionLost,
    ConnectionRefused,
    RequestRefused,
    RetriableError,
    Unreachable,
    UnsupportedVersion,
    code_name,
    retriable_or_raise,
)
from klamm.client.read_committed import Aborted
from klamm.client.records import FetchLimits, FetchPosition, fetch_request, partition_data_of
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.messages import FetchResponsePartitionData
from klamm.wire.vectors.any_format import is_old_message
from klamm.wire.vectors.batches import CorruptBatch, read_run

FETCH_BYTES: Final = 8 << 20
MAX_REFUSED_S: Final = 5.0
"""For a registered broker that refuses connections: it starts, or its session ends soon."""
_WAIT_MS: Final = 500
_FIRST_FROM_FOLLOWERS: Final = 11


class FetchedReplicaLog:
    def __init__(
        self,
        brokers: ReplicaBrokers,
        broker_id: BrokerId,
        partition: TopicPartition,
        topic_id: UUID | None,
        *,
        is_compacted: bool,
    ) -> None:
        self._is_compacted = is_compacted
        self._brokers = brokers
        self._broker_id = broker_id
        self._partition = partition
        self._topic_id = topic_id

    @property
    def name(self) -> str:
        """The id of the broker that has this replica, as text."""
        return f"broker {self._broker_id}"

    def is_compacted(self) -> bool:
        """Whether the topic's cleanup.policy has compact."""
        return self._is_compacted

    def bounds(self) -> Bounds:
        """Look at the replica now; its log start is that of the leader. Raises ReplicaUnavailable, RangeMoved."""
        self._brokers.address(self._broker_id)  # where it is gone, its partitions need not wait for leaders
        start = self._brokers.log_start(self._partition)
        try:
            answer = self._fetch(start, 1, committed=False, wait_ms=0)  # only the offsets count, not the records
        except BrokenReplica:
            return Bounds(start, start, start, start)
        start, stable = max(start, answer.log_start_offset), answer.last_stable_offset
        return Bounds(start, answer.high_watermark, stable, stable)

    def read(self, start: int, end: int, *, committed: bool) -> Iterator[Piece]:
        """The batches from the one with `start` on, before `end`.

        Raises BrokenReplica, ReplicaUnavailable, RangeMoved.
        """
        offset = start
        while offset < end:
            answer = self._fetch(offset, FETCH_BYTES, committed=committed)
            records = memoryview(answer.records or b"")
            try:
                run = read_run(records, end)
            except CorruptBatch as error:
                self._check_format(records, error.position or 0)
                raise BrokenReplica(offset, f"a batch at or after offset {offset} cannot be read: {error}") from error
            if not run.positions:
                if records:
                    self._check_format(records, 0)
                    return  # the next batch is behind the end
                raise BrokenReplica(
                    offset,
                    f"there are no records from offset {offset} on, though the high watermark was at least {end} and "
                    f"is {answer.high_watermark} now",
                )
            offset = run.next_offset
            aborted = [Aborted(a.first_offset, a.producer_id) for a in answer.aborted_transactions or ()]
            yield Piece(run, aborted if committed else None)

    def _check_format(self, records: memoryview, position: int) -> None:
        """Raise ReplicaUnavailable where the message at this position has an old format."""
        if is_old_message(records, position):
            raise ReplicaUnavailable(
                f"the message at offset {int.from_bytes(records[position : position + 8])} has format 0 or 1: only "
                "batches of format 2 are compared"
            )

    def _fetch(
        self, offset: int, max_bytes: int, *, committed: bool, wait_ms: int = _WAIT_MS
    ) -> FetchResponsePartitionData:
        """Fetch from this replica's broker. Raises BrokenReplica, ReplicaUnavailable, RangeMoved."""
        limits = FetchLimits(max_bytes, wait_ms, read_committed=committed)
        request = fetch_request(self._partition, self._topic_id, FetchPosition(offset), limits)
        request = request._replace(oldest=_FIRST_FROM_FOLLOWERS)
        backoff = self._brokers.backoff(self._broker_id)
        refusals = self._brokers.backoff(self._broker_id, MAX_REFUSED_S)
        while True:
            address = self._brokers.address(self._broker_id)
            try:
                response = self._brokers.client.at(address).ask(request)
                answer = partition_data_of(response, self._partition, self._topic_id)
                if not answer.error_code:
                    return answer
                self._raise_final(answer.error_code, offset)
                cause: Exception = RetriableError(retriable_or_raise(self._partition, answer.error_code))
            except ConnectionLost as error:
                self._brokers.on_connection_lost(address)
                cause = error
            except RetriableError as error:
                cause = error
            except (RequestRefused, UnsupportedVersion) as error:
                raise ReplicaUnavailable(str(error)) from error
            waits = refusals if isinstance(cause, ConnectionRefused) else backoff
            try:
                self._brokers.client.world.sleep(waits.next_wait_s("Fetch", cause))
            except Unreachable as error:
                raise self._brokers.give_up(self._broker_id, error, cause) from error

    def _raise_final(self, code: int, offset: int) -> None:
        """Raise for codes that say something about the log: CORRUPT_MESSAGE and OFFSET_OUT_OF_RANGE."""
        if code == ErrorCode.CORRUPT_MESSAGE:
            raise BrokenReplica(offset, f"the broker answers {code_name(code)} to a fetch from offset {offset}")
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise RangeMoved(f"{self._partition}: offset {offset} is out of range on broker {self._broker_id}")
