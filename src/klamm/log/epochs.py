"""The start offset of each leader epoch. Source: LeaderEpochFileCache.java (KIP-101, KIP-279)."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.log.checkpoints import checkpoint_lines, checkpoint_text
from klamm.log.errors import CorruptFile

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """A leader epoch and its first offset."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last record; both -1 where the cache cannot tell."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Entries with rising epochs and rising start offsets.

    Changes count at once in memory; `on_change` lets the owner bring `text()` to the file. What a crash may lose of
    the file, recovery reads from the batches again.
    """

    __slots__ = ("_entries", "_on_change")

    def __init__(self, entries: Sequence[EpochEntry] = (), on_change: Callable[[], None] = lambda: None) -> None:
        self._entries = list(entries)
        self._on_change = on_change

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """Each leader epoch with its start offset, in ascending order."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The highest leader epoch; None where there is no entry."""
        return self._entries[-1].epoch if self._entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        """The entry with the lowest leader epoch; None where there is none."""
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that the leader epoch starts at this offset; later entries that contradict it are dropped."""
        entries = self._entries
        if entries:
            latest = entries[-1]
            if latest.epoch == epoch and start_offset >= latest.start_offset:
                return
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._on_change()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest known leader epoch not above `epoch`, and its end offset, as in OffsetForLeaderEpoch."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        if epoch < entries[0].epoch:
            return EpochEnd(epoch, entries[0].start_offset)
        slot = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        return EpochEnd(entries[slot - 1].epoch, entries[slot].start_offset)

    def epoch_for(self, offset: int) -> int | None:
        """The leader epoch of the record at `offset`; None before the first known epoch."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[slot].epoch if slot >= 0 else None

    def truncate_from_end(self, offset: int) -> None:
        """Drop entries that start at `offset` or later."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= offset:
            self._entries.pop()
        if len(self._entries) != before:
            self._on_change()

    def truncate_from_start(self, offset: int) -> None:
        """Drop the entries before the new log start; the last of them is kept and moved to the log start."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        if slot < 0 or (self._entries[slot].start_offset == offset and slot == 0):
            return
        self._entries[: slot + 1] = [EpochEntry(self._entries[slot].epoch, offset)]
        self._on_change()

    def clear(self) -> None:
        """Remove all entries, and report the change where there were any."""
        if self._entries:
            self._entries.clear()
            self._on_change()

    def text(self) -> bytes:
        """Return the content for the file `leader-epoch-checkpoint`."""
        return checkpoint_text(f"{epoch} {offset}" for epoch, offset in self._entries)


def parse_epochs(content: bytes, path: str) -> list[EpochEntry]:
    """The entries of a leader epoch checkpoint, without contradicting ones. Raises CorruptFile."""
    epochs = LeaderEpochs()
    for number, fields in enumerate(checkpoint_lines(content, path), start=3):
        try:
            epoch, start_offset = map(int, fields)
        except ValueError as error:
            raise CorruptFile(
                f"{path}, line {number}: {' '.join(fields)!r} is not EPOCH OFFSET (two numbers)"
            ) from error
        epochs.assign(epoch, start_offset)
    return list(epochs.entries)
