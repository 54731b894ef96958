"""Where a micro-batch ends: its limits in rows and bytes, divided among the partitions. No I/O.

Source: KafkaMicroBatchStream.scala (`rateLimit`, `delayBatch`).
"""

from collections.abc import Mapping

from klamm.model.ids import TopicPartition
from klamm.spark.options import TriggerLimits
from klamm.spark.sizes import GUESSED_BYTES


def is_enough(
    begins: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    limits: TriggerLimits,
    waited_s: float | None,
) -> bool:
    """Whether a micro-batch may begin: there are `minOffsetsPerTrigger` offsets, or `maxTriggerDelay` has passed.

    `waited_s` is the time since the last micro-batch of this run; None before the first one.
    """
    if limits.min_offsets is None or waited_s is None or waited_s >= limits.max_delay_s:
        return True
    return sum(max(0, latest[p] - begins[p]) for p in latest) >= limits.min_offsets


def limit_offsets(
    begins: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    limits: TriggerLimits,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """The end offset of the micro-batch in each partition, within the limits of offsets and bytes."""
    ends = dict(latest)
    if limits.max_offsets is not None:
        ends = _share(begins, ends, limits.max_offsets, {})
    if limits.max_bytes is not None:
        ends = _share(begins, ends, limits.max_bytes, bytes_per_offset or dict.fromkeys(ends, GUESSED_BYTES))
    return ends


def _share(
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    most: float,
    weights: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Take the same fraction of each partition, at least one offset each, so that the sum is about `most`."""
    total = sum(max(0, end - begins[p]) * weights.get(p, 1.0) for p, end in ends.items())
    if total <= most:
        return dict(ends)
    part = most / total
    return {p: begins[p] + max(1, int((end - begins[p]) * part)) if end > begins[p] else end for p, end in ends.items()}
