"""What ends a read, and which records are lost: each text names topic, partition, offset and what to do."""

import logging
from typing import Final, NamedTuple

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.option_parsers import OnDataLoss

READ_AGAIN: Final = "Read again; if it fails in the same way, the log on the leader of this partition is damaged."
OTHER_REPLICA: Final = (
    "This replica is damaged: leave its log directory out of the option logDirs, to read another one."
)
_LOG: Final = logging.getLogger("klamm.spark")
"""Spark shows what its workers log in the table function python_worker_logs()."""


class Origin(NamedTuple):
    """Where batches were read: from byte `position` of a file of a log directory on, or from a leader (None)."""

    file: str | None = None
    position: int = 0

    def explain(self, position: int | None) -> str:
        """Name file and byte of damage at this position in the bytes that were read, and say what to do about it.

        Without a position, the damage is anywhere in these bytes. Those of a leader are read again.
        """
        if self.file is None:
            return READ_AGAIN
        where = f"from byte {self.position} on" if position is None else f"byte {self.position + position}"
        return f"They are in {self.file}, {where}. {OTHER_REPLICA}"


LEADER: Final = Origin()


class BadOption(KlammError):
    """An option that is unknown, misspelt, contradicts another one, or has a value that cannot be."""


class OptionOfOtherKind(BadOption):
    """An option that is only for streaming reads in a batch read, or the other way round."""


class LostRange(NamedTuple):
    """The offsets from `first` to before `end` of one partition; `end` None where nobody knows it any more."""

    topic_partition: TopicPartition
    first: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        which = f"from {self.first} on" if self.end is None else f"{self.first} to {self.end - 1}"
        return f"{self.topic_partition}: offsets {which} are lost: {self.reason}"


ADVICE: Final = (
    "To read on without these records, set the option onDataLoss to skip, or to report for a row that says what is "
    "lost."
)


class DataLoss(KlammError):
    """Records of the requested range are gone; `lost` says which and why."""

    def __init__(self, lost: LostRange) -> None:
        self.lost = str(lost)
        super().__init__(f"{lost}. {ADVICE}")


def pass_over(lost: LostRange, on_data_loss: OnDataLoss) -> None:
    """Log that a lost range is skipped. Raises DataLoss where the option onDataLoss is `fail`."""
    if on_data_loss is OnDataLoss.FAIL:
        raise DataLoss(lost)
    _LOG.warning("records are passed over, as the option onDataLoss is %s: %s", on_data_loss, lost)
