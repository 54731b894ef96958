"""Reading one offset range from the files of a replica, as `fetch.py` reads it from brokers."""

import logging
from collections.abc import Iterator
from typing import Final

from klamm.client.committed_batches import aborted_in
from klamm.log.errors import CorruptFile
from klamm.log.replicas.directories import StoredReplica, topic_id_of
from klamm.log.replicas.offsets import StoredOffsets
from klamm.log.replicas.reader import Gap, ReplicaGone, ReplicaReader
from klamm.runtime.disk import Disk
from klamm.spark.errors import OTHER_REPLICA, LostRange, Origin, pass_over
from klamm.spark.fetch import Fetched, RangeReader
from klamm.spark.log_dirs import LogDirs
from klamm.spark.ranges import OffsetRange
from klamm.spark.read_client import ReadClient
from klamm.wire.vectors.batches import CorruptBatch

_LOG: Final = logging.getLogger("klamm.spark")
MAX_MOVES: Final = 10
"""Times that a replica may be moved to another directory while one range of it is read."""


class StoredRangeReader:
    """Goes from the range's start to its end; each batch that reaches into the range is given out once.

    A replica that was moved to another of the directories meanwhile is followed. Where records are lost it raises
    DataLoss or, as the option onDataLoss says, gives out what is lost and continues.
    """

    def __init__(self, disk: Disk, directories: LogDirs, offset_range: OffsetRange) -> None:
        self._disk = disk
        self._directories = directories
        self._options = directories.options
        self._range = offset_range
        self.offset = offset_range.start

    def __iter__(self) -> Iterator[Fetched | LostRange]:
        replica = self._range.replica
        reason = f"no directory of the option logDirs has {self._range.topic_partition} any more"
        moves = 0
        while replica is not None and self.offset < self._range.end and moves <= MAX_MOVES:
            try:
                for found in self.read(replica):
                    yield self._pass_over(found.end, found.reason) if isinstance(found, Gap) else found
            except ReplicaGone as gone:
                reason = str(gone)
                replica = self._find_moved()
                moves += 1
            except CorruptBatch as error:
                raise CorruptBatch(f"{error}. {OTHER_REPLICA}") from error
        if self.offset < self._range.end:
            yield self._pass_over(self._range.end, reason)

    def read(self, replica: StoredReplica) -> Iterator[Fetched | Gap]:
        """Yield the batches from the current offset on. Raises ReplicaGone, CorruptBatch, CorruptFile, OSError."""
        end, topic_id = self._range.end, self._range.topic_id
        aborted = None
        if self._options.read_committed:
            aborted = StoredOffsets(self._disk, replica, topic_id).aborted(self.offset, end)
        for found in ReplicaReader(self._disk, replica, topic_id, self.offset, end, converts=True):
            if isinstance(found, Gap):
                yield found
                self.offset = found.end
            else:
                start, self.offset = self.offset, found.run.next_offset
                hidden = None if aborted is None else aborted_in(found.run, aborted)
                yield Fetched(start, end, found.run, hidden, Origin(found.path, found.position))
        self.offset = end  # compaction may have removed the last offsets

    def _find_moved(self) -> StoredReplica | None:
        """The same topic's replica in one of the directories now; None where there is none."""
        self._directories.refresh()
        replica = self._directories.find(self._range.topic_partition)
        if replica is None or topic_id_of(self._disk, replica) != self._range.topic_id:
            return None
        return replica

    def _pass_over(self, end: int, reason: str) -> LostRange:
        """Continue at offset `end` and return the lost range. Raises DataLoss if the option onDataLoss says so."""
        lost = LostRange(self._range.topic_partition, self.offset, end, reason)
        pass_over(lost, self._options.on_data_loss)
        self.offset = end
        return lost


def read_stored_first(
    reader: StoredRangeReader, brokers: ReadClient, wanted: OffsetRange
) -> Iterator[Fetched | LostRange]:
    """Read the range from the files of its replica as far as these have it, and fetch the rest from brokers."""
    assert wanted.replica is not None
    try:
        for found in reader.read(wanted.replica):
            if isinstance(found, Gap):
                break
            yield found
    except (ReplicaGone, CorruptBatch, CorruptFile, OSError) as error:
        _LOG.warning(
            "offsets from %d on are fetched from brokers, because a file cannot be read: %s", reader.offset, error
        )
    if reader.offset < wanted.end:
        yield from RangeReader(brokers, wanted._replace(start=reader.offset, replica=None))
