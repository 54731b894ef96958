"""Which topics and partitions are new. Source: processTopicChange, processPartitionModifications (3.9)."""

import uuid
from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.controller.context import ControllerContext, Topic
from klamm.model.assignment import ReplicaAssignment


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


def is_another_topic(context: ControllerContext, name: str, topic_id: uuid.UUID | None) -> bool:
    """A topic deleted and created again between two looks carries another id."""
    known = context.topics.get(name)
    return known is not None and topic_id is not None and known.id is not None and known.id != topic_id
