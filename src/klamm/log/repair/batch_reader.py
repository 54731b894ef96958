"""Checks the batches of a file, or of a buffer, against their checksums, in bounded memory."""

import struct
import zlib
from typing import Final, NamedTuple

import google_crc32c

from klamm.runtime.disk import Buffer, File
from klamm.wire.records.batch import (
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    CorruptRecords,
    crc32c,
    crc_is_valid,
    crc_mismatch,
    entry_size,
    header_at,
    header_cut_off,
)

CHUNK_BYTES: Final = 1024 * 1024
_CRC_FROM: Final = {MAGIC: 21}
_LEGACY_CRC_FROM: Final = 16
_MIN_LENGTH: Final = HEADER_BYTES - PREFIX_BYTES
_FRONT: Final = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC


class IntactBytes(NamedTuple):
    """How many bytes are whole batches that match their checksums, and what is wrong with the next one.

    No problem means that the next batch, if there is one, is cut off.
    """

    size: int
    problem: str | None


def intact_bytes(buffer: Buffer) -> IntactBytes:
    """The size of the batches at the beginning of a buffer that match their checksums, and what is wrong after them."""
    at, end, unpack = 0, len(buffer), _FRONT.unpack_from
    try:
        while at + PREFIX_BYTES <= end:
            if at + HEADER_BYTES <= end:
                _base, length, _epoch, magic, crc = unpack(buffer, at)
                if magic == MAGIC and length >= _MIN_LENGTH:
                    following = at + length + PREFIX_BYTES
                    if following > end:
                        break
                    if crc32c(buffer, at + 21, following) != crc:
                        return IntactBytes(at, str(crc_mismatch(header_at(buffer, at))))
                    at = following
                    continue
            size = entry_size(buffer, at)  # of an old format, or damaged
            if at + size > end:
                break
            header = header_at(buffer, at)
            if not crc_is_valid(buffer, header):
                return IntactBytes(at, str(crc_mismatch(header)))
            at += size
    except CorruptRecords as error:
        return IntactBytes(at, str(error))
    return IntactBytes(at, None)


def intact_bytes_of_file(file: File, position: int, size: int) -> IntactBytes:
    """Do for `size` bytes of a file, from this position on, what `intact_bytes` does for a buffer."""
    reader, at, end = BatchReader(file, position + size), position, position + size
    while at < end:
        content = file.pread(min(CHUNK_BYTES, end - at), at)
        found = intact_bytes(content)
        at += found.size
        if found.problem is not None:
            return IntactBytes(at - position, found.problem)
        if found.size:
            continue
        try:
            if end - at < PREFIX_BYTES or reader.size_at(at) > end - at:
                break
            at += reader.batch_at(at).size  # larger than a chunk
        except CorruptRecords as error:
            return IntactBytes(at - position, str(error))
    return IntactBytes(at - position, None)


class StreamedCheck:
    """Checks batches whose bytes come in pieces, in order; a piece may end anywhere within a batch."""

    __slots__ = ("_crc", "_expected", "_front", "_is_legacy", "_left", "_offset")

    def __init__(self) -> None:
        self._front = b""
        """The first bytes of a batch, as long as they do not tell its length and checksum."""
        self._left = 0
        """Bytes of the batch that are still to come."""
        self._crc = self._expected = self._offset = 0
        self._is_legacy = False

    def add(self, piece: Buffer) -> str | None:
        """Check what ends in this piece; returns what is wrong with the first batch that does not match, or None."""
        at, end = 0, len(piece)
        while at < end:
            if not self._left:
                taken = bytes(piece[at : at + _FRONT.size - len(self._front)])
                self._front += taken
                at += len(taken)
                if len(self._front) == _FRONT.size and (problem := self._begin_batch()) is not None:
                    return problem
                continue
            count = min(self._left, end - at)
            if self._is_legacy:
                self._crc = zlib.crc32(memoryview(piece)[at : at + count], self._crc)
            else:
                self._crc = crc32c(piece, at, at + count, self._crc)
            self._left -= count
            at += count
            if not self._left and self._crc != self._expected:
                return f"the CRC of the batch at offset {self._offset} does not match its bytes"
        return None

    def _begin_batch(self) -> str | None:
        """Take length and checksum from the first bytes of a batch; returns why no batch has these, or None."""
        front, self._front = self._front, b""
        try:
            size = entry_size(front)
        except CorruptRecords as error:
            return str(error)
        self._offset, _length, _epoch, magic, crc = _FRONT.unpack(front)
        self._is_legacy = magic != MAGIC
        self._left = size - len(front)
        if self._left <= 0 or magic not in (0, 1, MAGIC):
            return f"batch at offset {self._offset}: its magic is {magic} and its size {size} bytes, which no batch has"
        if self._is_legacy:
            self._expected = int.from_bytes(front[_LEGACY_CRC_FROM - 4 : _LEGACY_CRC_FROM])
            self._crc = zlib.crc32(front[_LEGACY_CRC_FROM:])
        else:
            self._expected, self._crc = crc, 0
        return None


class BatchReader:
    """The batches in the first `end` bytes of a file. A batch larger than a chunk is read in pieces."""

    def __init__(self, file: File, end: int) -> None:
        self._file = file
        self._end = end
        self._chunk = b""
        self._chunk_at = 0

    def size_at(self, position: int) -> int:
        """The size of the batch at this position as its header says, whether the batch is complete or not.

        Raises OSError, CorruptRecords.
        """
        within = self._load(position, PREFIX_BYTES)
        if len(self._chunk) - within < PREFIX_BYTES:
            raise header_cut_off(position, self._end - position)
        return entry_size(self._chunk, within)

    def header_at(self, position: int) -> BatchHeader:
        """Read the header of the batch at this position. Raises OSError, CorruptRecords where no batch can be there."""
        size, left = self.size_at(position), self._end - position
        if size > left:
            raise CorruptRecords(
                f"the header of the batch at byte {position} announces {size} bytes, but only {left} follow"
            )
        within = self._load(position, HEADER_BYTES)
        return header_at(self._chunk, within)._replace(position=position)

    def batch_at(self, position: int) -> BatchHeader:
        """Read the header at this position, and check the batch against its checksum.

        Raises OSError, CorruptRecords.
        """
        header = self.header_at(position)
        if not self._crc_is_valid(header):
            raise crc_mismatch(header)
        return header

    def _load(self, position: int, count: int) -> int:
        """Load `count` bytes from this position into memory, or fewer at the file's end.

        Returns their place in the chunk.
        """
        within = position - self._chunk_at
        missing = within < 0 or within + count > len(self._chunk)
        if missing and not (within >= 0 and self._chunk_at + len(self._chunk) >= self._end):
            self._chunk = self._file.pread(max(0, min(CHUNK_BYTES, self._end - position)), position)
            self._chunk_at, within = position, 0
        return within

    def _crc_is_valid(self, header: BatchHeader) -> bool:
        """Whether the batch matches its checksum."""
        if header.size <= CHUNK_BYTES:
            within = self._load(header.position, header.size)
            if within + header.size > len(self._chunk):
                return False  # the file is shorter than its size was
            return crc_is_valid(self._chunk, header._replace(position=within))
        crc, end = 0, header.position + header.size
        is_legacy = header.magic != MAGIC
        for at in range(header.position + _CRC_FROM.get(header.magic, _LEGACY_CRC_FROM), end, CHUNK_BYTES):
            piece = self._file.pread(min(CHUNK_BYTES, end - at), at)
            crc = zlib.crc32(piece, crc) if is_legacy else google_crc32c.extend(crc, piece)
        return crc == header.crc
