"""Whether a batch can hold the records that its header announces: a look at the first ones.

The cost has a bound that does not grow with the batch, so an event loop can afford it for every batch. What passes may
still be malformed further back: only a walk over all records (`walk.py`) finds that.
Source: DefaultRecordBatch.java, DefaultRecord.java, Lz4BlockInputStream.java.
"""

from typing import Final

from klamm.wire.compression import XERIAL_MAGIC, BadCompression, Codec
from klamm.wire.records.batch import HEADER_BYTES, BatchHeader, Buffer, CorruptRecords
from klamm.wire.records.record import MAX_VARINT_BYTES, BadRecord, read_varint, reason_of, record_at, wrong_length
from klamm.wire.unfolding import MAX_SNAPPY_RATIO, decompress_pieces, snappy_length

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, timestamp, offset, null key, null value and no headers: a byte each."""
MAX_RECORDS_READ: Final = 16
HEAD_BYTES: Final = 2 * 1024
_MAX_PARSED_BYTES: Final = 16 * 1024
_MAX_SNAPPY_HEAD_BYTES: Final = 64 * 1024
_MAX_RATIOS: Final = {Codec.GZIP: 1032, Codec.SNAPPY: MAX_SNAPPY_RATIO, Codec.LZ4: 256, Codec.ZSTD: 128 * 1024 // 4}
"""How many bytes one byte can decompress to."""
_LZ4_FLAGS_AT: Final = 4
_LZ4_INDEPENDENT: Final = 0x20
"""In the flags of an lz4 frame: each block can be decompressed without those before it. Source: Lz4BlockOutputStream
(FLG)."""


def check_plausible(buffer: Buffer, header: BatchHeader) -> None:
    """Raise CorruptRecords where a complete batch cannot hold the records that its header announces."""
    start = header.position + HEADER_BYTES
    content = memoryview(buffer)[start : header.position + header.size]
    codec = header.codec
    if codec is Codec.NONE:
        _check_head(content, len(content), header)
        return
    if codec is Codec.LZ4 and len(content) > _LZ4_FLAGS_AT and not content[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
        raise CorruptRecords(
            f"batch at offset {header.base_offset}: the blocks of its lz4 frame depend on each other, and Apache "
            "Kafka's consumers read only independent blocks"
        )
    # one frame or block says nothing of those after it
    max_bytes = max(len(content) * _MAX_RATIOS[codec], HEAD_BYTES)
    try:
        head, is_whole = _unfolded_head(codec, content)
    except BadCompression as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {error}") from error
    _check_head(head, len(head) if is_whole else max_bytes, header)


def _unfolded_head(codec: Codec, content: memoryview) -> tuple[bytes, bool]:
    """Decompress at least the first `HEAD_BYTES`; also returns whether that is all.

    Of a large snappy block nothing is decompressed.
    """
    if codec is Codec.SNAPPY and bytes(content[:8]) != XERIAL_MAGIC:
        length = snappy_length(content)
        if length > _MAX_SNAPPY_HEAD_BYTES:
            if length > len(content) * MAX_SNAPPY_RATIO:
                raise BadCompression(
                    f"snappy data of {len(content)} bytes announces {length} decompressed bytes, more than it can hold"
                )
            return b"", False
    pieces = []
    size = 0
    for piece in decompress_pieces(codec, content, HEAD_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > HEAD_BYTES:
            return b"".join(pieces), False
    return b"".join(pieces), True


def _check_head(head: Buffer, max_bytes: int, header: BatchHeader) -> None:
    """Check the first records, which are in `head`, and that the others can fit in the rest of `max_bytes`."""
    is_whole = len(head) == max_bytes
    end = len(head) if is_whole else len(head) - MAX_VARINT_BYTES  # the last one may be cut off
    position = seen = 0
    try:
        while position < end and seen < MAX_RECORDS_READ and seen < header.record_count:
            length, body = read_varint(head, position)
            behind = body + length
            if length < MIN_RECORD_BYTES - 1 or behind > max_bytes:
                raise wrong_length(length)
            if seen == 0 and length <= _MAX_PARSED_BYTES and behind <= len(head):
                first, _ = record_at(bytes(head[:behind]), 0, header, None)
                if first.offset != header.base_offset and header.codec is not Codec.NONE:
                    raise BadRecord(
                        f"the first record has offset {first.offset}, but the batch begins at {header.base_offset}"
                    )
            position = behind
            seen += 1
    except IndexError as error:
        raise CorruptRecords(f"batch at offset {header.base_offset}, record {seen}: {reason_of(error)}") from error
    left = header.record_count - seen
    if left * MIN_RECORD_BYTES > max_bytes - position or (is_whole and not left and position != max_bytes):
        raise CorruptRecords(
            f"batch at offset {header.base_offset}: its header announces {header.record_count} records, but its "
            f"{header.size} bytes cannot hold that number"
        )
