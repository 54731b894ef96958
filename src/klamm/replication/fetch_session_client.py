"""The follower's side of a fetch session: partitions that the next request names. Source: FetchSessionHandler.java.

While the session lives, a request names only partitions that changed, so its cost grows with the changes.
"""

import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from klamm.wire.messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, ReplicaState

NEWEST_VERSION: Final = 17
NEWEST_VERSION_BY_NAME: Final = 12
NOT_GIVEN: Final = BrokerId(-1)


class FetchPosition(NamedTuple):
    """Where a follower fetches one partition from: the fields of its entry in a Fetch request."""

    topic_id: uuid.UUID
    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchSettings(NamedTuple):
    """What every fetch of a follower carries. Sizes in bytes."""

    replica_id: BrokerId
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10_485_760
    partition_max_bytes: int = 1_048_576


class BuiltRequest(NamedTuple):
    """A request to send, and the version to send it in."""

    request: FetchRequest
    version: int


class FetchSessionClient:
    """The follower's copy of a leader's fetch session; collects the changes that the next request carries."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._by_id = True
        self._sent: dict[TopicPartition, FetchPosition] = {}
        self._changed: dict[TopicPartition, FetchPosition] = {}
        self._forgotten: dict[TopicPartition, uuid.UUID] = {}
        """What the leader's session contains by these topic ids, and is not fetched, or by another id."""
        self._without_id: set[TopicPartition] = set()
        self._names: dict[uuid.UUID, str] = {}

    def __len__(self) -> int:
        """The partitions the next request covers."""
        return len(self._sent) + sum(tp not in self._sent for tp in self._changed)

    def last_sent(self, topic_partition: TopicPartition) -> FetchPosition | None:
        """The position last sent for a partition; None where the session does not contain it."""
        return self._sent.get(topic_partition)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic in the session, by its id."""
        return self._names.get(topic_id)

    def set_position(self, topic_partition: TopicPartition, position: FetchPosition) -> None:
        """Fetch the partition from this position in the next request; adds it to the session if needed."""
        self._changed[topic_partition] = position
        if position.topic_id == ZERO_ID:
            self._without_id.add(topic_partition)
        else:
            self._without_id.discard(topic_partition)
            self._names[position.topic_id] = topic_partition.topic

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove the partition from the session; its data in a response under way is ignored."""
        self._changed.pop(topic_partition, None)
        self._without_id.discard(topic_partition)
        sent = self._sent.pop(topic_partition, None)
        if sent is not None:
            self._forgotten[topic_partition] = sent.topic_id

    def build(self, settings: FetchSettings, broker_epoch: int, max_wait_ms: int | None = None) -> BuiltRequest:
        """The next request, by topic names where any partition has no topic id, else by topic ids."""
        by_id = not self._without_id
        if by_id != self._by_id:
            self._by_id = by_id
            self._epoch = INITIAL_EPOCH
        for tp, position in self._changed.items():
            if (sent := self._sent.get(tp)) is not None and sent.topic_id != position.topic_id:
                self._forgotten[tp] = sent.topic_id
        self._sent.update(self._changed)
        is_full = self._epoch == INITIAL_EPOCH
        named = self._sent if is_full else self._changed
        request = FetchRequest(
            replica_id=NOT_GIVEN if by_id else settings.replica_id,
            replica_state=ReplicaState(settings.replica_id, broker_epoch) if by_id else ReplicaState(),
            max_wait_ms=settings.max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_group_by_topic(named.items(), settings.partition_max_bytes),
            forgotten_topics_data=[] if is_full else _group_forgotten(self._no_longer_fetched(by_id)),
        )
        self._changed = {}
        self._forgotten = {}
        return BuiltRequest(request, NEWEST_VERSION if by_id else NEWEST_VERSION_BY_NAME)

    def _no_longer_fetched(self, by_id: bool) -> dict[TopicPartition, uuid.UUID]:
        """What the leader is to remove from its session: not what the request names again by the same id or name.

        The leader removes it after it has added what the request names.
        """
        return {
            tp: topic_id
            for tp, topic_id in self._forgotten.items()
            if (position := self._changed.get(tp)) is None or (by_id and position.topic_id != topic_id)
        }

    def on_response(self, response: FetchResponse) -> bool:
        """Advance or restart the session; False where the response reports a session error and has no data."""
        error = response.error_code
        if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._restart(NO_SESSION)
        elif error:
            self._restart(self._session_id)
        elif response.session_id == NO_SESSION:
            self._restart(NO_SESSION)
        elif self._epoch == INITIAL_EPOCH:
            self._session_id, self._epoch = response.session_id, next_epoch(INITIAL_EPOCH)
        else:
            self._epoch = next_epoch(self._epoch)
        return not error

    def on_request_lost(self) -> None:
        """Make the next request a full fetch that replaces the session, because a request got no response."""
        self._restart(self._session_id)

    def _restart(self, session_id: int) -> None:
        """Make the next request a full fetch; session id 0 creates a new session."""
        self._session_id = session_id
        self._epoch = INITIAL_EPOCH


def _group_by_topic(position: Iterable[tuple[TopicPartition, FetchPosition]], max_bytes: int) -> list[FetchTopic]:
    """The partitions as topics of a Fetch request."""
    topics: dict[tuple[str, uuid.UUID], FetchTopic] = {}
    for (name, number), w in position:
        topic = topics.get((name, w.topic_id))
        if topic is None:
            topic = topics[name, w.topic_id] = FetchTopic(topic=name, topic_id=w.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=w.leader_epoch,
                fetch_offset=w.fetch_offset,
                last_fetched_epoch=w.last_fetched_epoch,
                log_start_offset=w.log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _group_forgotten(topic_ids: dict[TopicPartition, uuid.UUID]) -> list[ForgottenTopic]:
    """The partitions to remove from the session, as topics of a Fetch request."""
    topics: dict[tuple[str, uuid.UUID], list[int]] = {}
    for (name, partition), topic_id in topic_ids.items():
        topics.setdefault((name, topic_id), []).append(partition)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=tuple(numbers))
        for (name, topic_id), numbers in topics.items()
    ]
