"""Reading one offset range: fetch, follow the leader when it changes, and report lost records.

The next fetch is in flight while the batches of the last one are decoded. A leader that was elected after the range was
planned has to show that its log has the whole range (KIP-320): records that it wrote in the place of planned ones are
not part of it.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.client.blocking import MAX_RESPONSE_BYTES, BlockingConnection
from klamm.client.cluster import TopicGone
from klamm.client.errors import ConnectionLost, RetriableError, retriable_or_raise
from klamm.client.leaders import NO_EPOCH, OffsetAndEpoch
from klamm.client.offsets import EARLIEST, LATEST
from klamm.client.read_committed import Aborted
from klamm.client.records import NEWEST_BY_NAME, FetchLimits, FetchPosition, fetch_request, partition_data_of
from klamm.client.truncations import Truncation, truncation_of
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode, KlammError
from klamm.spark.errors import LEADER, READ_AGAIN, LostRange, Origin, pass_over
from klamm.spark.ranges import OffsetRange
from klamm.spark.read_client import ReadClient
from klamm.spark.sizes import GUESSED_BYTES
from klamm.wire.messages import FetchResponsePartitionData
from klamm.wire.vectors.any_format import read_run_of_any_format
from klamm.wire.vectors.batches import CorruptBatch, Run

_LOG: Final = logging.getLogger("klamm.spark")
MIN_FETCH_BYTES: Final = 64 * 1024


class Fetched(NamedTuple):
    start: int
    """The offset from which was read; the first batch may begin before it, with records that are deleted or read."""
    end: int
    """The offset before which the range ends now; the last batch may reach beyond it."""
    run: Run
    aborted: list[Aborted] | None
    """None where the reader takes uncommitted records too."""
    origin: Origin = LEADER


class _Truncated(KlammError):
    """The leader's log does not have the whole range any more."""

    def __init__(self, truncation: Truncation) -> None:
        super().__init__(truncation.reason)
        self.truncation = truncation


class RangeReader:
    """Goes from the range's start to its end; each batch that reaches into the range is given out once.

    Where records are lost it raises DataLoss or, as the option onDataLoss says, gives out what is lost and continues.
    """

    def __init__(self, brokers: ReadClient, offset_range: OffsetRange) -> None:
        self._brokers = brokers
        self._options = brokers.options
        self._partition = offset_range.topic_partition
        self._position = offset_range.start
        self._end = offset_range.end
        self._topic_id = offset_range.topic_id
        self._planned_epoch = offset_range.leader_epoch
        self._valid_epoch = offset_range.leader_epoch
        """The epoch of the leader whose log is known to have the range."""
        self._asked_epoch = self._last_epoch = NO_EPOCH
        """Of the leader that was asked last, and of the last batch that was fetched."""
        self._in_flight: BlockingConnection | None = None
        self._min_bytes = min(MIN_FETCH_BYTES, brokers.options.fetch_bytes)
        self._bytes_per_offset = GUESSED_BYTES
        self._checked_by_name = False
        if self._topic_id is not None:
            brokers.cluster.topic_ids[self._partition.topic] = self._topic_id
        else:
            brokers.cluster.topic_ids.pop(self._partition.topic, None)
        brokers.cluster.see_epoch(self._partition, self._planned_epoch)

    def __iter__(self) -> Iterator[Fetched | LostRange]:
        backoff = self._brokers.backoff(self._options.progress_timeout_s)
        while self._position < self._end:
            try:
                fetched = self._fetch_batches()
            except TopicGone as gone:
                yield self._pass_over(self._end, gone.reason)
                continue
            except _Truncated as truncated:
                yield self._cut(truncated.truncation)
                continue
            except (ConnectionLost, RetriableError) as error:
                self._brokers.cluster.forget_leader(self._partition, self._asked_epoch)
                wait_s = backoff.next_wait_s(f"{self._partition}: reading offset {self._position}", error)
                self._brokers.client.world.sleep(wait_s)
                continue
            backoff.restart()
            yield fetched

    def _fetch_batches(self) -> Fetched | LostRange:
        """Fetch the next batches; returns the lost range instead where records were lost.

        Raises ConnectionLost, RetriableError, TopicGone, _Truncated.
        """
        answer = self._receive_answer()
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._on_out_of_range()
        if answer.error_code:
            raise RetriableError(retriable_or_raise(self._partition, answer.error_code))
        if answer.diverging_epoch.end_offset >= 0:
            self._on_divergence(OffsetAndEpoch(answer.diverging_epoch.end_offset, answer.diverging_epoch.epoch))
        run = self._complete_batches(answer)
        if run.next_offset <= self._position:
            raise CorruptBatch(
                f"{self._partition}: the answer to a fetch from offset {self._position} ends before it, at "
                f"offset {run.next_offset - 1}. {READ_AGAIN}"
            )
        self._bytes_per_offset = len(run.buffer) / (run.next_offset - self._position)
        start, self._position = self._position, run.next_offset
        self._last_epoch = int(run.headers[-1]["leader_epoch"])
        self._send_ahead()
        if not self._options.read_committed:
            return Fetched(start, self._end, run, None)
        aborted = [Aborted(a.first_offset, a.producer_id) for a in answer.aborted_transactions or ()]
        return Fetched(start, self._end, run, aborted)

    def _complete_batches(self, answer: FetchResponsePartitionData) -> Run:
        """The complete batches of a fetch response; messages of old formats are converted."""
        records = answer.records or b""
        try:
            run = read_run_of_any_format(records)
        except CorruptBatch as error:
            raise CorruptBatch(
                f"{self._partition}: the answer to a fetch from offset {self._position} cannot be decoded: "
                f"{error}. {READ_AGAIN}"
            ) from error
        if run.positions:
            return run
        if records:  # not even one whole batch: brokers before KIP-74 cut it at the limit
            self._min_bytes = min(2 * self._fetch_bytes, MAX_RESPONSE_BYTES)
        raise RetriableError(
            f"{self._partition} has no records at offset {self._position} yet, its high watermark is "
            f"{answer.high_watermark}"
        )

    # ---- requests

    @property
    def _fetch_bytes(self) -> int:
        """The limit of the next fetch in bytes.

        It is twice what the rest of the range needs by the size of its records so far.
        """
        needed = int(2 * (self._end - self._position) * self._bytes_per_offset)
        return max(self._min_bytes, min(needed, self._options.fetch_bytes))

    def _receive_answer(self) -> FetchResponsePartitionData:
        """Receive the answer to the request in flight, or to one sent now."""
        connection = self._in_flight or self._send_request()
        self._in_flight = None
        try:
            response = connection.receive()
        except ConnectionLost:
            self._brokers.client.drop(connection.address)
            raise
        answer = partition_data_of(response, self._partition, self._topic_id)
        if answer.error_code:
            self._brokers.cluster.learn_leader(self._partition, answer, response)
        return answer

    def _send_request(self) -> BlockingConnection:
        """Send the next fetch to the leader; returns the connection on which the answer comes."""
        client = self._brokers.client
        address = client.run(self._brokers.cluster.leader(self._partition))
        self._asked_epoch = self._brokers.cluster.leader_epoch(self._partition)
        self._validate(self._asked_epoch)
        request = self._build_request()
        try:
            connection = client.at(address)
            self._check_topic_id_once(connection, request)
            connection.send(request)
        except ConnectionLost:
            client.drop(address)
            raise
        return connection

    def _send_ahead(self) -> None:
        """Send the next fetch before the last one is decoded; an error here occurs again at the next fetch."""
        if self._position >= self._end:
            return
        try:
            self._in_flight = self._send_request()
        except (ConnectionLost, RetriableError, TopicGone, _Truncated):
            self._brokers.cluster.forget_leader(self._partition, self._asked_epoch)

    def _build_request(self) -> Request:
        """Return a Fetch request from the current position of the partition."""
        limits = FetchLimits(
            self._fetch_bytes,
            self._options.fetch_wait_ms,
            self._options.fetch_min_bytes,
            self._options.read_committed,
        )
        position = FetchPosition(self._position, self._asked_epoch, self._last_epoch)
        return fetch_request(self._partition, self._topic_id, position, limits)

    def _check_topic_id_once(self, connection: BlockingConnection, request: Request) -> None:
        """Compare the topic's id with the metadata, once, if the fetch version has no topic ids.

        Raises as `leader` does.
        """
        if self._topic_id is None or self._checked_by_name:
            return
        version = connection.version(request)
        if version <= NEWEST_BY_NAME:
            self._checked_by_name = True
            self._brokers.cluster.forget_leader(self._partition)
            self._brokers.client.run(self._brokers.cluster.leader(self._partition))
            _LOG.warning(
                "%s: broker %s offers Fetch only up to version %d, which has no topic ids: this read cannot notice "
                "that the topic is deleted and created again. Do not recreate it now, or upgrade the broker.",
                self._partition, connection.address, version,
            )  # fmt: skip

    # ---- what is not there

    def _validate(self, epoch: int) -> None:
        """Let the leader of a new epoch show that its log has the whole range.

        Raises _Truncated where it does not, ConnectionLost, RetriableError, TopicGone.
        """
        if NO_EPOCH in (epoch, self._planned_epoch) or epoch == self._valid_epoch:
            return
        truncated = self._brokers.truncations({self._partition: OffsetAndEpoch(self._end, self._planned_epoch)})
        if truncated:
            raise _Truncated(truncated[self._partition])
        if self._brokers.cluster.leader_epoch(self._partition) != epoch:
            raise RetriableError(f"{self._partition}: the leader of epoch {epoch} has a successor")
        self._valid_epoch = epoch

    def _on_divergence(self, end: OffsetAndEpoch) -> None:
        """Raise _Truncated after a fetch that the leader answered with where its log diverges from what was read."""
        at = OffsetAndEpoch(self._position, self._last_epoch)
        truncation = truncation_of(self._partition, at, end, self._asked_epoch)
        raise _Truncated(truncation or Truncation(self._partition, at, self._position, self._asked_epoch))

    def _cut(self, truncation: Truncation) -> LostRange:
        """End the range where the log was truncated, and return the rest of it as lost; what was read may be part.

        Raises DataLoss if the option onDataLoss says so.
        """
        first = self._position if truncation.offset is None else truncation.offset
        lost = LostRange(self._partition, first, self._end, truncation.reason)
        pass_over(lost, self._options.on_data_loss)
        self._end = max(self._position, first)
        return lost

    def _on_out_of_range(self) -> LostRange:
        """Skip the part of the range before the log start or after the log end, as lost.

        Raises DataLoss if the option says so, RetriableError if nothing is lost.
        """
        self._last_epoch = NO_EPOCH  # a leader refuses an epoch, too, of which its log has no records
        earliest = self._list_offset(EARLIEST)
        latest = self._list_offset(LATEST)
        if self._position < earliest:
            reason = f"retention or a DeleteRecords request deleted them; the log now begins at offset {earliest}"
            return self._pass_over(min(earliest, self._end), reason)
        if self._position > latest:
            return self._pass_over(
                self._end, f"the log now ends at offset {latest}; it was truncated, or the topic was created again"
            )
        raise RetriableError(
            f"{self._partition}: offset {self._position} is out of range; the log has {earliest} to {latest}"
        )

    def _list_offset(self, time: int) -> int:
        """Ask the leader for the partition's offset of this timestamp, or of the special values for start and end."""
        return self._brokers.offsets({self._partition: time})[self._partition]

    def _pass_over(self, end: int, reason: str) -> LostRange:
        """Continue at offset `end` and return the lost range. Raises DataLoss if the option onDataLoss says so."""
        lost = LostRange(self._partition, self._position, end, reason)
        pass_over(lost, self._options.on_data_loss)
        self._position = end
        return lost
