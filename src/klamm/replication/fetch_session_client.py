"""The client's side of a fetch session: what the leader knows, what to tell it. Source: FetchSessionHandler.java.

Cost grows with the partitions that changed: only those are named in a request while the session lives.
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


class Wanted(NamedTuple):
    """What one partition is fetched with."""

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


class Told(NamedTuple):
    """A request to send, and the version to send it in."""

    request: FetchRequest
    version: int


class FetchSessionClient:
    """Knows what the leader's session holds. `changed` and `forget` collect what the next request has to say."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._by_id = True
        self._told: dict[TopicPartition, Wanted] = {}
        self._changed: dict[TopicPartition, Wanted] = {}
        self._forgotten: dict[TopicPartition, uuid.UUID] = {}
        self._without_id: set[TopicPartition] = set()
        self._names: dict[uuid.UUID, str] = {}

    def __len__(self) -> int:
        """The partitions the next request covers."""
        return len(self._told) + sum(tp not in self._told for tp in self._changed)

    def wanted(self, topic_partition: TopicPartition) -> Wanted | None:
        """What the leader was last told about a partition; None where it knows nothing of it."""
        return self._told.get(topic_partition)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return self._names.get(topic_id)

    def want(self, topic_partition: TopicPartition, wanted: Wanted) -> None:
        """Fetch this partition so from the next request on."""
        self._forgotten.pop(topic_partition, None)
        self._changed[topic_partition] = wanted
        if wanted.topic_id == ZERO_ID:
            self._without_id.add(topic_partition)
        else:
            self._without_id.discard(topic_partition)
            self._names[wanted.topic_id] = topic_partition.topic

    def forget(self, topic_partition: TopicPartition) -> None:
        """Do not fetch this partition any more; the answer under way for it is void."""
        self._changed.pop(topic_partition, None)
        self._without_id.discard(topic_partition)
        told = self._told.pop(topic_partition, None)
        if told is not None:
            self._forgotten[topic_partition] = told.topic_id

    def build(self, settings: FetchSettings, broker_epoch: int, max_wait_ms: int | None = None) -> Told:
        """The next request. Ids and names do not mix: one partition without an id turns all to names."""
        by_id = not self._without_id
        if by_id != self._by_id:
            self._by_id = by_id
            self._epoch = INITIAL_EPOCH
        reborn = {
            tp: told.topic_id
            for tp, wanted in self._changed.items()
            if (told := self._told.get(tp)) is not None and told.topic_id != wanted.topic_id
        }
        self._told.update(self._changed)
        is_full = self._epoch == INITIAL_EPOCH
        named = self._told if is_full else self._changed
        request = FetchRequest(
            replica_id=NOT_GIVEN if by_id else settings.replica_id,
            replica_state=ReplicaState(settings.replica_id, broker_epoch) if by_id else ReplicaState(),
            max_wait_ms=settings.max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_topics(named.items(), settings.partition_max_bytes),
            forgotten_topics_data=[] if is_full else _forgotten({**self._forgotten, **reborn}),
        )
        self._changed = {}
        self._forgotten = {}
        return Told(request, NEWEST_VERSION if by_id else NEWEST_VERSION_BY_NAME)

    def take(self, response: FetchResponse) -> bool:
        """Follow the session by the response; False where it says that the session is void, and has no data."""
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

    def lost(self) -> None:
        """No answer came: ask for everything again, and for a new session in place of the old one."""
        self._restart(self._session_id)

    def _restart(self, session_id: int) -> None:
        self._session_id = session_id
        self._epoch = INITIAL_EPOCH


def _topics(wanted: Iterable[tuple[TopicPartition, Wanted]], max_bytes: int) -> list[FetchTopic]:
    topics: dict[tuple[str, uuid.UUID], FetchTopic] = {}
    for (name, number), w in wanted:
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


def _forgotten(gone: dict[TopicPartition, uuid.UUID]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, uuid.UUID], list[int]] = {}
    for (name, partition), topic_id in gone.items():
        topics.setdefault((name, topic_id), []).append(partition)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=tuple(numbers))
        for (name, topic_id), numbers in topics.items()
    ]
