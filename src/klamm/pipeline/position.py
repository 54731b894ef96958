"""How far a pipeline has come, from Spark's checkpoint and the brokers, without Spark."""

from collections.abc import Mapping
from posixpath import join
from typing import Any, Final, NamedTuple

import msgspec

from klamm.client.offsets import LATEST
from klamm.model.ids import TopicPartition
from klamm.pipeline.spec import Spec
from klamm.pipeline.state import StateDirectory, StateUnusable
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import Disk
from klamm.spark.errors import BadOption
from klamm.spark.partitions import find_partitions
from klamm.spark.read_client import read_client
from klamm.spark.stream_offsets import from_json

_HEADER_LINES: Final = 2
"""Lines before the offsets of the sources in a file of the checkpoint: a version, and metadata of the micro-batch."""


class PartitionPosition(NamedTuple):
    """The next offset that the pipeline reads, None before its first micro-batch, and the end of the log."""

    next_offset: int | None
    end: int

    @property
    def lag(self) -> int:
        """The number of offsets that the pipeline has not read."""
        return max(0, self.end - (self.next_offset or 0))


class Checkpoint(NamedTuple):
    """The last complete micro-batch, the one that is planned or was interrupted, and the next offsets."""

    complete: int | None
    planned: int | None
    next: Mapping[TopicPartition, int]

    @property
    def is_interrupted(self) -> bool:
        """Whether a micro-batch is planned that is not complete."""
        return self.planned is not None and self.planned != self.complete


def read_checkpoint(disk: Disk, state: StateDirectory) -> Checkpoint:
    """Return what the checkpoint says. Raises StateUnusable."""
    complete = state.last_number("commits")
    planned = state.last_number("offsets")
    if complete is None:
        return Checkpoint(None, planned, {})
    path = join(state.checkpoint, "offsets", str(complete))
    try:
        stored: Any = msgspec.json.decode(disk.read(path).decode().splitlines()[_HEADER_LINES])
        return Checkpoint(complete, planned, from_json(stored).next)
    except (OSError, ValueError, IndexError, BadOption, msgspec.DecodeError) as error:
        raise StateUnusable(
            f"Cannot read {path}: {error}. Reset the pipeline to a time with klamm pipeline reset."
        ) from error


def positions(spec: Spec, checkpoint: Checkpoint) -> dict[TopicPartition, PartitionPosition]:
    """Return the position in each partition, asked of the brokers now. Raises BadOption, Unreachable."""
    with read_client(RealBlockingWorld(), spec.reads) as brokers:
        ends = brokers.offsets(dict.fromkeys(find_partitions(brokers), LATEST))
    return {p: PartitionPosition(checkpoint.next.get(p), end) for p, end in sorted(ends.items())}
