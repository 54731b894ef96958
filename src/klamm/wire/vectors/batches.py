"""The record batches of one fetched run of bytes: where each begins, their headers as columns, their checksums.

Source: DefaultRecordBatch.java (magic 2), AbstractRecords.java (the log overhead of 12 bytes).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from klamm.model.errors import KlammError
from klamm.wire.records.batch import HEADER_BYTES, MAGIC

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
LOG_OVERHEAD: Final = 12  # base offset and batch length stand before what the length counts
CRC_COVERS_FROM: Final = 21  # from the attributes to the end

NO_END: Final = 2**63 - 1
"""An offset that no batch reaches."""

MIN_RECORD_BYTES: Final = 7  # seven one-byte fields: length, attributes, two deltas, key, value, headers

Headers = npt.NDArray[np.void]

_START = struct.Struct(">qi4xB")
"""Base offset, batch length and magic."""


class CorruptBatch(KlammError):
    """A batch that must not be believed: wrong checksum, wrong format, or fields that do not fit together.

    `position` is where it begins in the bytes that were read, None where that is not known.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class Run(NamedTuple):
    """Whole batches of one fetch: where each starts, how many bytes it has, and its header."""

    buffer: memoryview
    positions: Sequence[int]
    sizes: Sequence[int]
    headers: Headers

    def first(self, count: int) -> "Run":
        """The first `count` batches."""
        return Run(self.buffer, self.positions[:count], self.sizes[:count], self.headers[:count])

    def content(self, number: int) -> memoryview:
        """The bytes of batch number `number`."""
        position = self.positions[number]
        return self.buffer[position : position + self.sizes[number]]

    @property
    def next_offset(self) -> int:
        """The offset after the last batch, including gaps left by compaction."""
        last = self.headers[-1]
        return int(last["base_offset"]) + int(last["last_offset_delta"]) + 1

    @property
    def last_offsets(self) -> npt.NDArray[np.int64]:
        """The last offset of each batch, in order."""
        deltas = self.headers["last_offset_delta"].astype(np.int64)
        last: npt.NDArray[np.int64] = self.headers["base_offset"].astype(np.int64) + deltas
        return last


def read_run(records: bytes | memoryview, end_offset: int = NO_END) -> Run:
    """The complete batches in `records`; one truncated at the end, as Fetch returns it, is left out.

    What follows the first batch at or after `end_offset` is not looked at. Raises CorruptBatch for an impossible
    length, and for message formats 0 and 1.
    """
    buffer = memoryview(records)
    positions, sizes = _batch_positions(buffer, end_offset)
    return Run(buffer, positions, sizes, _headers_at(buffer, positions))


def _headers_at(buffer: memoryview, positions: list[int]) -> Headers:
    """The headers of the batches at these positions, each of which is complete."""
    if not positions:
        return np.empty(0, HEADER)
    every = np.ndarray((len(buffer) - HEADER_BYTES + 1,), HEADER, buffer, strides=(1,))
    return every[np.array(positions, np.int64)]


def _batch_positions(buffer: memoryview, end_offset: int) -> tuple[list[int], list[int]]:
    """The position and size of each complete batch up to the first one at or after `end_offset`."""
    positions: list[int] = []
    sizes: list[int] = []
    position, end = 0, len(buffer)
    unpack = _START.unpack_from
    while position + HEADER_BYTES <= end:
        base_offset, length, magic = unpack(buffer, position)
        if base_offset >= end_offset != NO_END:
            break
        if magic != MAGIC:
            raise CorruptBatch(
                f"the batch at byte {position} has magic {magic}, but klamm reads only magic {MAGIC}", position
            )
        size = LOG_OVERHEAD + length
        if size < HEADER_BYTES:
            raise CorruptBatch(
                f"the batch at byte {position} has {size} bytes, but its header has {HEADER_BYTES}", position
            )
        if position + size > end:
            break
        positions.append(position)
        sizes.append(size)
        position += size
    return positions, sizes


def valid_checksums(run: Run) -> npt.NDArray[np.bool_]:
    """Whether the stored CRC-32C of each batch is that of its bytes."""
    ends = zip(run.positions, run.sizes, strict=True)
    computed = [google_crc32c.value(bytes(run.buffer[p + CRC_COVERS_FROM : p + size])) for p, size in ends]
    valid: npt.NDArray[np.bool_] = np.array(computed, np.int64) == run.headers["crc"]
    return valid


def check_crc(run: Run) -> None:
    """Raise CorruptBatch, naming the batch's first offset, where a stored CRC-32C is not that of the bytes."""
    buffer = run.buffer
    checksum = google_crc32c.value
    stored = run.headers["crc"].tolist()
    for i, (position, size) in enumerate(zip(run.positions, run.sizes, strict=True)):
        computed = checksum(bytes(buffer[position + CRC_COVERS_FROM : position + size]))
        if computed != stored[i]:
            offset = int(run.headers["base_offset"][i])
            raise CorruptBatch(
                f"batch at offset {offset} has checksum {computed:#010x}, but its header says {stored[i]:#010x}",
                position,
            )


def check_order(run: Run) -> None:
    """Raise CorruptBatch where a batch does not follow the previous one, or counts more records than it can hold."""
    headers = run.headers
    first = headers["base_offset"].astype(np.int64)
    last = run.last_offsets
    if (headers["last_offset_delta"] < 0).any() or (first < 0).any() or (first[1:] <= last[:-1]).any():
        raise CorruptBatch(
            f"the batches with offsets {int(first[0])} to {int(last[-1])} are not in order of their offsets"
        )
    if (headers["record_count"] < 0).any():
        raise CorruptBatch(f"a batch between offsets {int(first[0])} and {int(last[-1])} has a negative record count")
