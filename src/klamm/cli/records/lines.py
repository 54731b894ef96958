"""Input as delimited lines, in blocks of limited size."""

from collections.abc import AsyncIterator
from typing import Final, Protocol

from klamm.model.errors import UsageError
from klamm.runtime.disk import Disk

MAX_LINE_BYTES: Final = 64 << 20
_FILE_BLOCK_BYTES: Final = 256 * 1024


class Input(Protocol):
    async def read(self) -> bytes:
        """Return the next bytes of the input; empty at its end."""
        ...


class FileInput:
    """A file as blocks of bytes."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._file = disk.open_read(path)
        self._position = 0

    async def read(self) -> bytes:
        """Return the next bytes of the file; empty at its end. Raises OSError."""
        content = await self._disk.in_thread(self._file.pread, _FILE_BLOCK_BYTES, self._position)
        self._position += len(content)
        return bytes(content)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


async def split_lines(source: Input, delimiter: bytes, name: str) -> AsyncIterator[list[bytes]]:
    """The lines of the input, without delimiters, as they come; a last line need not end with one.

    Raises UsageError for a line over MAX_LINE_BYTES.
    """
    rest = bytearray()
    searched = 0
    while block := await source.read():
        rest += block
        if rest.find(delimiter, searched) >= 0:
            *lines, last = bytes(rest).split(delimiter)
            rest = bytearray(last)
            yield lines
        searched = max(0, len(rest) - len(delimiter) + 1)
        if len(rest) > MAX_LINE_BYTES:
            raise UsageError(
                f"{name}: a line has more than {MAX_LINE_BYTES:,} bytes. Check --delimiter, or give the file without "
                "--lines as one message."
            )
    if rest:
        yield [bytes(rest)]
