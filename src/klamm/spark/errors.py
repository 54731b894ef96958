"""What ends a read: each text names topic, partition, offset and what to do."""

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition


class BadOption(KlammError):
    """An option that is unknown, misspelt, contradicts another one, or has a value that cannot be."""


class Unreachable(KlammError):
    """No broker gave an answer in time; the text has the last cause."""


class DataLoss(KlammError):
    """Records that were asked for are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; to read on without them set failOnDataLoss to false")


class RangeLost(DataLoss):
    """The offsets from `first` to before `behind`."""

    def __init__(self, topic_partition: TopicPartition, first: int, behind: int, reason: str) -> None:
        super().__init__(f"{topic_partition}: offsets {first} to {behind - 1} are lost: {reason}")


class TopicGone(DataLoss):
    """A topic or partition that was planned does not exist any more, or another topic has its name."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(reason)
        self.topic = topic
        self.reason = reason
