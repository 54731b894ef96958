"""The follower's side of a fetch session: partitions that the next request names. Source: FetchSessionHandler.java.

While the session lives, a request names only partitions that changed, so its cost grows with the changes. It grows by
some partitions with each request: see decision 0028.
"""

import uuid
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from klamm.wire.messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, ReplicaState

NEWEST_VERSION: Final = 17
NEWEST_VERSION_BY_NAME: Final = 12
NOT_GIVEN: Final = BrokerId(-1)
MIN_ADDED: Final = 250
ADDED_SHARE: Final = 16
"""A request adds at least `MIN_ADDED` partitions to the session, or this part of those that wait to be added. While it
is answered, acks=all waits on the partitions that the leader already takes as in sync."""
MAX_OLD_NAMES: Final = 100
"""The names are collected again once there are so many more of them than twice the number of partitions."""
MIN_FOLLOWED: Final = 25
"""A request that adds so many partitions is answered at once: more of the same LeaderAndIsr mostly follow."""


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
        self._is_granted = True
        """Whether the leader has a session for this follower, or was not asked yet."""
        self._sent: dict[TopicPartition, FetchPosition] = {}
        self._changed: dict[TopicPartition, FetchPosition] = {}
        """New positions of partitions in the session."""
        self._added: dict[TopicPartition, FetchPosition] = {}
        """Positions of partitions that the session does not contain yet, in the order in which they are added."""
        self._forgotten: dict[TopicPartition, uuid.UUID] = {}
        """What the leader's session contains by these topic ids, and is not fetched, or by another id."""
        self._without_id: set[TopicPartition] = set()
        self._names: dict[uuid.UUID, str] = {}

    def __len__(self) -> int:
        """The number of partitions in the session and of those still to be added."""
        return len(self._sent) + len(self._added)

    def last_sent(self, topic_partition: TopicPartition) -> FetchPosition | None:
        """The position last sent for a partition; None where the session does not contain it."""
        return self._sent.get(topic_partition)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic in the session, by its id."""
        return self._names.get(topic_id)

    def set_position(self, topic_partition: TopicPartition, position: FetchPosition) -> None:
        """Fetch the partition from this position in the next request, or once it is its turn to be added."""
        (self._changed if topic_partition in self._sent else self._added)[topic_partition] = position
        if position.topic_id == ZERO_ID:
            self._without_id.add(topic_partition)
        else:
            self._without_id.discard(topic_partition)
            self._names[position.topic_id] = topic_partition.topic

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove the partition from the session; its data in a response under way is ignored."""
        self._changed.pop(topic_partition, None)
        self._added.pop(topic_partition, None)
        self._without_id.discard(topic_partition)
        sent = self._sent.pop(topic_partition, None)
        if sent is not None:
            self._forgotten[topic_partition] = sent.topic_id
        if len(self._names) > MAX_OLD_NAMES + 2 * len(self):
            self._names = {
                position.topic_id: tp.topic
                for tp, position in chain(self._sent.items(), self._changed.items(), self._added.items())
                if position.topic_id != ZERO_ID
            }

    def build(self, settings: FetchSettings, broker_epoch: int, max_wait_ms: int | None = None) -> BuiltRequest:
        """The next request, by topic names where any partition has no topic id, else by topic ids.

        A request that adds many partitions is answered at once, so that the next one can add others.
        """
        by_id = not self._without_id
        if by_id != self._by_id:
            self._by_id = by_id
            self._epoch = INITIAL_EPOCH
        is_full = self._epoch == INITIAL_EPOCH
        if is_full:
            self._added = {**self._sent, **self._changed, **self._added}
            self._sent, self._changed = {}, {}
        added = self._take_added()
        if self._is_granted and len(added) >= MIN_FOLLOWED:
            max_wait_ms = 0
        for tp, position in self._changed.items():
            if (sent := self._sent[tp]).topic_id != position.topic_id:
                self._forgotten[tp] = sent.topic_id
        named = {**self._changed, **added}
        self._sent.update(named)
        request = FetchRequest(
            replica_id=NOT_GIVEN if by_id else settings.replica_id,
            replica_state=ReplicaState(settings.replica_id, broker_epoch) if by_id else ReplicaState(),
            max_wait_ms=settings.max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_group_by_topic(named.items(), settings.partition_max_bytes),
            forgotten_topics_data=[] if is_full else _group_forgotten(self._no_longer_fetched(by_id, named)),
        )
        self._changed = {}
        self._forgotten = {}
        return BuiltRequest(request, NEWEST_VERSION if by_id else NEWEST_VERSION_BY_NAME)

    def _take_added(self) -> dict[TopicPartition, FetchPosition]:
        """The partitions that the next request adds; all where the leader keeps no session for this follower."""
        waiting = len(self._added)
        count = max(MIN_ADDED, waiting // ADDED_SHARE) if self._is_granted else waiting
        return {tp: self._added.pop(tp) for tp in list(islice(self._added, count))}

    def _no_longer_fetched(
        self, by_id: bool, named: Mapping[TopicPartition, FetchPosition]
    ) -> dict[TopicPartition, uuid.UUID]:
        """What the leader is to remove from its session: not what the request names again by the same id or name.

        The leader removes it after it has added what the request names.
        """
        return {
            tp: topic_id
            for tp, topic_id in self._forgotten.items()
            if (position := named.get(tp)) is None or (by_id and position.topic_id != topic_id)
        }

    def on_response(self, response: FetchResponse) -> bool:
        """Advance or restart the session; False where the response reports a session error and has no data."""
        error = response.error_code
        if not error:
            self._is_granted = response.session_id != NO_SESSION
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
