"""What ends a read: each text names topic, partition, offset and what to do."""

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition


class BadOption(KlammError):
    """An option that is unknown, misspelt, contradicts another one, or has a value that cannot be."""


class DataLoss(KlammError):
    """Records that were asked for are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; to read on without them set failOnDataLoss to false")


class RangeLost(DataLoss):
    """The offsets from `first` to before `behind`."""

    def __init__(self, topic_partition: TopicPartition, first: int, behind: int, reason: str) -> None:
        super().__init__(f"{topic_partition}: offsets {first} to {behind - 1} are lost: {reason}")
