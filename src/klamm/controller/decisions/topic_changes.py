"""Which topics and partitions are new. Source: processTopicChange, processPartitionModifications (3.9)."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.controller.context import Topic
from klamm.model.assignment import ReplicaAssignment
from klamm.zk.znodes import TopicZnode


class TopicChanges(NamedTuple):
    """Names of topics that appeared and disappeared."""

    new: tuple[str, ...]
    deleted: tuple[str, ...]


def diff_topics(known: Mapping[str, Topic], listed: Collection[str]) -> TopicChanges:
    """Compare the known topics with those listed in ZooKeeper; both results are in order of names."""
    present = frozenset(listed)
    return TopicChanges(
        new=tuple(sorted(name for name in present if name not in known)),
        deleted=tuple(sorted(name for name in known if name not in present)),
    )


def added_partitions(topic: Topic, stored: Mapping[int, ReplicaAssignment]) -> dict[int, ReplicaAssignment]:
    """The stored partitions that are not known yet; changed replica lists of known ones are ignored."""
    return {number: assignment for number, assignment in sorted(stored.items()) if number not in topic.partitions}


def is_another_topic(known: Topic, found: TopicZnode) -> bool:
    """Whether the znode belongs to a topic that was recreated under the known topic's name.

    The znode's czxid differs then, or the topic id. A missing id says nothing, since old tools omit it.
    """
    has_another_id = None not in (known.id, found.topic_id) and known.id != found.topic_id
    return known.czxid != found.czxid or has_another_id
