"""A replica in a log directory, as the comparison reads it."""

from collections.abc import Iterator
from uuid import UUID

from klamm.audit.replicas.replica_log import Bounds, BrokenReplica, Piece, ReplicaUnavailable
from klamm.client.committed_batches import aborted_in
from klamm.log.errors import CorruptFile
from klamm.log.replicas.directories import StoredReplica, was_cleaned
from klamm.log.replicas.offsets import StoredOffsets
from klamm.log.replicas.reader import Gap, OldFormat, ReplicaGone, ReplicaReader
from klamm.log.replicas.segment_files import list_segment_files
from klamm.runtime.disk import Disk
from klamm.wire.records.batch import CorruptRecords
from klamm.wire.vectors.batches import CorruptBatch


class StoredReplicaLog:
    def __init__(self, disk: Disk, replica: StoredReplica, topic_id: UUID | None) -> None:
        self._disk = disk
        self._replica = replica
        self._topic_id = topic_id
        self._offsets = StoredOffsets(disk, replica, topic_id)

    @property
    def name(self) -> str:
        """The directory of the replica."""
        return self._replica.directory

    def is_compacted(self) -> bool:
        """Whether compaction has finished once. Raises ReplicaUnavailable where it may be at work the first time."""
        try:
            if was_cleaned(self._disk, self._replica.log_dir, self._replica.partition):
                return True
            if list_segment_files(self._disk, self._replica.directory).is_changing:
                raise ReplicaUnavailable(
                    f"segments in {self._replica.directory} are being replaced: verify it again in a minute"
                )
        except (CorruptFile, OSError) as error:
            raise ReplicaUnavailable(str(error)) from error
        return False

    def bounds(self) -> Bounds:
        """Look at the replica now. Raises ReplicaUnavailable."""
        if self._replica.high_watermark is None:
            raise ReplicaUnavailable(f"{self._replica.checkpoint} has no high watermark of this partition yet")
        try:
            stable = self._last_stable()
            end = max(stable, self._offsets.file_end())
            return Bounds(self._offsets.log_start(), self._offsets.high_watermark(), stable, end)
        except (ReplicaGone, CorruptFile, OSError) as error:
            raise ReplicaUnavailable(str(error)) from error

    def _last_stable(self) -> int:
        """The last stable offset; the log start where damage hides it, which the comparison finds."""
        try:
            return self._offsets.last_stable()
        except (CorruptBatch, CorruptRecords):
            return self._offsets.log_start()

    def read(self, start: int, end: int, *, committed: bool) -> Iterator[Piece]:
        """The batches from the one with `start` on, before `end`. Raises BrokenReplica, ReplicaUnavailable."""
        reader = ReplicaReader(self._disk, self._replica, self._topic_id, start, end)
        try:
            aborted = self._offsets.aborted(start, end) if committed else None
            for found in reader:
                if isinstance(found, Gap):
                    raise BrokenReplica(found.start, f"offsets {found.start} to {found.end - 1}: {found.reason}")
                yield Piece(found.run, None if aborted is None else aborted_in(found.run, aborted))
        except OldFormat as error:
            raise ReplicaUnavailable(str(error)) from error
        except CorruptBatch as error:
            raise BrokenReplica(reader.offset, str(error)) from error
        except (ReplicaGone, CorruptFile, OSError) as error:
            raise ReplicaUnavailable(str(error)) from error
