"""The offset of a streaming read as Spark keeps it in the checkpoint: JSON whose text is equal where its meaning is.

    {"version": 1, "cluster": "TE1s...", "topics": {"orders": {"id": "0CYu...", "next": {"0": 17, "1": 20}}},
     "first": {"orders": {"1": 3}}, "epochs": {"orders": {"0": 5, "1": 4}}}

`next` has the offset to read next. `epochs` has the epoch of a leader whose log had all before it, where brokers tell
epochs; checkpoints of earlier versions lack it. `first` has where a partition begins that was not in the offset before.
Spark stores only the end of batch 0, so this is where a restarted query finds the initial offsets.
"""

import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klamm.client.leaders import NO_EPOCH, OffsetAndEpoch
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import id_from_text, id_to_text
from klamm.spark.errors import BadOption

VERSION: Final = 1


class StreamOffset(NamedTuple):
    """Up to where a stream is read. `topic_ids` lacks topics without an id."""

    cluster_id: str | None
    topic_ids: Mapping[str, uuid.UUID]
    next: Mapping[TopicPartition, int]
    first: Mapping[TopicPartition, int]
    is_initial: bool = False
    """It is where a new query begins: nothing is read yet."""
    epochs: Mapping[TopicPartition, int] = {}
    """The epochs of leaders whose logs had all records before `next`."""

    @property
    def positions(self) -> dict[TopicPartition, OffsetAndEpoch]:
        """The offsets to read next, with the epochs of leaders whose logs had all before them."""
        return {p: OffsetAndEpoch(offset, self.epochs.get(p, NO_EPOCH)) for p, offset in self.next.items()}

    def begin(self, partition: TopicPartition, start: "StreamOffset") -> int:
        """Return the first offset of the partition that the micro-batch from `start` to this stream offset reads."""
        is_known = partition in start.next and not start.is_initial and self.same_topic(partition.topic, start)
        return start.next[partition] if is_known else self.first[partition]

    def same_topic(self, topic: str, other: "StreamOffset") -> bool:
        """Whether both offsets mean the same topic, by its id where both have one."""
        mine, its = self.topic_ids.get(topic), other.topic_ids.get(topic)
        return mine is None or its is None or mine == its


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """Convert a stream offset to the JSON that Spark stores: topics by name, partitions by number."""
    topics: dict[str, Any] = {}
    for p, position in sorted(offset.next.items()):
        if p.topic not in topics:
            topic_id = offset.topic_ids.get(p.topic)
            topics[p.topic] = {"id": id_to_text(topic_id) if topic_id is not None else None, "next": {}}
        topics[p.topic]["next"][str(p.partition)] = position
    stored: dict[str, Any] = {"version": VERSION, "cluster": offset.cluster_id, "topics": topics}
    if offset.first:
        stored["first"] = _nested(offset.first)
    if offset.epochs:
        stored["epochs"] = _nested(offset.epochs)
    if offset.is_initial:
        stored["initial"] = True
    return stored


def from_json(stored: Mapping[str, Any]) -> StreamOffset:
    """Read a stream offset from a checkpoint. Raises BadOption for one that klamm did not write."""
    try:
        if stored["version"] != VERSION:
            raise ValueError(f"the offset has version {stored['version']}, this klamm reads version {VERSION}")
        topics = stored["topics"].items()
        return StreamOffset(
            stored["cluster"],
            {name: id_from_text(t["id"]) for name, t in topics if t["id"] is not None},
            _flat({name: t["next"] for name, t in topics}),
            _flat(stored.get("first", {})),
            stored.get("initial", False),
            _flat(stored.get("epochs", {})),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadOption(
            f"the checkpoint has an offset that this klamm cannot read ({error!r}): {stored}. Give the query another "
            "checkpointLocation, with startingOffsets where it has to begin."
        ) from error


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as a dict of topics, each a dict of partitions, sorted."""
    found: dict[str, dict[str, int]] = {}
    for p, offset in sorted(offsets.items()):
        found.setdefault(p.topic, {})[str(p.partition)] = offset
    return found


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets of `_nested` by topic and partition, sorted."""
    return dict(sorted((TopicPartition(t, int(p)), int(o)) for t, ps in nested.items() for p, o in ps.items()))
