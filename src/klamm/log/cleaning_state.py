"""How far a log is cleaned, and whether it is being cleaned. Source: LogCleanerManager.scala (LogCleaningState)."""

from collections.abc import Sequence

from klamm.log.names import CLEANED, SWAP
from klamm.runtime.disk import Disk


class CleaningState:
    """Used by the event loop alone.

    A cleaning compares records with those after them, so a truncation below its end voids it: what it removed may be
    all that is left of a key.
    """

    __slots__ = ("_disk", "_end", "_failures", "_is_void", "_swap_paths", "first_dirty", "is_paused", "why_uncleanable")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._end: int | None = None
        self._is_void = False
        self._failures = 0
        self._swap_paths: Sequence[str] = ()
        self.is_paused = False
        self.first_dirty: int | None = None
        """Records below it were compared with those after them; None where the log was never cleaned."""
        self.why_uncleanable: str | None = None
        """Why the log could not be cleaned; it is tried again after a change of the config."""

    @property
    def is_running(self) -> bool:
        """Whether a cleaning of the log is under way."""
        return self._end is not None

    @property
    def is_void(self) -> bool:
        """Whether the cleaning under way must end: the log was truncated below its end, moves or has a new policy."""
        return self._is_void

    def pause(self) -> None:
        """Cancel the cleaning under way and allow no other, while the log is copied to another log directory.

        Otherwise the copy would keep records whose tombstone is gone. Raises OSError.
        """
        self.is_paused = True
        if self.is_running:
            self._is_void = True
            self.remove_swap_files()

    def resume(self) -> None:
        """Allow cleanings of this log again, after `pause`."""
        self.is_paused = False

    def cancel(self) -> None:
        """Cancel the cleaning under way: the topic is no longer compacted, and no further record may be removed."""
        if self.is_running:
            self._is_void = True

    def begin(self, end: int) -> None:
        """Record that a cleaning of the records below `end` begins."""
        assert self._end is None, "the log is being cleaned already"
        self._end, self._is_void = end, False

    def end(self) -> None:
        """Record that the cleaning has ended, with or without success, and its files are removed."""
        self._end = None

    def on_cleaned(self, end_offset: int) -> None:
        """Record that the log is compacted up to `end_offset`."""
        self.first_dirty = end_offset
        self._failures = 0

    def on_failure(self) -> int:
        """Count a failed cleaning; return how many failed in a row."""
        self._failures += 1
        return self._failures

    def on_config_changed(self) -> None:
        """Allow cleaning again after failures: the number of failures and the reason are reset."""
        self._failures = 0
        self.why_uncleanable = None

    def on_swap_began(self, paths: Sequence[str]) -> None:
        """Record the `.swap` files that are about to replace segments, so that a truncation can remove them."""
        self._swap_paths = paths

    def on_swap_ended(self) -> None:
        """Forget the `.swap` files: the replacement of segments is complete, and none is left to remove."""
        self._swap_paths = ()

    def on_truncated(self, offset: int) -> None:
        """Called before the log is truncated to `offset`: remove `.swap` files that would restore records.

        Raises OSError.
        """
        if self.first_dirty is not None:
            self.first_dirty = min(self.first_dirty, offset)
        if self._end is not None and offset < self._end:
            self._is_void = True
            self.remove_swap_files()

    def remove_swap_files(self) -> None:
        """Remove the `.swap` files of a replacement that did not complete. Raises OSError.

        The first, of the records, becomes a `.cleaned` file again, which `LogStorage.end_cleaning` removes. Beside it a
        start uses none of the others: after a kill in between they would replace the indexes of the old segment.
        """
        paths, self._swap_paths = self._swap_paths, ()
        for path in paths[:1]:
            if self._disk.exists(path):
                self._disk.rename(path, path.removesuffix(SWAP) + CLEANED)
        for path in paths[1:]:
            if self._disk.exists(path):
                self._disk.remove(path)
