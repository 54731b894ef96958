"""Ids of brokers and partitions."""

from functools import lru_cache
from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)

NO_BROKER = BrokerId(-1)
"""What Kafka writes where there is no leader or no controller."""


@lru_cache(maxsize=65_536)
def shared_ids(ids: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """Return an equal tuple that was passed before, if there is one, to save memory.

    All partitions of a cluster have only a few thousand different replica lists.
    """
    return ids


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its log directory: `flights-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@lru_cache(maxsize=65_536)
def shared_partition(topic: str, partition: int) -> TopicPartition:
    """Return the partition, as the object that was returned before if that is remembered, to save memory.

    A thousand groups may keep offsets of the same partitions.
    """
    return TopicPartition(topic, partition)


def parse_topic_partition(text: str) -> TopicPartition:
    """Read `topic-3`; the partition follows the last dash, as in a log directory's name.

    Raises ValueError where there is no dash or what follows it is not a number.
    """
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not TOPIC-PARTITION; write for example orders-0")
    return TopicPartition(topic, int(number))
