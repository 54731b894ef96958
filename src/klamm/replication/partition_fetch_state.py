"""Where a follower fetches one partition from. Source: AbstractFetcherThread.scala (PartitionFetchState, 3.9)."""

from typing import Final

from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_session_client import FetchPosition
from klamm.replication.partition import Partition

NO_EPOCH: Final = -1


class PartitionFetchState:
    """One partition that is fetched in one leader epoch; a newer leader epoch gets a new object."""

    __slots__ = (
        "contradictions",
        "failures",
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "partition",
        "retry_at",
        "topic_id",
    )

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        own_log = partition.hosted_log
        latest = own_log.epochs.latest_epoch
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.topic_id = own_log.topic_id or ZERO_ID
        # without any epoch there is nothing to compare with the leader: all above the high watermark goes
        self.fetch_offset = own_log.high_watermark if latest is None else own_log.end_offset
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest
        loss = own_log.possible_loss
        if loss is not None and loss < self.fetch_offset:
            # what follows stays until the leader answers, but does not count as replicated here
            epoch = own_log.epochs.epoch_for(loss - 1)
            self.fetch_offset, self.last_fetched_epoch = loss, NO_EPOCH if epoch is None else epoch
        self.failures = 0
        """In a row."""
        self.retry_at = 0.0
        self.contradictions: int | None = None
        """How often the leader's log diverged from records copied from it; None before any were copied."""

    def continue_from(self, offset: int) -> None:
        """Set the next fetch offset to `offset`, and the last fetched epoch to the latest leader epoch of the log."""
        latest = self.partition.hosted_log.epochs.latest_epoch
        self.fetch_offset = offset
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest

    def was_sent_as(self, sent: FetchPosition) -> bool:
        """Whether the position in a sent request is still current; if not, its response is ignored."""
        return sent.fetch_offset == self.fetch_offset and sent.leader_epoch == self.leader_epoch

    def position(self) -> FetchPosition:
        """The offset and epochs to send in the next Fetch request."""
        start = self.partition.hosted_log.start_offset
        return FetchPosition(self.topic_id, self.fetch_offset, self.leader_epoch, self.last_fetched_epoch, start)
