"""Copies one log of this broker to another. Source: ReplicaAlterLogDirsThread.scala (3.9)."""

from klamm.log.errors import UnexpectedOffset
from klamm.log.file_slice import FileSlice
from klamm.log.log import Log
from klamm.replication.truncation import common_end
from klamm.runtime.disk import Buffer


class LogCopy:
    """Copies `source` to `copy`, which nobody else writes to; the source may grow, be truncated or lose its start."""

    def __init__(self, source: Log, copy: Log, chunk_bytes: int) -> None:
        self._source = source
        self._copy = copy
        self._chunk_bytes = chunk_bytes
        self._reached_end = False

    @property
    def is_complete(self) -> bool:
        """Whether the copy has every record of the source log, so that it can replace the source."""
        return self._copy.end_offset == self._source.end_offset and self._is_equal_so_far()

    @property
    def is_nearly_complete(self) -> bool:
        """Whether the copy lacks at most what was appended while the last chunk was copied.

        To a busy partition something is appended during each copy: it may never be complete between two chunks.
        """
        return self._reached_end and self._is_equal_so_far()

    def _is_equal_so_far(self) -> bool:
        """Whether the copy has the records of the source log, from its start to the end of the copy.

        A source with a possible loss may itself lack some: as follower it truncates itself there once its leader
        answers, which the copy would not know.
        """
        source, copy = self._source, self._copy
        return (
            source.possible_loss is None
            and source.topic_id in (None, copy.topic_id)
            and copy.start_offset == source.start_offset
            and self._common_end() == copy.end_offset
            and not copy.is_restoring_producers
        )

    async def copy_chunk(self) -> int:
        """Copy the next chunk, and return its size. Raises KlammError."""
        source, copy = self._source, self._copy
        self._align()
        if copy.has_unsynced_truncation:
            await copy.wait_until_durable()  # what is appended then must not end up behind records that were removed
        offset, source_end = copy.end_offset, source.end_offset
        if offset >= source_end:
            self._reached_end = True
            self._follow_offsets()
            return 0
        records = source.slice(offset, self._chunk_bytes, source_end, True).records
        content = await records.read(0, len(records)) if isinstance(records, FileSlice) else records
        if copy.has_failed or copy.end_offset != offset:
            return 0
        self._append(content)
        self._reached_end = copy.end_offset >= source_end  # a chunk also ends with its segment
        if copy.segments.active.base_offset > copy.recovery_point:
            await copy.flush(copy.segments.active.base_offset)
        return len(content)

    def copy_now(self) -> int:
        """Copy the next chunk in the calling thread, without awaiting, and return its size. Raises KlammError."""
        self._align()
        source, copy, size = self._source, self._copy, 0
        if copy.end_offset < source.end_offset:
            records = source.read(copy.end_offset, self._chunk_bytes, source.end_offset).records
            assert not isinstance(records, FileSlice)
            self._append(records)
            size = len(records)
        self._copy_epochs_without_records()
        return size

    def _copy_epochs_without_records(self) -> None:
        """Copy leader epochs that have no record yet.

        A new leader's epoch begins before its first record, and followers may ask for it (KAFKA-7415).
        """
        source, copy = self._source, self._copy
        for epoch, start in source.epochs.entries:
            latest = copy.epochs.latest_epoch
            if start == copy.end_offset == source.end_offset and (latest is None or epoch > latest):
                copy.epochs.assign(epoch, start)

    def _append(self, content: Buffer) -> None:
        """Append the batches; an empty copy may start in the middle of the first one."""
        copy = self._copy
        try:
            copy.append_as_follower(content)
        except UnexpectedOffset as error:
            is_empty = copy.start_offset == copy.end_offset
            if not (is_empty and error.first_offset < copy.start_offset <= error.last_offset):
                raise
            copy.truncate_fully_and_start_at(error.first_offset)
            copy.append_as_follower(content)
        self._follow_offsets()

    def _follow_offsets(self) -> None:
        """Copy high watermark and log start of the source; segments below the log start are deleted."""
        source, copy = self._source, self._copy
        copy.update_high_watermark(min(source.high_watermark, copy.end_offset))
        if copy.start_offset < source.start_offset <= copy.high_watermark and copy.advance_start_offset(
            source.start_offset
        ):
            copy.delete_segments_before_start()

    def _align(self) -> None:
        """Truncate the copy where its records differ from the source, or where a power loss may have taken some.

        If the source has deleted the records that come next, the copy starts again. So does a copy without topic id: it
        may be of an earlier topic of this name.
        """
        source, copy = self._source, self._copy
        if copy.topic_id is None and source.topic_id is not None:
            copy.truncate_fully_and_start_at(source.start_offset)
            copy.assign_topic_id(source.topic_id)
        if copy.possible_loss is not None:
            copy.truncate_to(copy.possible_loss)
        common = self._common_end()
        if common is not None and common < copy.end_offset:
            copy.truncate_to(common)
        if common is None or copy.end_offset < source.start_offset:
            copy.truncate_fully_and_start_at(source.start_offset)

    def _common_end(self) -> int | None:
        """Return the offset up to which the copy has the source's records. None where the two share no leader epoch."""
        source, copy = self._source, self._copy
        return common_end(
            source.epochs, source.end_offset, copy.epochs, copy.end_offset, without_epochs=copy.high_watermark
        )
