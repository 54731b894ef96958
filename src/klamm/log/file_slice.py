"""A range of a segment file that is read later: records of a fetch response before they are sent."""

from collections.abc import Callable

from klamm.log.errors import SliceLost
from klamm.log.open_files import SharedFile
from klamm.log.repair.batch_reader import IntactBytes, StreamedCheck, intact_bytes_of_file
from klamm.runtime.disk import Buffer, Disk


class FileSlice:
    """A range of an open file, to be read in pieces later.

    Segments that are rolled, closed, renamed, replaced or deleted meanwhile change nothing. Where the file was cut
    below the slice's end, reading raises SliceLost: other bytes may stand there now.
    """

    __slots__ = ("_disk", "_on_failed", "_path", "_position", "_shared", "_size", "is_closed")

    def __init__(
        self,
        disk: Disk,
        path: str,
        shared: SharedFile,
        position: int,
        size: int,
        on_failed: Callable[[OSError], None],
        *,
        is_closed: bool = False,
    ) -> None:
        """`is_closed`: nothing is appended to the file any more, so that its bytes may have been on the device long."""
        self._disk = disk
        self._path = path
        self._shared = shared
        self._position = position
        self._size = size
        self._on_failed = on_failed
        self.is_closed = is_closed

    def __len__(self) -> int:
        return self._size

    def read_cached(self, start: int, count: int) -> Buffer | None:
        """Up to `count` bytes at `start` of the slice; None if the disk must be read for them. Raises SliceLost."""
        self._refuse_if_truncated()
        try:
            count = min(count, self._size - start)
            content = self._shared.file.pread_cached(count, self._position + start)
        except OSError as error:
            raise self._read_failed(error) from error
        if content is not None and not content:
            raise self._too_short(start)
        return content

    async def read(self, start: int, count: int) -> Buffer:
        """Read `count` bytes at `start` of the slice in a thread, or fewer at its end. Raises SliceLost."""
        self._refuse_if_truncated()
        count = min(count, self._size - start)
        try:
            content = await self._disk.in_thread(_pread, self._shared, count, self._position + start)
        except OSError as error:
            raise self._read_failed(error) from error
        self._refuse_if_truncated()  # the file may have been cut, and written again, meanwhile
        if len(content) < count:
            raise self._too_short(start + len(content))
        return content

    async def intact_bytes(self) -> IntactBytes:
        """Check the batches of the slice against their checksums in a thread, in bounded memory. Raises SliceLost.

        Returns how many bytes are intact, and what is wrong after them.
        """
        self._refuse_if_truncated()
        try:
            found = await self._disk.in_thread(_intact_bytes, self._shared, self._position, self._size)
        except OSError as error:
            raise self._read_failed(error) from error
        self._refuse_if_truncated()
        return found

    def checked_while_read(self, on_damage: Callable[[str], None]) -> "CheckedSlice":
        """Return this slice, whose batches are checked against their checksums as they are read."""
        return CheckedSlice(
            self._disk, self._path, self._shared, self._position, self._size, self._on_failed, on_damage
        )

    def first(self, size: int) -> "FileSlice":
        """Return a slice of the first `size` bytes."""
        if size == self._size:
            return self
        return FileSlice(
            self._disk, self._path, self._shared, self._position, size, self._on_failed, is_closed=self.is_closed
        )

    def _refuse_if_truncated(self) -> None:
        """Raise SliceLost if the file was truncated below the end of the slice."""
        if self._position + self._size > self._shared.valid_bytes:
            raise SliceLost(
                f"{self._path} was truncated to {self._shared.valid_bytes} bytes while a response was sent from it: "
                "the client must fetch again"
            )

    def _read_failed(self, error: OSError) -> SliceLost:
        """Report an I/O error to the log, and return the SliceLost to raise."""
        self._on_failed(error)
        return SliceLost(f"{self._path} cannot be read: {error}. Check the disk; the log directory goes offline.")

    def _too_short(self, at: int) -> SliceLost:
        """The SliceLost to raise for a file that ends before the slice."""
        return SliceLost(
            f"{self._path} ends at byte {self._position + at}, before the end of the records that are being "
            "sent: another process truncated it. Stop that process."
        )


class CheckedSlice(FileSlice):
    """A slice that is read once, from its beginning to its end, and checks its batches meanwhile.

    A client that does not read costs no more than the pieces that its connection takes. Where a batch does not match
    its checksum, the read raises SliceLost: the response cannot be completed, and the client drops what it has of it.
    """

    __slots__ = ("_check", "_on_damage")

    def __init__(
        self,
        disk: Disk,
        path: str,
        shared: SharedFile,
        position: int,
        size: int,
        on_failed: Callable[[OSError], None],
        on_damage: Callable[[str], None],
    ) -> None:
        """`on_damage` is called with what is wrong."""
        super().__init__(disk, path, shared, position, size, on_failed, is_closed=True)
        self._check = StreamedCheck()
        self._on_damage = on_damage

    def read_cached(self, start: int, count: int) -> Buffer | None:
        """Return the next bytes, checked; None if the disk must be read for them. Raises SliceLost."""
        content = super().read_cached(start, count)
        return None if content is None else self._checked(content)

    async def read(self, start: int, count: int) -> Buffer:
        """Read the next bytes in a thread, and check them. Raises SliceLost."""
        return self._checked(await super().read(start, count))

    def _checked(self, content: Buffer) -> Buffer:
        """Return the bytes. Raises SliceLost where a batch that ends in them is damaged."""
        problem = self._check.add(content)
        if problem is None:
            return content
        self._on_damage(problem)
        raise SliceLost(f"{self._path} is damaged, which a response met that was being sent: {problem}")


def _intact_bytes(shared: SharedFile, position: int, size: int) -> IntactBytes:
    """Check the batches of a shared file against their checksums.

    The file stays open even if the task that asked is cancelled.
    """
    return intact_bytes_of_file(shared.file, position, size)


def _pread(shared: SharedFile, count: int, position: int) -> bytes:
    """Read from a shared file, which is kept open even if the task that asked is cancelled."""
    return shared.file.pread(count, position)


Records = bytes | memoryview | FileSlice
"""Batches, in memory or in a file."""
