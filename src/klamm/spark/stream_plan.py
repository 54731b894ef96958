"""What one micro-batch reads, from its two offsets alone: a replayed batch has the same rows. No I/O."""

from typing import NamedTuple

from klamm.client.leaders import NO_EPOCH
from klamm.client.truncations import truncation_reason
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import id_to_text
from klamm.spark.errors import LostRange
from klamm.spark.ranges import OffsetRange
from klamm.spark.stream_offsets import StreamOffset


class BatchPlan(NamedTuple):
    ranges: list[OffsetRange]
    lost: list[LostRange]


def plan_micro_batch(start: StreamOffset, end: StreamOffset) -> BatchPlan:
    """Plan a micro-batch: the offset ranges from `start` to `end`, sorted, and the ranges that were lost."""
    ranges = []
    for p in sorted(end.next):
        begin = end.begin(p, start)
        if begin < end.next[p]:
            epoch = end.epochs.get(p, NO_EPOCH)
            ranges.append(OffsetRange(p, begin, end.next[p], end.topic_ids.get(p.topic), leader_epoch=epoch))
    return BatchPlan(ranges, [] if start.is_initial else losses_between(start, end))


def losses_between(start: StreamOffset, end: StreamOffset) -> list[LostRange]:
    """What was lost between two stream offsets: topics that were deleted, recreated or truncated."""
    found = []
    for p, position in sorted(start.next.items()):
        if not end.same_topic(p.topic, start):
            reason = (
                f"topic {p.topic} was deleted and created again: its id was {id_to_text(start.topic_ids[p.topic])}, "
                f"now it is {id_to_text(end.topic_ids[p.topic])}"
            )
            found.append(LostRange(p, position, None, reason))
        elif p not in end.next:
            reason = (
                f"{p} does not exist any more, or the options exclude it now: in this case correct subscribe, "
                "subscribePattern or assign, or give the query another checkpointLocation"
            )
            found.append(LostRange(p, position, None, reason))
        elif end.next[p] < position:
            found.append(LostRange(p, end.next[p], position, _truncation_reason(p, start, end)))
    return found


def _truncation_reason(partition: TopicPartition, start: StreamOffset, end: StreamOffset) -> str:
    """Why records between two stream offsets are lost, with the leader epochs where both have them."""
    if partition in start.epochs and partition in end.epochs:
        return truncation_reason(end.next[partition], start.epochs[partition], end.epochs[partition])
    return f"the log now ends at offset {end.next[partition]}; it was truncated by an unclean leader election"
