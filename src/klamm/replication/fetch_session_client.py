"""The client's side of a fetch session: what the leader remembers, and what to tell it. Source: FetchSessionHandler.java.

Cost grows with the partitions that changed: only those are named in a request while the session lives.
"""

import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from klamm.wire.messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

NEWEST_VERSION: Final = 17
NEWEST_VERSION_BY_NAME: Final = 12


class Wanted(NamedTuple):
    """What one partition is fetched with."""

    topic_id: uuid.UUID
    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


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

    def build(self, template: FetchRequest) -> Told:
        """Fill in session and partitions. Ids and names do not mix: one partition without id turns all to names."""
        by_id = not self._without_id
        if by_id != self._by_id:
            self._by_id = by_id
            self._epoch = INITIAL_EPOCH
        replaced = {
            tp: told.topic_id
            for tp, wanted in self._changed.items()
            if (told := self._told.get(tp)) is not None and told.topic_id != wanted.topic_id
        }
        self._told.update(self._changed)
        if self._epoch == INITIAL_EPOCH:
            template.topics = _topics(self._told.items())
            template.forgotten_topics_data = []
        else:
            template.topics = _topics(self._changed.items())
            template.forgotten_topics_data = _forgotten({**self._forgotten, **replaced})
        template.session_id = self._session_id
        template.session_epoch = self._epoch
        self._changed.clear()
        self._forgotten.clear()
        return Told(template, NEWEST_VERSION if by_id else NEWEST_VERSION_BY_NAME)

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


def _topics(wanted: Iterable[tuple[TopicPartition, Wanted]]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (name, partition), w in wanted:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=w.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=w.leader_epoch,
                fetch_offset=w.fetch_offset,
                last_fetched_epoch=w.last_fetched_epoch,
                log_start_offset=w.log_start_offset,
            )
        )
    return list(topics.values())


def _forgotten(gone: dict[TopicPartition, uuid.UUID]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, uuid.UUID], list[int]] = {}
    for (name, partition), topic_id in gone.items():
        topics.setdefault((name, topic_id), []).append(partition)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=numbers)
        for (name, topic_id), numbers in topics.items()
    ]
