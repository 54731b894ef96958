"""Which transport the options select: brokers, log directories, or log directories first and brokers for the rest."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from klamm.client.blocking import BlockingClient
from klamm.log.errors import CorruptFile
from klamm.log.replicas.directories import topic_id_of
from klamm.log.replicas.offsets import StoredOffsets
from klamm.log.replicas.reader import ReplicaGone
from klamm.runtime.blocking import BlockingWorld
from klamm.runtime.disk import Disk, RealDisk
from klamm.spark.errors import BadOption
from klamm.spark.log_dirs import LogDirs
from klamm.spark.options import ReadOptions
from klamm.spark.pool import ClientPool
from klamm.spark.ranges import OffsetRange
from klamm.spark.read_client import ReadClient, read_client, settings_of
from klamm.spark.transport import Transport
from klamm.wire.records.batch import CorruptRecords
from klamm.wire.vectors.batches import CorruptBatch

_LOG: Final = logging.getLogger("klamm.spark")


class StoredFirstClient(ReadClient):
    """Brokers plan the read; what a replica in a log directory has of it is read from its files."""

    def __init__(self, client: BlockingClient, options: ReadOptions, disk: Disk) -> None:
        super().__init__(client, options)
        self._disk = disk
        self._directories = LogDirs(client.world, disk, options)

    def locate(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Split each range where the files of its replica end. Raises BadOption for directories of another cluster."""
        self._directories.refresh()
        stored, mine = self._directories.cluster_id, self.cluster_id
        if None not in (stored, mine) and stored != mine:
            raise BadOption(
                f"option logDirs has directories of the cluster {stored}, but kafka.bootstrap.servers leads to the "
                f"cluster {mine}; correct one of them"
            )
        return [part for r in ranges for part in self._split(r)]

    def _split(self, whole: OffsetRange) -> Iterator[OffsetRange]:
        """The part of a range that the files have, and the rest."""
        stored_end = self._readable_end(whole)
        if stored_end > whole.start:
            replica = self._directories.find(whole.topic_partition)
            yield whole._replace(end=min(stored_end, whole.end), replica=replica)
        if stored_end < whole.end:
            yield whole._replace(start=max(stored_end, whole.start))

    def _readable_end(self, whole: OffsetRange) -> int:
        """Up to which offset the files have the range; 0, with a warning, where they cannot be read."""
        try:
            return self._stored_end(whole)
        except (ReplicaGone, CorruptBatch, CorruptFile, CorruptRecords, OSError) as error:
            _LOG.warning(
                "%s is fetched from brokers, because its files cannot be read: %s", whole.topic_partition, error
            )
            return 0

    def _stored_end(self, whole: OffsetRange) -> int:
        """Up to which offset the files have the range; 0 where they have no beginning of it, or another topic.

        Raises ReplicaGone, CorruptBatch, CorruptFile, CorruptRecords, OSError.
        """
        replica = self._directories.find(whole.topic_partition)
        if replica is None or whole.topic_id is None or (replica.high_watermark or 0) <= whole.start:
            return 0
        if topic_id_of(self._disk, replica) != whole.topic_id:
            return 0
        stored = StoredOffsets(self._disk, replica, whole.topic_id)
        if stored.log_start() > whole.start:
            return 0
        return stored.last_stable() if self.options.read_committed else stored.high_watermark()


@contextmanager
def open_transport(world: BlockingWorld, options: ReadOptions, pool: ClientPool | None = None) -> Iterator[Transport]:
    """Yield the transport for planning one read; connections come from the pool, or are closed at the end."""
    if not options.bootstrap:
        yield LogDirs(world, RealDisk(), options)
        return
    with read_client(world, options, pool) as brokers:
        yield StoredFirstClient(brokers.client, options, RealDisk()) if options.log_dirs else brokers


def new_transport(world: BlockingWorld, options: ReadOptions) -> Transport:
    """Make the transport of a streaming query, which the caller closes."""
    if not options.bootstrap:
        return LogDirs(world, RealDisk(), options)
    client = BlockingClient(world, options.bootstrap, settings_of(options))
    return StoredFirstClient(client, options, RealDisk()) if options.log_dirs else ReadClient(client, options)
