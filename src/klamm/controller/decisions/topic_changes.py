"""Which topics and partitions are new. Source: processTopicChange, processPartitionModifications (3.9)."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.controller.context import Topic
from klamm.model.assignment import ReplicaAssignment
from klamm.zk.znodes import TopicZnode


class TopicChanges(NamedTuple):
    new: tuple[str, ...]
    deleted: tuple[str, ...]


def diff_topics(known: Mapping[str, Topic], listed: Collection[str]) -> TopicChanges:
    """Both in order of names."""
    present = frozenset(listed)
    return TopicChanges(
        new=tuple(sorted(name for name in present if name not in known)),
        deleted=tuple(sorted(name for name in known if name not in present)),
    )


def added_partitions(topic: Topic, stored: Mapping[int, ReplicaAssignment]) -> dict[int, ReplicaAssignment]:
    """Changed replica lists of partitions already known are none of this decision's business."""
    return {number: assignment for number, assignment in sorted(stored.items()) if number not in topic.partitions}


def is_another_topic(known: Topic, found: TopicZnode) -> bool:
    """A topic deleted and created again between two looks has another znode, and often another id.

    An id that is missing says nothing: old tools that write the znode leave it out.
    """
    has_another_id = None not in (known.id, found.topic_id) and known.id != found.topic_id
    return known.czxid != found.czxid or has_another_id
