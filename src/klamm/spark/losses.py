"""Requested records that are lost: which and why, and the handling that the option onDataLoss selects."""

import logging
from typing import Final, NamedTuple

from klamm.model.ids import TopicPartition
from klamm.spark.errors import DataLoss
from klamm.spark.option_parsers import OnDataLoss

_LOG: Final = logging.getLogger("klamm.spark")
"""Spark shows what its workers log in the table function python_worker_logs()."""


class LostRange(NamedTuple):
    """The offsets from `first` to before `end` of one partition; `end` None where nobody knows it any more."""

    topic_partition: TopicPartition
    first: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        which = f"from {self.first} on" if self.end is None else f"{self.first} to {self.end - 1}"
        return f"{self.topic_partition}: offsets {which} are lost: {self.reason}"


def pass_over(lost: LostRange, on_data_loss: OnDataLoss) -> None:
    """Log that a lost range is skipped. Raises DataLoss where the option onDataLoss is `fail`."""
    if on_data_loss is OnDataLoss.FAIL:
        raise DataLoss(lost)
    _LOG.warning("records are passed over, as the option onDataLoss is %s: %s", on_data_loss, lost)
