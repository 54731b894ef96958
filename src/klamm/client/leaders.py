"""Which broker leads each partition, and in which leader epoch; a leader of an older epoch is never taken.

Source: Metadata.java (`lastSeenLeaderEpochs`, KIP-320), `updatePartitionLeadership` (KIP-951).
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import MetadataResponsePartition, MetadataResponseTopic

NO_EPOCH: Final = -1
"""The broker tells no leader epoch, or the record has none."""
RELIABLE_EPOCHS: Final = 9
"""From this version on, leader epochs in Metadata responses are right also during a reassignment (Kafka 2.4)."""


class OffsetAndEpoch(NamedTuple):
    """A position in a log, and a leader epoch in which the log had all records before it."""

    offset: int
    leader_epoch: int = NO_EPOCH


def offsets_of(positions: Mapping[TopicPartition, OffsetAndEpoch]) -> dict[TopicPartition, int]:
    """The positions without their leader epochs."""
    return {partition: position.offset for partition, position in positions.items()}


class Leader(NamedTuple):
    broker: BrokerId = NO_BROKER
    epoch: int = NO_EPOCH


class KnownLeaders:
    """The leaders as brokers reported them, and the newest leader epoch seen of each partition."""

    def __init__(self) -> None:
        self._leaders: dict[TopicPartition, Leader] = {}
        self._seen: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, uuid.UUID] = {}
        """The topic ids to which the epochs seen belong."""
        self.refused: dict[TopicPartition, str] = {}
        """Why the last Metadata response with a partition was not believed; no entry where it was."""

    def get(self, partition: TopicPartition) -> Leader:
        """The leader, or NO_BROKER with NO_EPOCH where none is known."""
        return self._leaders.get(partition, Leader())

    def may_be_of(self, topic: str, topic_id: uuid.UUID) -> bool:
        """Whether the leaders are those of the topic with this id, as far as brokers told ids."""
        return self._topic_ids.get(topic, topic_id) == topic_id

    def forget(self, partition: TopicPartition) -> None:
        """Forget the leader; the epoch seen stays."""
        self._leaders.pop(partition, None)

    def forget_brokers(self, brokers: Iterable[BrokerId]) -> None:
        """Forget which partitions these brokers lead."""
        gone = set(brokers)
        self._leaders = {p: leader for p, leader in self._leaders.items() if leader.broker not in gone}

    def forget_topic(self, topic: str) -> None:
        """Forget leaders and epochs of a topic that is deleted."""
        self._topic_ids.pop(topic, None)
        for known in (self._leaders, self._seen, self.refused):
            for partition in [p for p in known if p.topic == topic]:
                del known[partition]

    def update(self, topics: Iterable[MetadataResponseTopic], *, has_epochs: bool) -> bool:
        """Take over the leaders of a Metadata response; return whether all were at least as new as those seen.

        Without `has_epochs` the response cannot be compared, and is accepted. A new topic id resets the epochs.
        """
        is_current = True
        for topic in topics:
            name = topic.name or ""
            if topic.topic_id not in (ZERO_ID, self._topic_ids.get(name, ZERO_ID)):
                self.forget_topic(name)
            if topic.topic_id != ZERO_ID:
                self._topic_ids[name] = topic.topic_id
            for p in topic.partitions:
                epoch = p.leader_epoch if has_epochs else NO_EPOCH
                is_current &= self._take(TopicPartition(name, p.partition_index), p, epoch)
        return is_current

    def _take(self, partition: TopicPartition, reported: MetadataResponsePartition, epoch: int) -> bool:
        """Take over one leader, unless its epoch is older than the one seen."""
        seen = self._seen.get(partition, NO_EPOCH)
        if NO_EPOCH < epoch < seen:
            self.refused[partition] = (
                f"broker {reported.leader_id} is said to lead {partition} in leader epoch {epoch}, but epoch {seen} "
                "was seen before: the broker that said so is behind, as one that is cut off from ZooKeeper. Give the "
                "addresses of others, too; or, of brokers without topic ids, the topic was created again"
            )
            return False
        self.refused.pop(partition, None)
        self._seen[partition] = max(seen, epoch)
        self._leaders[partition] = Leader(BrokerId(reported.leader_id), epoch)
        return True

    def see(self, partition: TopicPartition, epoch: int, topic_id: uuid.UUID | None = None) -> None:
        """Record a leader epoch from a broker or a checkpoint; a known leader with an older epoch is removed.

        `topic_id` is that of the topic it was told of, None where it has none; an epoch of another topic is not taken.
        """
        if topic_id is not None and self._topic_ids.setdefault(partition.topic, topic_id) != topic_id:
            return
        if epoch > self._seen.get(partition, NO_EPOCH):
            self._seen[partition] = epoch
            if NO_EPOCH < self.get(partition).epoch < epoch:
                self.forget(partition)

    def learn(self, partition: TopicPartition, leader: Leader) -> None:
        """Take over the leader that a broker named in its refusal, if it is newer than all that was seen."""
        if leader.broker != NO_BROKER and leader.epoch > self._seen.get(partition, NO_EPOCH):
            self._seen[partition] = leader.epoch
            self._leaders[partition] = leader
