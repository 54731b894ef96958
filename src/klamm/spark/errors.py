"""What ends a read: each text names topic, partition, offset and what to do."""

from typing import Final

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition

READ_AGAIN: Final = "Read again; if it fails in the same way, the log on the leader of this partition is damaged."


class BadOption(KlammError):
    """An option that is unknown, misspelt, contradicts another one, or has a value that cannot be."""


class DataLoss(KlammError):
    """Records of the requested range are gone; `lost` says which and why."""

    def __init__(self, what: str) -> None:
        self.lost = what
        super().__init__(f"{what}. To read on without these records, set the option failOnDataLoss to false.")


class RangeLost(DataLoss):
    """The offsets from `first` to before `behind`."""

    def __init__(self, topic_partition: TopicPartition, first: int, behind: int, reason: str) -> None:
        super().__init__(f"{topic_partition}: offsets {first} to {behind - 1} are lost: {reason}")
