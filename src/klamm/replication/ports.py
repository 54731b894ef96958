"""The interfaces that replication needs: metadata, logs, other brokers, the controller."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from klamm.log.log import Log
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition


class PartitionRefused(KlammError):
    """One partition cannot serve the request; `code` is the error code of the response."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class LogsPort(Protocol):
    """The log directories of this broker."""

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The partition's log, or None."""

    async def get_or_create_many(
        self, requested: Sequence[tuple[TopicPartition, uuid.UUID, bool]]
    ) -> Sequence[Log | OSError | KlammError]:
        """Return the log for each (partition, topic id, is new), in order, or the error that prevented it."""
        ...

    async def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the partition's log; does nothing where there is none. Raises StorageFailed."""
        ...

    async def sync_deletions(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Make the deletions of these partitions durable, so that no power loss undoes them.

        Returns those where that failed.
        """
        ...

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermark checkpoints of all log directories."""


class FutureLogsPort(Protocol):
    """Copies of logs in other log directories of this broker."""

    @property
    def directories(self) -> Sequence[str]:
        """Return the paths of all log directories."""
        ...

    @property
    def offline_directories(self) -> Mapping[str, str]:
        """Why each offline directory failed, by path."""
        ...

    @property
    def futures(self) -> Mapping[TopicPartition, Log]:
        """Return, by partition, the future logs that are being copied to another log directory."""
        ...

    def directory_of(self, partition: TopicPartition) -> str | None:
        """The log directory that has the partition's log, or None."""
        ...

    def future_directory_of(self, partition: TopicPartition) -> str | None:
        """The log directory of the partition's future log, or None."""
        ...

    def prefer_directory(self, partition: TopicPartition, directory: str) -> None:
        """Have the partition's log created in this log directory, if it is created on this broker."""

    def create_future(self, partition: TopicPartition, directory: str) -> Log:
        """Begin a future log of the partition in this log directory. Raises StorageFailed."""
        ...

    def delete_future(self, partition: TopicPartition) -> None:
        """Delete the partition's future log, if there is one."""

    def promote_future(self, partition: TopicPartition) -> Log:
        """Replace the partition's log by its future log, which is returned. Raises StorageFailed."""
        ...


class MetadataPort(Protocol):
    """The broker's metadata cache, as of the newest UpdateMetadata."""

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether the broker is registered."""

    def endpoint(self, broker_id: BrokerId) -> tuple[str, int] | None:
        """Host and port of the inter-broker listener; None where the broker is not alive."""
        ...

    def contains(self, topic_partition: TopicPartition) -> bool:
        """Whether the metadata has the partition."""

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id, or None."""


class IsrAnswer(NamedTuple):
    """The controller's answer to one proposed ISR; the fields after `error` are set only without an error."""

    error: ErrorCode
    leader_epoch: int = -1
    isr: tuple[BrokerId, ...] = ()
    partition_epoch: int = -1


class IsrProposal(NamedTuple):
    """An ISR change to send to the controller, with the epochs it was made in."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    """The zero id where the topic has none."""
    leader_epoch: int
    partition_epoch: int
    isr: tuple[BrokerId, ...]
    broker_epochs: Mapping[BrokerId, int]
    """The broker epoch of a new member in its last fetch. Of the others the controller knows whether they restarted."""
    answered: Callable[[IsrAnswer], None]
    """Called once, when the controller has answered for this partition."""


class AlterPartitionPort(Protocol):
    """Sends ISR proposals to the controller."""

    def submit(self, proposal: IsrProposal) -> bool:
        """Queue an ISR proposal for the controller; False where one of the same partition is still under way."""
        ...
